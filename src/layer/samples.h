/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of samples (samples.def), and the slots of a batch (slots.def) that each of them fills.
 */
#ifndef ECH_LAYER_SAMPLES_H
#define ECH_LAYER_SAMPLES_H

#include "layer/shape.h"
#include "tensor/tensor.h"

typedef enum ech_slot {
#define X(name, ...) ECH_##name,
#include "layer/slots.def"
#undef X
    ECH_BATCH_SLOTS
} ech_slot;

typedef enum ech_sample_kind {
#define KIND(name, ...) ECH_SAMPLES_OF_##name,
#define SLOT(...)
#include "layer/samples.def"
    ECH_SAMPLE_KINDS
} ech_sample_kind;

/* A row of samples.def. */
typedef struct ech_sample_row {
    const char *name, *unit;
    bool texts, accuracy;
} ech_sample_row;

const ech_sample_row *ech_sample_row_of(ech_sample_kind kind);

/* The sizes of an image; all 0 where samples are no images. */
typedef struct ech_image {
    int64_t height, width, channels;
} ech_image;

const char *ech_slot_name(ech_slot slot);
ech_dtype ech_slot_dtype(ech_slot slot); /* of the loader's numbers */
/* The type of a list's value: ECH_TYPE_FIXED, the loader's. */
ech_type ech_slot_type(ech_slot slot);
/* True if the slot's value is for whole samples: one value for all sequence chunks of a
 * micro-batch. */
bool ech_slot_is_whole(ech_slot slot);
/* Bits 1 << purpose (ech_purpose): lists in which it is loaded. */
unsigned ech_slot_purposes(ech_slot slot);
/* Whether samples of that kind fill the slot. */
bool ech_slot_is_of(ech_sample_kind kind, ech_slot slot);
/* The shape of a slot that samples of that kind fill. */
ech_shape ech_slot_shape(ech_sample_kind kind, ech_slot slot, ech_image image);

#endif

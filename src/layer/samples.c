/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of kinds of samples and of slots.
 */
#include "layer/layer.h"

enum { ALWAYS = (1 << ECH_PURPOSES) - 1, MEASURED = 1 << ECH_TRAIN | 1 << ECH_EVALUATE };

/* How a kind's slot is shaped. */
typedef enum form { NONE, POSITIONS, SAMPLES, IMAGES } form;

static const struct {
    const char *name;
    ech_dtype dtype;
    ech_type type;
    bool whole;
    unsigned purposes;
} slots[ECH_BATCH_SLOTS] = {
#define X(slot, name, dtype, number, type, whole, purposes, meaning)                               \
    [ECH_##slot] = {#name, ECH_##dtype, ECH_TYPE_##type, whole, purposes},
#include "layer/slots.def"
#undef X
};

static const ech_sample_row kinds[ECH_SAMPLE_KINDS] = {
#define KIND(name, unit, texts, accuracy, meaning)                                                 \
    [ECH_SAMPLES_OF_##name] = {#name, #unit, texts, accuracy},
#define SLOT(...)
#include "layer/samples.def"
};

static const form forms[ECH_SAMPLE_KINDS][ECH_BATCH_SLOTS] = {
#define KIND(...)
#define SLOT(kind, slot, form) [ECH_SAMPLES_OF_##kind][ECH_##slot] = form,
#include "layer/samples.def"
};

const ech_sample_row *ech_sample_row_of(ech_sample_kind kind)
{
    return &kinds[kind];
}

const char *ech_slot_name(ech_slot slot)
{
    return slots[slot].name;
}

ech_dtype ech_slot_dtype(ech_slot slot)
{
    return slots[slot].dtype;
}

ech_type ech_slot_type(ech_slot slot)
{
    return slots[slot].type;
}

bool ech_slot_is_whole(ech_slot slot)
{
    return slots[slot].whole;
}

unsigned ech_slot_purposes(ech_slot slot)
{
    return slots[slot].purposes;
}

bool ech_slot_is_of(ech_sample_kind kind, ech_slot slot)
{
    return forms[kind][slot] != NONE;
}

ech_shape ech_slot_shape(ech_sample_kind kind, ech_slot slot, ech_image image)
{
    ech_shape shape = ech_shape_tokens();
    ECH_ASSERT(ech_slot_is_of(kind, slot));
    if (forms[kind][slot] == SAMPLES) return ech_shape_samples();
    if (forms[kind][slot] == IMAGES)
        return ech_shape_images(image.height, image.width, image.channels);
    if (slots[slot].whole) shape.axis[1] = ECH_AXIS_SEQUENCE;
    return shape;
}

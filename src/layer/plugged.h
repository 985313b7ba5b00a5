/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/layer: a plugin's loss of a chunk of logits.
 */
#ifndef ECH_LAYER_PLUGGED_H
#define ECH_LAYER_PLUGGED_H

#include "layer/layers.h"

/* n rows of logits, and where their losses and gradients go. */
typedef struct ech_loss_chunk {
    const echelon_loss *row;
    int64_t vocabulary, padded; /* V; the columns of a shard */
    int64_t first_id, own;      /* this rank's columns */
    int shards;
    const ech_logits *with; /* the gradient is that of their input; valid while the run lasts */
    bool turns;             /* compute the gradient, too */
    ech_tensor logits;      /* shards x (n, columns in use), each shard n x padded numbers long */
    ech_tensor targets, weights; /* (n) */
    ech_tensor sums, scale;      /* as for kernel.def's loss_gradient */
    ech_tensor gradient;         /* (n, own), in the compute type; its rows may have gaps */
} ech_loss_chunk;

/* The context's scratch has ech_loss_plugged_scratch bytes. */
void ech_loss_call_plugged(const ech_call *call, const ech_loss_chunk *chunk);
size_t ech_loss_plugged_scratch(ech_dtype dtype, int64_t n, int64_t V);

#endif

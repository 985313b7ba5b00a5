/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls the loss that a plugin registered (echelon_plugin.h) on a chunk of rows of logits. The
 * model's head calls it, as it calls the kernel of the built-in loss. Logits are sharded over
 * tensor ranks by columns (ids of the vocabulary); the chunk has the shards of all of them, so the
 * loss does not communicate. Private to src/layer.
 */
#ifndef ECH_LAYER_PLUGGED_H
#define ECH_LAYER_PLUGGED_H

#include "layer/layers.h"

/* n rows of logits, and where their losses and gradients go. */
typedef struct ech_loss_chunk {
    const echelon_loss *row;
    int64_t vocabulary;    /* V: columns of all shards, without padding */
    int64_t padded;        /* columns of one shard, with padding; equal on all ranks */
    int64_t first_id, own; /* this rank's columns: first id, number */
    int shards;            /* tensor ranks */
    /* Factor and cap that made the logits; the gradient is taken before both. Borrowed while
     * the run lasts. */
    const ech_logits *with;
    bool backward;          /* compute the gradient, too */
    ech_tensor logits;      /* shards x (n, columns in use), each shard n x padded numbers long */
    ech_tensor targets, weights; /* (n): ids; the weight of each row in the loss */
    ech_tensor sums;     /* fp64 (2): the sums of weight x loss and of weights are added here */
    ech_tensor scale;    /* fp64 (1): the gradient's factor (loss scale / sum of weights) */
    ech_tensor gradient; /* (n, own), in the compute type; its rows may have gaps */
} ech_loss_chunk;

/* The context's scratch has ech_loss_plugged_scratch bytes. */
void ech_loss_call_plugged(const ech_call *call, const ech_loss_chunk *chunk);
size_t ech_loss_plugged_scratch(ech_dtype dtype, int64_t n, int64_t V);

#endif

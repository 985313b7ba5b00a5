/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of ech_block_finish. Private to src/layer.
 */
#ifndef ECH_LAYER_PROGRAM_H
#define ECH_LAYER_PROGRAM_H

#include "layer/layer.h"

/* Sets the addends of the parameters that the block's nodes use. */
void ech_program_find_addends(const ech_block *block, ech_param *params);

/* Finds which nodes have a backward (ech_node.back, trains): those with trained parameters, and
 * those above them. The others' backward reads nothing. */
void ech_program_freeze(ech_block *block, const ech_param *params);

/* A call without node or gradients: all of these are -1. */
extern const ech_block_call ech_no_call;

/* True if the node's output can be recomputed right before it is read. With weights that changed
 * since the forward, the result would be a value that no forward computed. */
static inline bool ech_node_is_cheap(const ech_block *block, const ech_node *node)
{
    return node->layer->cheap && !(block->options.drifts && node->params > 0);
}

/* True if F makes one output; others only have gradients. */
static inline bool ech_node_makes_one(const ech_block *block, const ech_node *node)
{
    int made = 0;
    for (int i = 0; i < node->outs; i++) made += block->value.at[node->out[i]].purposes != 0;
    return made == 1;
}

/* True if B and W read the value as it is decoded. */
bool ech_block_is_encoded(const ech_block *block, int value);

/* Before ech_program_keep_less: adds nodes that encode what the backward reads, where the block's
 * options ask for it and what it needs allows it, and nodes that decode it. */
void ech_program_encode(ech_block *block);
/* Before programs are derived: adds nodes that recompute what the backward reads and the forward
 * does not keep. */
void ech_program_keep_less(ech_block *block);
/* Derives R, and inserts the calls that recompute values into the derived programs of B and W, each
 * once. */
void ech_program_recompute(ech_block *block);
/* Lists again what each call of the derived programs reads and writes. */
void ech_program_list_operands(ech_block *block);
/* Replaces neighbouring calls by fused calls, where the block's options have them, and lists
 * operands again. */
void ech_program_fuse(ech_block *block);

#endif

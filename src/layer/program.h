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

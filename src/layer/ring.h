/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over context ranks. Private to this room.
 */
#ifndef ECH_LAYER_RING_H
#define ECH_LAYER_RING_H

#include "layer/layer.h"

/* (B,H,T') of an output (B,T',H,D): log sum exp of each row. */
ech_shape ech_attention_lse(const ech_shape *out);
/* The index of the call's first head in the unsharded tensor; H: heads of that. */
int64_t ech_call_first_head(const ech_call *call, ech_axis heads, int64_t H);
/* The rows of all positions of the call's samples, in order. */
ech_rows ech_call_sequence(const ech_call *call);

/* Ulysses' all-to-all over context ranks: x (B,T',H,D) becomes (B,T,H/c,D), or (!to_heads) the reverse. */
int ech_block_exchange_heads(ech_block *block, int x, bool to_heads);

/* Ring attention: keys and values pass from context rank to context rank. */
int ech_ring_attention(ech_block *block, int q, int k, int v, int starts, double p);

/* Multiply-adds of causal attention of queries in[0] to keys of `tokens` positions: two products forward,
 * five backward, of half of all scores. */
double ech_attention_multiplies(const ech_block *block, const ech_node *node, ech_extent extent,
                                int64_t tokens, ech_phase phase);

#endif

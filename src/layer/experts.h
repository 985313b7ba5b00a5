/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by gate.c and experts.c. Private to src/layer. Letters: S rows of a rank, C their width, E
 * experts, k experts that a row chooses, P pieces of a buffer, Q most rows of a piece, X experts of
 * a piece.
 */
#ifndef ECH_LAYER_EXPERTS_H
#define ECH_LAYER_EXPERTS_H

#include "layer/layers.h"

/* Adds the nodes that choose the experts of x's rows, without their buffer. If x is row shards,
 * each tensor rank routes its own rows and then gets the choices of the others. */
ech_routed ech_block_route(ech_block *block, int x, const ech_experts *experts);

/* Ranks of a mesh of context x tensor over which the rows of a balance group are sharded. */
int64_t ech_gate_members(const ech_sharding *sharding);

/* x's shape with a last axis of `columns` of `axis`. */
static inline ech_shape ech_shape_beside(const ech_block *block, int x, ech_axis axis,
                                         int64_t columns)
{
    ech_shape shape = block->value.at[x].shape;
    shape.axis[shape.dims - 1] = axis;
    shape.size[shape.dims - 1] = columns;
    return shape;
}

/* The width of a row. */
static inline int64_t ech_columns(const ech_block *block, int x)
{
    const ech_shape *shape = &block->value.at[x].shape;
    return shape->size[shape->dims - 1];
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Between gate.c and experts.c. Private to src/layer.
 *
 * Letters: S a rank's rows, C their width, E experts, k that a row chooses, P pieces of a buffer, Q
 * rows of a piece at most, X experts of a piece.
 */
#ifndef ECH_LAYER_EXPERTS_H
#define ECH_LAYER_EXPERTS_H

#include "layer/layers.h"

/* Which experts the rows of x go to, without their buffer. x may be row shards: each tensor rank
 * routes its own, and is told what others have chosen. */
ech_routed ech_block_route(ech_block *block, int x, const ech_experts *experts);

/* x's shape with `columns` of `axis` a row. */
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixture of experts: what the two files that build it share. gate.c builds the router (gate) that
 * chooses experts for each row; experts.c builds the experts and the exchange of rows between
 * ranks, which begins with a call of ech_block_route. Private to src/layer.
 *
 * Letters in both files: S rows of a rank, C their width, E experts, k experts that a row chooses.
 * Rows are exchanged in a buffer of P splits, one per destination. A split has at most Q rows and
 * is for X experts.
 */
#ifndef ECH_LAYER_EXPERTS_H
#define ECH_LAYER_EXPERTS_H

#include "layer/layers.h"

/* Adds the router's nodes, which choose the experts of x's rows. They do not copy rows to the
 * buffer of the exchange. x: index of a value of the block, (S, C). If tensor ranks have shards of
 * its rows (sequence parallelism), each routes its own rows, and a collective gives it the choices
 * of the others. */
ech_routed ech_block_route(ech_block *block, int x, const ech_experts *experts);

/* A balance group is the set of rows over which a router's load-balancing loss is computed. Returns
 * the number of context x tensor ranks over which the rows of one group are sharded. */
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

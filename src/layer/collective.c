/* SPDX-License-Identifier: Apache-2.0
 *
 * Collective nodes between sharded layers, and where builders put them.
 *
 * Tensor parallelism (Shoeybi et al. 2019): a column-parallel product needs its whole input and makes
 * partial sums of its input's gradient: `spread` stands before it. A row-parallel one makes partial sums of its output:
 * `sum` stands after it. With sequence parallelism (Korthikanti et al. 2022) activations between such pairs of products
 * are sharded by rows: `gather` stands for `spread`, `scatter` for `sum`.
 */
#include "layer/layers.h"

const ech_layer ech_layer_row_sum = {
    .name = "sum", .exchange = {ECH_COLLECTIVE_ALL_REDUCE, ECH_MESH_TENSOR, 0}, .in_place = true};
const ech_layer ech_layer_row_spread = {
    .name = "spread",
    .exchange_back = {ECH_COLLECTIVE_ALL_REDUCE, ECH_MESH_TENSOR, 0},
    .in_place = true};
const ech_layer ech_layer_row_gather = {
    .name = "gather",
    .exchange = {ECH_COLLECTIVE_ALL_GATHER, ECH_MESH_TENSOR, 0},
    .exchange_back = {ECH_COLLECTIVE_REDUCE_SCATTER, ECH_MESH_TENSOR, 0}};
const ech_layer ech_layer_row_scatter = {
    .name = "scatter",
    .exchange = {ECH_COLLECTIVE_REDUCE_SCATTER, ECH_MESH_TENSOR, 0},
    .exchange_back = {ECH_COLLECTIVE_ALL_GATHER, ECH_MESH_TENSOR, 0}};
const ech_layer ech_layer_row_shift = {
    .name = "shift",
    .exchange = {ECH_COLLECTIVE_SHIFT, ECH_MESH_CONTEXT, 1},
    .exchange_back = {ECH_COLLECTIVE_SHIFT, ECH_MESH_CONTEXT, -1}};
const ech_layer ech_layer_row_unshift = {.name = "unshift",
                                         .exchange = {ECH_COLLECTIVE_SHIFT, ECH_MESH_CONTEXT, -1}};
const ech_layer ech_layer_row_to_heads = {
    .name = "to_heads",
    .exchange = {ECH_COLLECTIVE_ALL_TO_ALL, ECH_MESH_CONTEXT, 1},
    .exchange_back = {ECH_COLLECTIVE_ALL_TO_ALL, ECH_MESH_CONTEXT, -1}};
const ech_layer ech_layer_row_to_tokens = {
    .name = "to_tokens",
    .exchange = {ECH_COLLECTIVE_ALL_TO_ALL, ECH_MESH_CONTEXT, -1},
    .exchange_back = {ECH_COLLECTIVE_ALL_TO_ALL, ECH_MESH_CONTEXT, 1}};

static int add_in_place(ech_block *block, const ech_layer *layer, int x)
{
    ech_node *node = ech_block_node(block, layer, NULL, 0);
    ech_node_in(node, x);
    ech_node_out_in_place(node, x);
    return x;
}

/* The output of the layer's node of x, if there is one; -1. */
static int find_output(const ech_block *block, const ech_layer *layer, int x)
{
    for (size_t i = 0; i < block->node.n; i++) {
        const ech_node *node = &block->node.at[i];
        if (node->layer == layer && node->in[0] == x && !node->recompute_only) return node->out[0];
    }
    return -1;
}

void ech_block_set_recompute(ech_block *block, int value, int recomputed)
{
    block->value.at[value].recomputed = recomputed;
    block->node.at[block->node.n - 1].recompute_only = true;
}

int ech_block_whole(ech_block *block, int x, bool kept)
{
    const ech_sharding *sharding = &block->options.sharding;
    if (sharding->tensor < 2) return x;
    const ech_layer *layer = sharding->sequence ? &ech_layer_row_gather : &ech_layer_row_spread;
    int whole = find_output(block, layer, x);
    if (whole >= 0) return whole;
    if (!sharding->sequence) return add_in_place(block, layer, x);
    ech_shape shape = ech_shape_rows(ECH_AXIS_MODEL, block->value.at[x].shape.size[1]);
    whole = ech_block_add(block, layer, x, -1, 0, shape);
    if (!kept && !block->options.keep)
        ech_block_set_recompute(block, whole, ech_block_add(block, layer, x, -1, 0, shape));
    return whole;
}

bool ech_block_gradient_is_partial(const ech_block *block, ech_axis axis)
{
    return ech_block_is_sharded(block, axis) && !block->options.sharding.sequence;
}

int ech_block_sum(ech_block *block, int y)
{
    const ech_sharding *sharding = &block->options.sharding;
    if (sharding->tensor < 2) return y;
    if (!sharding->sequence) return add_in_place(block, &ech_layer_row_sum, y);
    return ech_block_add(block, &ech_layer_row_scatter, y, -1, 0,
                         ech_block_stream(block, block->value.at[y].shape.size[2]));
}

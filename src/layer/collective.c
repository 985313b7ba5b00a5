/* SPDX-License-Identifier: Apache-2.0
 *
 * Collective nodes between sharded layers, and where builders insert them. Tensor parallelism
 * (Shoeybi et al. 2019): a column-parallel product needs its whole input and makes partial sums of
 * its input's gradient, so `spread` comes before it. A row-parallel product makes partial sums of
 * its output, so `sum` comes after it. With sequence parallelism (Korthikanti et al. 2022)
 * activations between such pairs of products are sharded by rows: `gather` replaces `spread`, and
 * `scatter` replaces `sum`.
 */
#include "layer/layers.h"

/* The collectives of F and of B. way: to the next rank (1) or the previous one; for all-to-all from
 * tokens to heads (1) or back; B goes the other way. */
#define COLLECTIVE(row, forward, back, mesh, way, is_in_place)                                     \
    const ech_layer ech_layer_row_##row = {                                                        \
        .name = #row,                                                                              \
        .exchange = {ECH_COLLECTIVE_##forward, ECH_MESH_##mesh, way},                              \
        .exchange_back = {ECH_COLLECTIVE_##back, ECH_MESH_##mesh, -(way)},                         \
        .in_place = is_in_place,                                                                   \
        .core = (ECH_MESH_##mesh) == ECH_MESH_CONTEXT}

COLLECTIVE(sum, ALL_REDUCE, NONE, TENSOR, 0, true);
COLLECTIVE(sum_both, ALL_REDUCE, ALL_REDUCE, TENSOR, 0, true);
COLLECTIVE(spread, NONE, ALL_REDUCE, TENSOR, 0, true);
COLLECTIVE(gather, ALL_GATHER, REDUCE_SCATTER, TENSOR, 0, false);
COLLECTIVE(scatter, REDUCE_SCATTER, ALL_GATHER, TENSOR, 0, false);
COLLECTIVE(shift, SHIFT, SHIFT, CONTEXT, 1, false);
COLLECTIVE(slide, SLIDE, SLIDE, CONTEXT, 0, false); /* the distance is the node's */
COLLECTIVE(unshift, SHIFT, NONE, CONTEXT, -1, false);
COLLECTIVE(gather_kept, ALL_GATHER, NONE, TENSOR, 0, false);
COLLECTIVE(gather_table, ALL_GATHER, NONE, TENSOR, 0, false);
COLLECTIVE(to_heads, ALL_TO_ALL, ALL_TO_ALL, CONTEXT, 1, false);
COLLECTIVE(to_tokens, ALL_TO_ALL, ALL_TO_ALL, CONTEXT, -1, false);
COLLECTIVE(exchange_counts, ALL_TO_ALL, NONE, EXPERT, 0, false);
COLLECTIVE(exchange_rows, EXCHANGE_ROWS, EXCHANGE_ROWS, EXPERT, 1, false);
COLLECTIVE(return_rows, EXCHANGE_ROWS, EXCHANGE_ROWS, EXPERT, -1, false);
COLLECTIVE(gather_rows, ALL_GATHER, REDUCE_SCATTER, TENSOR, 0, false);
COLLECTIVE(scatter_rows, REDUCE_SCATTER, ALL_GATHER, TENSOR, 0, false);

/* Rows of tables, which selective recomputation does not recompute. */
const ech_layer ech_layer_row_gather_context = {
    .name = "gather_context", .exchange = {ECH_COLLECTIVE_ALL_GATHER, ECH_MESH_CONTEXT, 0}};

/* Copies a tensor rank's share of numbers that all ranks have. They are sharded like messages
 * between stages: evenly, whatever their shape; so are rows if their number divides evenly. */
static void copy_shard(const ech_call *call, const ech_tensor *whole, const ech_tensor *own)
{
    int64_t n = ech_tensor_count(whole);
    int64_t first = ech_collective_shard_first(n, call->tensor_size, call->tensor_index);
    int64_t count = ech_collective_shard_count(n, call->tensor_size, call->tensor_index);
    int64_t sizes[] = {1, 1, 1, count};
    ech_tensor all = ech_tensor_flat(whole), shard = ech_tensor_rows(&all, first, count);
    ech_tensor from = ech_tensor_view(shard.data, shard.dtype, 4, sizes);
    ech_tensor to = ech_tensor_view(own->data, shard.dtype, 4, sizes);
    call->kernels->copy(call->context, &from, &to);
}

static void keep_shard(const ech_call *call)
{
    copy_shard(call, &call->in[0], &call->out[0]);
}

static void all_rows_backward(const ech_call *call)
{
    copy_shard(call, &call->dout[0], &call->din[0]);
}

const ech_layer ech_layer_row_keep_shard = {.name = "keep_shard", .forward = keep_shard};

const ech_layer ech_layer_row_own_rows = {
    .name = "own_rows",
    .forward = keep_shard,
    .exchange_back = {ECH_COLLECTIVE_ALL_GATHER, ECH_MESH_TENSOR, 0}};
const ech_layer ech_layer_row_all_rows = {
    .name = "all_rows",
    .exchange = {ECH_COLLECTIVE_ALL_GATHER, ECH_MESH_TENSOR, 0},
    .backward_input = all_rows_backward};

static int add_in_place(ech_block *block, const ech_layer *layer, int x)
{
    ech_node *node = ech_block_node(block, layer, NULL, 0);
    ech_node_in(node, x);
    ech_node_out_in_place(node, x);
    return x;
}

/* The output of the layer's node for x, if there is one; otherwise -1. */
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
    block->value.at[value].kept = ECH_KEPT_RECOMPUTED;
    block->value.at[value].recomputed = recomputed;
    block->node.at[block->node.n - 1].recompute_only = true;
}

/* The unsharded shape of a value of row shards. */
static ech_shape shape_of_rows(const ech_block *block, int x)
{
    const ech_shape *shape = &block->value.at[x].shape;
    return ech_shape_rows(shape->axis[shape->dims - 1], shape->size[shape->dims - 1]);
}

int ech_block_whole(ech_block *block, int x, bool kept)
{
    const ech_sharding *sharding = &block->options.sharding;
    if (sharding->tensor < 2) return x;
    const ech_layer *layer = sharding->sequence ? &ech_layer_row_gather : &ech_layer_row_spread;
    int whole = find_output(block, layer, x);
    if (whole >= 0) return whole;
    if (!sharding->sequence) return add_in_place(block, layer, x);
    ech_shape shape = shape_of_rows(block, x);
    whole = ech_block_add(block, layer, x, -1, 0, shape);
    if (!kept && !block->options.keep)
        ech_block_set_recompute(block, whole, ech_block_add(block, layer, x, -1, 0, shape));
    return whole;
}

int ech_block_whole_table(ech_block *block, int table)
{
    const ech_sharding *sharding = &block->options.sharding;
    const ech_block_value value = block->value.at[table];
    ECH_ASSERT(value.role == ECH_ROLE_TABLE);
    if (sharding->tensor < 2 || !sharding->sequence) return table;
    ech_node *node = ech_block_node(block, &ech_layer_row_gather_table, NULL, 0);
    ech_node_in(node, table);
    return ech_node_out_table(block, node, "whole", shape_of_rows(block, table), value.type,
                              value.dtype);
}

int ech_block_own_rows(ech_block *block, int x)
{
    const ech_sharding *sharding = &block->options.sharding;
    const ech_shape *shape = &block->value.at[x].shape;
    if (sharding->tensor < 2 || sharding->sequence) return x;
    return ech_block_add(block, &ech_layer_row_own_rows, x, -1, 0,
                         ech_shape_2d(ECH_AXIS_ROWS, 0, shape->axis[2], shape->size[2]));
}

int ech_block_all_rows(ech_block *block, int y)
{
    const ech_sharding *sharding = &block->options.sharding;
    if (sharding->tensor < 2 || sharding->sequence) return y;
    return ech_block_add(block, &ech_layer_row_all_rows, y, -1, 0, shape_of_rows(block, y));
}

bool ech_block_gradient_is_partial(const ech_block *block, ech_axis axis)
{
    return ech_block_is_sharded(block, axis) && !block->options.sharding.sequence;
}

int ech_block_exchange_counts(ech_block *block, int counts)
{
    if (block->options.sharding.expert < 2) return counts;
    const ech_block_value *table = &block->value.at[counts];
    ech_shape shape = table->shape;
    ech_dtype dtype = table->dtype;
    ECH_ASSERT(table->role == ECH_ROLE_TABLE && table->type == ECH_TYPE_FIXED);
    ech_node *node = ech_block_node(block, &ech_layer_row_exchange_counts, NULL, 0);
    ech_node_in(node, counts);
    return ech_node_out_table(block, node, "received", shape, ECH_TYPE_FIXED, dtype);
}

/* For nodes that go by counts. */
typedef struct rows_options {
    ech_round round;
    double expected; /* expected rows in use, as a fraction of the capacity */
} rows_options;

bool ech_node_goes_by_counts(const ech_node *node)
{
    const ech_layer *layer = node->layer;
    return layer->exchange.kind == ECH_COLLECTIVE_EXCHANGE_ROWS ||
           layer == &ech_layer_row_gather_rows || layer == &ech_layer_row_scatter_rows;
}

ech_round ech_node_round(const ech_node *node)
{
    const rows_options *options = node->options;
    return ech_node_goes_by_counts(node) ? options->round : (ech_round){0, 1};
}

double ech_node_expected(const ech_node *node)
{
    const rows_options *options = node->options;
    return ech_node_goes_by_counts(node) ? options->expected : 1;
}

/* The output of a node that moves rows: for a table's rows a table, in the same lists. */
static int moved(ech_block *block, ech_node *node, int rows, const char *name, ech_shape shape)
{
    const ech_block_value from = block->value.at[rows];
    node->purposes = from.purposes;
    int made = from.role == ECH_ROLE_TABLE
                   ? ech_node_out_table(block, node, name, shape, from.type, from.dtype)
                   : ech_node_out(block, node, name, shape);
    block->value.at[made].type = from.type;
    block->value.at[made].purposes = from.purposes;
    return made;
}

/* Converts slices of tensor ranks to the slices of all, one after the other, or back. */
static int move_slices(ech_block *block, const ech_layer *layer, int rows, int counts,
                       ech_shape shape, ech_round round, double expected)
{
    rows_options options = {round, expected};
    ech_node *node = ech_block_node(block, layer, &options, sizeof options);
    ech_node_in(node, rows);
    ech_node_in(node, counts);
    node->b.in = 2;
    return moved(block, node, rows, "slices", shape);
}

int ech_block_gather_rows(ech_block *block, int rows, int counts, ech_round round, double expected)
{
    int t = block->options.sharding.tensor;
    if (t < 2) return rows;
    ech_shape shape = block->value.at[rows].shape;
    shape.size[0] *= t;
    return move_slices(block, &ech_layer_row_gather_rows, rows, counts, shape, round, expected);
}

int ech_block_scatter_rows(ech_block *block, int rows, int counts, ech_round round, double expected)
{
    int t = block->options.sharding.tensor;
    if (t < 2) return rows;
    ech_shape shape = block->value.at[rows].shape;
    shape.size[0] /= t;
    return move_slices(block, &ech_layer_row_scatter_rows, rows, counts, shape, round, expected);
}

static ech_node *exchange_rows(ech_block *block, const ech_layer *layer, int rows,
                               const int tables[2], ech_round round)
{
    rows_options options = {round, 1};
    ech_node *node = ech_block_node(block, layer, &options, sizeof options);
    ech_node_in(node, rows);
    for (int i = 0; i < 2; i++) ech_node_in(node, tables[i]);
    node->b.in = 6;
    return node;
}

int ech_block_exchange_rows(ech_block *block, int packed, const int tables[2], ech_shape slices,
                            ech_round round)
{
    const ech_layer *layer = &ech_layer_row_exchange_rows;
    if (block->options.sharding.expert < 2) return packed;
    ech_node *node = exchange_rows(block, layer, packed, tables, round);
    node->is_part = round.of > 1;
    return moved(block, node, packed, "slices", slices);
}

int ech_block_return_rows(ech_block *block, int slices, const int tables[2], ech_shape packed,
                          int into, ech_round round)
{
    const ech_layer *layer = &ech_layer_row_return_rows;
    if (block->options.sharding.expert < 2) return slices;
    ech_node *node = exchange_rows(block, layer, slices, tables, round);
    if (into >= 0) {
        ech_node_out_in_place(node, into);
        node->goes_on = true;
        return into;
    }
    return moved(block, node, slices, "packed", packed);
}

int ech_block_sum_both(ech_block *block, int x)
{
    return add_in_place(block, &ech_layer_row_sum_both, x);
}

int ech_block_sum(ech_block *block, int y)
{
    const ech_sharding *sharding = &block->options.sharding;
    if (sharding->tensor < 2) return y;
    if (!sharding->sequence) return add_in_place(block, &ech_layer_row_sum, y);
    const ech_shape *shape = &block->value.at[y].shape;
    return ech_block_add(block, &ech_layer_row_scatter, y, -1, 0,
                         ech_shape_2d(ECH_AXIS_ROWS, 0, shape->axis[2], shape->size[2]));
}

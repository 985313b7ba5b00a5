/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of tables: token embedding, one row per id; learned positions, y (B,T,C) = x + table
 * [position of the row in its document]. If the token table is sharded over tensor ranks, a rank
 * has the rows of some ids and writes zeros for all others: its output is a partial sum.
 */
#include "layer/layers.h"

int ech_layer_embedding(ech_block *block, int ids, int table, int64_t C)
{
    ech_node *node = ech_block_node(block, &ech_layer_row_embedding, NULL, 0);
    ech_node_in(node, ids);
    ech_node_param(node, table);
    node->w.in = 1;
    int y = ech_node_out(block, node, "out", ech_shape_rows(ECH_AXIS_MODEL, C));
    block->value.at[y].type = block->options.stream;
    return ech_block_is_sharded(block, ECH_AXIS_VOCAB) ? ech_block_sum(block, y) : y;
}

/* The first id of this rank's shard of the table. */
static int64_t first_id(const ech_call *call, const ech_tensor *table)
{
    return call->tensor_index * table->shape[0];
}

static void embedding_forward(const ech_call *call)
{
    ech_tensor ids = ech_tensor_flat(&call->in[0]), y = ech_tensor_matrix(&call->out[0]);
    call->kernels->embedding_forward(call->context, &call->param[0], &ids,
                                     first_id(call, &call->param[0]), &y);
}

static void embedding_backward(const ech_call *call)
{
    ech_tensor ids = ech_tensor_flat(&call->in[0]), dy = ech_tensor_matrix(&call->dout[0]);
    call->kernels->embedding_backward(call->context, &dy, &ids, first_id(call, &call->dparam[0]),
                                      call->accumulate[0], &call->dparam[0]);
}

static size_t scratch_of(const ech_scratch_query *query, ech_op op)
{
    if (query->phase != ECH_BACKWARD_WEIGHT) return 0;
    const ech_shape *y = &query->block->value.at[query->node->out[0]].shape;
    int64_t C = y->size[y->dims - 1], dims[] = {ech_shape_count(y, query->extent) / C, 0, C};
    return ech_kernel_scratch(query->kernels, op, query->threads, dims);
}

static size_t embedding_scratch(const ech_scratch_query *query)
{
    return scratch_of(query, ECH_OP_embedding_backward);
}

const ech_layer ech_layer_row_embedding = {.name = "embedding",
                                           .forward = embedding_forward,
                                           .backward_weight = embedding_backward,
                                           .scratch = embedding_scratch,
                                           .looks_up = true,
                                           .by_ids = true};

int ech_layer_position(ech_block *block, int x, int table, int starts)
{
    ech_node *node = ech_block_node(block, &ech_layer_row_position, NULL, 0);
    ech_node_in(node, x);
    node->w.in = ech_node_starts(node, starts);
    ech_node_param(node, table);
    return ech_node_out_like(block, node, x);
}

static void position_forward(const ech_call *call)
{
    ech_tensor x = ech_tensor_matrix(&call->in[0]), y = ech_tensor_matrix(&call->out[0]);
    call->kernels->position_forward(call->context, &x, &call->param[0], ech_call_rows(call),
                                    ech_optional(&call->in[1]), &y);
}

static void position_backward(const ech_call *call)
{
    ech_tensor dy = ech_tensor_matrix(&call->dout[0]);
    call->kernels->position_backward(call->context, &dy, ech_call_rows(call),
                                     ech_optional(&call->in[1]), call->accumulate[0],
                                     &call->dparam[0]);
}

static size_t position_scratch(const ech_scratch_query *query)
{
    return scratch_of(query, ECH_OP_position_backward);
}

const ech_layer ech_layer_row_position = {.name = "position",
                                          .forward = position_forward,
                                          .backward_weight = position_backward,
                                          .scratch = position_scratch,
                                          .passes_gradient = true,
                                          .looks_up = true};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Token embedding: a row of the table per id. With a table that is sharded over tensor ranks, a rank
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
    return ech_block_cuts(block, ECH_AXIS_VOCAB) ? ech_block_sum(block, y) : y;
}

/* The first id of this rank's shard of the table. */
static int64_t first_id(const ech_call *call, const ech_tensor *table)
{
    return call->tensor_index * table->shape[0];
}

static void forward(const ech_call *call)
{
    ech_tensor ids = ech_tensor_1d(call->in[0].data, ECH_I32, ech_tensor_count(&call->in[0]));
    ech_tensor y = ech_tensor_matrix(&call->out[0]);
    call->kernels->embedding_forward(call->context, &call->param[0], &ids,
                                     first_id(call, &call->param[0]), &y);
}

static void backward_weight(const ech_call *call)
{
    ech_tensor ids = ech_tensor_1d(call->in[0].data, ECH_I32, ech_tensor_count(&call->in[0]));
    ech_tensor dy = ech_tensor_matrix(&call->dout[0]);
    call->kernels->embedding_backward(call->context, &dy, &ids, first_id(call, &call->dparam[0]),
                                      call->accumulate[0], &call->dparam[0]);
}

static size_t scratch(const ech_scratch_query *query)
{
    if (query->phase != ECH_BACKWARD_WEIGHT) return 0;
    const ech_block_value *y = &query->block->value.at[query->node->out[0]];
    int64_t dims[] = {query->extent.batch * query->extent.tokens, 0,
                      y->shape.size[y->shape.dims - 1]};
    return ech_kernel_scratch(query->kernels, ECH_OP_embedding_backward, query->threads, dims);
}

const ech_layer ech_layer_row_embedding = {.name = "embedding",
                                           .forward = forward,
                                           .backward_weight = backward_weight,
                                           .scratch = scratch,
                                           .looks_up = true};

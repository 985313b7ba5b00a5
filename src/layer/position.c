/* SPDX-License-Identifier: Apache-2.0
 *
 * Learned positions: y (B,T,C) = x + table [position of the row in its document].
 */
#include "layer/layers.h"

int ech_layer_position(ech_block *block, int x, int table, int starts)
{
    ech_node *node = ech_block_node(block, &ech_layer_row_position, NULL, 0);
    ech_node_in(node, x);
    node->w.in = ech_node_starts(node, starts);
    ech_node_param(node, table);
    return ech_node_out(block, node, "out", block->value.at[x].shape);
}

static void forward(const ech_call *call)
{
    ech_tensor x = ech_tensor_matrix(&call->in[0]), y = ech_tensor_matrix(&call->out[0]);
    call->kernels->position_forward(call->context, &x, &call->param[0], ech_call_rows(call),
                                    ech_optional(&call->in[1]), &y);
}

static void backward_weight(const ech_call *call)
{
    ech_tensor dy = ech_tensor_matrix(&call->dout[0]);
    call->kernels->position_backward(call->context, &dy, ech_call_rows(call),
                                     ech_optional(&call->in[1]), call->accumulate[0],
                                     &call->dparam[0]);
}

const ech_layer ech_layer_row_position = {.name = "position",
                                          .forward = forward,
                                          .backward_weight = backward_weight,
                                          .passes_gradient = true,
                                          .looks_up = true};

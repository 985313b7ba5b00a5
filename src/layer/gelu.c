/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU in its tanh form. Hendrycks and Gimpel 2016, arXiv:1606.08415.
 */
#include "layer/layers.h"

int ech_layer_gelu(ech_block *block, int x)
{
    ech_node *node = ech_block_node(block, &ech_layer_row_gelu, NULL, 0);
    ech_node_in(node, x);
    node->b.in = 1;
    return ech_node_out(block, node, "out", block->value.at[x].shape);
}

static void forward(const ech_call *call)
{
    call->kernels->gelu_forward(call->context, &call->in[0], &call->out[0]);
}

static void backward_input(const ech_call *call)
{
    call->kernels->gelu_backward(call->context, &call->dout[0], &call->in[0], &call->din[0]);
}

const ech_layer ech_layer_row_gelu = {.name = "gelu",
                                      .forward = forward,
                                      .backward_input = backward_input,
                                      .overwrites = 1,
                                      .cheap = true};

/* SPDX-License-Identifier: Apache-2.0
 *
 * SwiGLU: gate sigmoid(gate) up. Shazeer 2020, arXiv:2002.05202.
 */
#include "layer/layers.h"

int ech_layer_swiglu(ech_block *block, int gate, int up)
{
    ech_node *node = ech_block_node(block, &ech_layer_row_swiglu, NULL, 0);
    ech_node_in(node, gate);
    ech_node_in(node, up);
    node->b.in = 3;
    return ech_node_out(block, node, "out", block->value.at[gate].shape);
}

static void forward(const ech_call *call)
{
    call->kernels->swiglu_forward(call->context, &call->in[0], &call->in[1], &call->out[0]);
}

static void backward_input(const ech_call *call)
{
    call->kernels->swiglu_backward(call->context, &call->dout[0], &call->in[0], &call->in[1],
                                   &call->din[0], &call->din[1]);
}

const ech_layer ech_layer_row_swiglu = {.name = "swiglu",
                                        .forward = forward,
                                        .backward_input = backward_input,
                                        .overwrites = 3,
                                        .cheap = true};

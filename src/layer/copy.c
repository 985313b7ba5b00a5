/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies a view's columns into memory of their own, so that the rest of its base need not be saved.
 */
#include "layer/layers.h"

int ech_layer_copy(ech_block *block, int x)
{
    ech_shape shape = block->value.at[x].shape;
    ech_node *node = ech_block_node(block, &ech_layer_row_copy, NULL, 0);
    ech_node_in(node, x);
    return ech_node_out(block, node, "out", shape);
}

static void forward(const ech_call *call)
{
    call->kernels->copy(call->context, &call->in[0], &call->out[0]);
}

static void backward_input(const ech_call *call)
{
    call->kernels->copy(call->context, &call->dout[0], &call->din[0]);
}

const ech_layer ech_layer_row_copy = {
    .name = "copy", .forward = forward, .backward_input = backward_input};

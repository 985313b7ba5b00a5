/* SPDX-License-Identifier: Apache-2.0
 *
 * Residual sum: y = a + b. Its gradient goes to both inputs as it is. Where b comes straight out of a
 * linear layer, that layer adds a while it writes b, and there is no residual node.
 */
#include "layer/layers.h"

int ech_layer_residual(ech_block *block, int x, int y)
{
    if (ech_layer_linear_adds(block, y, x)) return y;
    ech_node *node = ech_block_node(block, &ech_layer_row_residual, NULL, 0);
    ech_node_in(node, x);
    ech_node_in(node, y);
    return ech_node_out(block, node, "out", block->value.at[x].shape);
}

static void forward(const ech_call *call)
{
    call->kernels->add(call->context, &call->in[0], &call->in[1], &call->out[0]);
}

const ech_layer ech_layer_row_residual = {
    .name = "residual", .forward = forward, .passes_gradient = true};

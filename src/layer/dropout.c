/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout. Srivastava et al. 2014. The mask is a function of (seed, step, layer, site, element), so
 * nothing is saved: B draws the same mask.
 */
#include "layer/layers.h"

typedef struct dropout_options {
    double p;
} dropout_options;

int ech_layer_dropout(ech_block *block, int x, double p)
{
    if (p == 0) return x;
    dropout_options options = {p};
    ech_node *node = ech_block_node(block, &ech_layer_row_dropout, &options, sizeof options);
    ech_node_in(node, x);
    node->site = ECH_SITE_DROPOUT + (uint32_t)block->sites++;
    return ech_node_out(block, node, "out", block->value.at[x].shape);
}

static void drop(const ech_call *call, const ech_tensor *from, const ech_tensor *to)
{
    const dropout_options *options = call->node->options;
    ech_dropout dropout = ech_call_dropout(call, options->p, call->node->site);
    ech_tensor x = ech_tensor_matrix(from), y = ech_tensor_matrix(to);
    call->kernels->dropout(call->context, &x, &dropout, ech_call_rows(call), &y);
}

static void forward(const ech_call *call)
{
    drop(call, &call->in[0], &call->out[0]);
}

static void backward_input(const ech_call *call)
{
    drop(call, &call->dout[0], &call->din[0]);
}

const ech_layer ech_layer_row_dropout = {
    .name = "dropout", .forward = forward, .backward_input = backward_input};

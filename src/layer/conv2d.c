/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of images (B,H,W,C), channels last, with weights (O,C,KH,KW) as in PyTorch. B:
 * gradient of the images; W: of weight and bias.
 */
#include "base/status.h"
#include "layer/layers.h"

ech_shape ech_layer_filtered(const ech_shape *x, const ech_filter *at, int64_t channels)
{
    int64_t size[2];
    for (int d = 0; d < 2; d++) {
        size[d] = ech_filter_output(at, d, x->size[1 + d]);
        ECH_ASSERT(size[d] > 0);
    }
    return ech_shape_images(size[0], size[1], channels);
}

int ech_layer_conv2d(ech_block *block, int x, int weight, int bias, const ech_filter *at,
                     int64_t channels)
{
    ech_node *node = ech_block_node(block, &ech_layer_row_conv2d, at, sizeof *at);
    ech_node_in(node, x);
    ech_node_weights(node, weight, bias);
    node->w.in = 1;
    return ech_node_out(block, node, "out",
                        ech_layer_filtered(&block->value.at[x].shape, at, channels));
}

static void forward(const ech_call *call)
{
    call->kernels->conv2d_forward(call->context, &call->in[0], &call->param[0],
                                  ech_optional(&call->param[1]), call->node->options,
                                  &call->out[0]);
}

static void backward_input(const ech_call *call)
{
    call->kernels->conv2d_backward_input(call->context, &call->dout[0], &call->param[0],
                                         call->node->options, &call->din[0]);
}

static void backward_weight(const ech_call *call)
{
    ech_tensor dy = ech_tensor_matrix(&call->dout[0]);
    if (call->dparam[0].data)
        call->kernels->conv2d_backward_weight(call->context, &call->dout[0], &call->in[0],
                                              call->node->options, call->accumulate[0],
                                              &call->dparam[0]);
    if (call->dparam[1].data)
        call->kernels->bias_backward(call->context, &dy, call->accumulate[1], &call->dparam[1]);
}

static size_t scratch(const ech_scratch_query *query)
{
    static const ech_op ops[ECH_PHASES] = {
        [ECH_FORWARD] = ECH_OP_conv2d_forward,
        [ECH_BACKWARD_INPUT] = ECH_OP_conv2d_backward_input,
        [ECH_BACKWARD_WEIGHT] = ECH_OP_conv2d_backward_weight,
    };
    const ech_filter *at = query->node->options;
    const ech_shape *x = &query->block->value.at[query->node->in[0]].shape;
    const ech_shape *y = &query->block->value.at[query->node->out[0]].shape;
    bool bias = query->node->params > 1;
    int64_t dims[] = {query->extent.batch, x->size[1],     x->size[2],
                      x->size[3],          y->size[3],     at->size[0],
                      at->size[1],         at->stride[0],  at->stride[1],
                      at->padding[0],      at->padding[1], bias && query->phase == ECH_FORWARD};
    size_t bytes = ech_kernel_scratch(query->kernels, ops[query->phase], query->threads, dims);
    if (!bias || query->phase != ECH_BACKWARD_WEIGHT) return bytes;
    int64_t rows[] = {ech_shape_count(y, query->extent) / y->size[3], y->size[3]};
    size_t other = ech_kernel_scratch(query->kernels, ECH_OP_bias_backward, query->threads, rows);
    return other > bytes ? other : bytes;
}

/* As a product of the patches of all output pixels with the filters. */
static ech_products products(const ech_block *block, const ech_node *node, ech_extent extent,
                             ech_phase phase)
{
    const ech_filter *at = node->options;
    const ech_shape *x = &block->value.at[node->in[0]].shape;
    const ech_shape *y = &block->value.at[node->out[0]].shape;
    double rows = (double)(ech_shape_count(y, extent) / y->size[3]), out = (double)y->size[3];
    double patch = (double)(x->size[3] * at->size[0] * at->size[1]);
    if (phase == ECH_BACKWARD_WEIGHT) return (ech_products){out, patch, rows, 1};
    if (phase == ECH_BACKWARD_INPUT) return (ech_products){rows, patch, out, 1};
    return (ech_products){rows, out, patch, 1};
}

const ech_layer ech_layer_row_conv2d = {.name = "conv2d",
                                        .forward = forward,
                                        .backward_input = backward_input,
                                        .backward_weight = backward_weight,
                                        .scratch = scratch,
                                        .needs_in = ECH_NEED_8_BITS,
                                        .products = products};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools of images (B,H,W,C), and their flattening. The place of the largest pixel in its window, a
 * byte, is kept for the backward, which does not read the images.
 */
#include "kernel/codes.h"
#include "layer/layers.h"

int ech_layer_max_pool(ech_block *block, int x, const ech_filter *at)
{
    const ech_shape *shape = &block->value.at[x].shape;
    ech_shape out = ech_layer_filtered(shape, at, shape->size[3]);
    ech_node *node = ech_block_node(block, &ech_layer_row_max_pool, at, sizeof *at);
    ech_node_in(node, x);
    int y = ech_node_out(block, node, "out", out);
    int chosen = ech_node_out_table(block, node, "chosen", out, ECH_TYPE_FIXED, ECH_U8);
    block->value.at[chosen].places = at->size[0] * at->size[1] <= ECH_CODE_PLACES;
    node->b.out = 2;
    return y;
}

static void max_forward(const ech_call *call)
{
    call->kernels->max_pool_forward(call->context, &call->in[0], call->node->options, &call->out[0],
                                    &call->out[1]);
}

static void max_backward(const ech_call *call)
{
    call->kernels->max_pool_backward(call->context, &call->dout[0], &call->out[1],
                                     call->node->options, &call->din[0]);
}

const ech_layer ech_layer_row_max_pool = {.name = "max_pool",
                                          .forward = max_forward,
                                          .backward_input = max_backward,
                                          .keeps_zeros = true};

int ech_layer_mean_pool(ech_block *block, int x, const ech_filter *at)
{
    const ech_shape *shape = &block->value.at[x].shape;
    ech_shape out = ech_layer_filtered(shape, at, shape->size[3]);
    ech_node *node = ech_block_node(block, &ech_layer_row_mean_pool, at, sizeof *at);
    ech_node_in(node, x);
    return ech_node_out(block, node, "out", out);
}

int ech_layer_global_pool(ech_block *block, int x)
{
    const ech_shape *shape = &block->value.at[x].shape;
    const ech_filter all = {{shape->size[1], shape->size[2]}, {1, 1}, {0, 0}};
    return ech_layer_mean_pool(block, x, &all);
}

static void mean_forward(const ech_call *call)
{
    call->kernels->mean_pool_forward(call->context, &call->in[0], call->node->options,
                                     &call->out[0]);
}

static void mean_backward(const ech_call *call)
{
    call->kernels->mean_pool_backward(call->context, &call->dout[0], call->node->options,
                                      &call->din[0]);
}

const ech_layer ech_layer_row_mean_pool = {
    .name = "mean_pool", .forward = mean_forward, .backward_input = mean_backward};

/* ---- (B,H,W,C) -> (B,1,C H W), the order of PyTorch, whose channels come first ---- */

int ech_layer_flatten(ech_block *block, int x)
{
    const ech_shape *shape = &block->value.at[x].shape;
    int64_t numbers = shape->size[1] * shape->size[2] * shape->size[3];
    return ech_block_add(block, &ech_layer_row_flatten, x, -1, 0,
                         ech_shape_rows(ECH_AXIS_MODEL, numbers));
}

/* Images, (B,H,W,C), by pixels: (B,N,C); and the flat ones, of whose N C numbers each channel's are
 * side by side. */
static void move(const ech_call *call, const ech_tensor *images, const ech_tensor *flat, bool back)
{
    int64_t B = images->shape[0], N = images->shape[1] * images->shape[2], C = images->shape[3];
    ech_tensor x = ech_tensor_view(images->data, images->dtype, 3, (int64_t[]){B, N, C});
    ech_tensor y = ech_tensor_view(flat->data, flat->dtype, 3, (int64_t[]){B, C, N});
    call->kernels->transpose(call->context, back ? &y : &x, back ? &x : &y);
}

static void flatten_forward(const ech_call *call)
{
    move(call, &call->in[0], &call->out[0], false);
}

static void flatten_backward(const ech_call *call)
{
    move(call, &call->din[0], &call->dout[0], true);
}

const ech_layer ech_layer_row_flatten = {.name = "flatten",
                                         .forward = flatten_forward,
                                         .backward_input = flatten_backward,
                                         .keeps_zeros = true};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions, each in its document, of queries or keys. Su et al. 2021, arXiv:2104.09864. The
 * backward is the rotation by the opposite angle.
 */
#include "layer/layers.h"

typedef struct rotary_options {
    const double *frequency; /* (width/2) */
    int64_t width;
    bool neighbours;
    double factor;
} rotary_options;

int ech_layer_rotary(ech_block *block, int x, const ech_rope *rope, int starts)
{
    int64_t D = block->value.at[x].shape.size[3];
    int64_t width = rope->width ? rope->width : D;
    double *frequency = ech_pool_alloc(block->pool, (size_t)(width / 2 + 1) * sizeof *frequency);
    rotary_options options = {frequency, width, rope->neighbours, ech_rope_factor(rope)};
    ech_rope_frequencies(rope, width, frequency);
    ech_node *node = ech_block_node(block, &ech_layer_row_rotary, &options, sizeof options);
    ech_node_in(node, x);
    node->b.in = ech_node_starts(node, starts);
    return ech_node_out(block, node, "out", block->value.at[x].shape);
}

static void forward(const ech_call *call)
{
    const rotary_options *options = call->node->options;
    call->kernels->rotary(call->context, &call->in[0], options->frequency, options->width,
                          options->neighbours, options->factor, &call->rows,
                          ech_optional(&call->in[1]), false, &call->out[0]);
}

static void backward_input(const ech_call *call)
{
    const rotary_options *options = call->node->options;
    call->kernels->rotary(call->context, &call->dout[0], options->frequency, options->width,
                          options->neighbours, options->factor, &call->rows,
                          ech_optional(&call->in[1]), true, &call->din[0]);
}

static size_t scratch(const ech_scratch_query *query)
{
    const ech_shape *shape = &query->block->value.at[query->node->in[0]].shape;
    int64_t dims[] = {query->extent.tokens, shape->size[3]};
    return ech_kernel_scratch(query->kernels, ECH_OP_rotary, query->threads, dims);
}

/* ---- beside numbers without positions (multi-head latent attention; DeepSeek-AI 2024,
 * arXiv:2405.04434, section 2.1.3) ---- */

int ech_layer_rotary_beside(ech_block *block, int x, int y, const ech_rope *rope, int starts)
{
    ech_shape shape = block->value.at[y].shape;
    bool is_shared = block->value.at[x].shape.dims < 4;
    if (is_shared && ech_block_is_sharded(block, shape.axis[2]))
        x = ech_block_whole(block, x, true);
    const ech_shape *from = &block->value.at[x].shape;
    int64_t width = from->size[from->dims - 1];
    double *frequency = ech_pool_alloc(block->pool, (size_t)(width / 2 + 1) * sizeof *frequency);
    rotary_options options = {frequency, width, rope->neighbours, ech_rope_factor(rope)};
    ech_rope_frequencies(rope, width, frequency);
    ech_node *node = ech_block_node(block, &ech_layer_row_rotary_beside, &options, sizeof options);
    ech_node_in(node, x);
    ech_node_in(node, y);
    node->b.in = ech_node_starts(node, starts);
    node->partial_gradient = is_shared && ech_block_gradient_is_partial(block, shape.axis[2]);
    shape.size[3] += width;
    return ech_node_out(block, node, "out", shape);
}

/* Each head's numbers that are rotated (0), and the others (1). */
static ech_tensor part_of(const ech_call *call, const ech_tensor *all, int part)
{
    const rotary_options *options = call->node->options;
    int64_t width = options->width;
    return ech_tensor_narrow(all, 3, part ? width : 0, part ? all->shape[3] - width : width);
}

static void rotate(const ech_call *call, const ech_tensor *x, bool back, const ech_tensor *y)
{
    const rotary_options *options = call->node->options;
    call->kernels->rotary(call->context, x, options->frequency, options->width, options->neighbours,
                          options->factor, &call->rows, ech_optional(&call->in[2]), back, y);
}

/* (B,T,D) as (B,T,H,D): of all heads the same memory. */
static ech_tensor with_heads(const ech_tensor *x, int64_t H)
{
    if (x->dims == 4) return *x;
    ech_tensor y = ech_tensor_view(x->data, x->dtype, 4,
                                   (const int64_t[]){x->shape[0], x->shape[1], H, x->shape[2]});
    for (int d = 0; d < 2; d++) y.stride[d] = x->stride[d];
    y.stride[2] = 0;
    return y;
}

static void beside_forward(const ech_call *call)
{
    const ech_tensor *out = &call->out[0];
    ech_tensor x = with_heads(&call->in[0], out->shape[2]);
    ech_tensor rotated = part_of(call, out, 0), others = part_of(call, out, 1);
    rotate(call, &x, false, &rotated);
    call->kernels->copy(call->context, &call->in[1], &others);
}

static void beside_backward(const ech_call *call)
{
    const ech_tensor *dout = &call->dout[0], *dx = &call->din[0];
    ech_tensor rotated = part_of(call, dout, 0), others = part_of(call, dout, 1);
    if (dx->dims == 3) {
        ech_tensor one = with_heads(dx, 1);
        call->kernels->sum_heads(call->context, &rotated, dx);
        rotate(call, &one, true, &one);
    } else {
        rotate(call, &rotated, true, dx);
    }
    call->kernels->copy(call->context, &others, &call->din[1]);
}

static size_t beside_scratch(const ech_scratch_query *query)
{
    const rotary_options *options = query->node->options;
    int64_t dims[] = {query->extent.tokens, options->width};
    return ech_kernel_scratch(query->kernels, ECH_OP_rotary, query->threads, dims);
}

const ech_layer ech_layer_row_rotary_beside = {.name = "rotary_beside",
                                               .forward = beside_forward,
                                               .backward_input = beside_backward,
                                               .scratch = beside_scratch};

const ech_layer ech_layer_row_rotary = {
    .name = "rotary", .forward = forward, .backward_input = backward_input, .scratch = scratch};

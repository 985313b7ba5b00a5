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

const ech_layer ech_layer_row_rotary = {
    .name = "rotary", .forward = forward, .backward_input = backward_input, .scratch = scratch};

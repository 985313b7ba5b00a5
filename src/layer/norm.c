/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm (Ba et al. 2016, arXiv:1607.06450) and RMSNorm (Zhang and Sennrich 2019,
 * arXiv:1910.07467). B completes the gradients of gain and bias.
 *
 * If an RMSNorm's rows are sharded over tensor ranks (all heads together; OLMo 2, Team OLMo 2024,
 * arXiv:2501.00656, section 3.2), each rank has a part of their mean square, and of its gradient.
 * Both are one number per row, which the ranks sum.
 */
#include "base/status.h"
#include "layer/layers.h"

typedef struct norm_options {
    double eps, offset; /* offset: added to an RMSNorm's gain */
} norm_options;

/* Saves 1 / the standard deviation or root mean square of each row, and with a bias its mean. */
static int add_norm(ech_block *block, const ech_layer *layer, int x, int gain, int bias,
                    norm_options options)
{
    ech_shape shape = block->value.at[x].shape, row = ech_shape_of_rows(&shape);
    /* Each rank would normalize its own shard. */
    ECH_ASSERT(ech_axis_shards(shape.axis[row.dims], block->options.sharding) == 1);
    ech_node *node = ech_block_node(block, layer, &options, sizeof options);
    ech_node_in(node, x);
    ech_node_param(node, gain);
    if (bias >= 0) {
        ech_node_param(node, bias);
        ech_node_keep_wide(block, node, "mean", row);
    }
    ech_node_keep_wide(block, node, "rstd", row);
    node->b = (ech_reads){.in = 1, .keep = (1u << node->keeps) - 1, .param = 1};
    return ech_node_out(block, node, "out", shape);
}

int ech_layer_layernorm(ech_block *block, int x, int gain, int bias, double eps)
{
    return add_norm(block, &ech_layer_row_layernorm, x, gain, bias, (norm_options){eps, 0});
}

/* Adds the sums of squares, and the norm by them. If several ranks have the same columns, each
 * counts for its share of them, in both directions. */
static int add_norm_of_shards(ech_block *block, int x, int gain, norm_options options, int shards)
{
    ech_shape shape = block->value.at[x].shape, row = ech_shape_of_rows(&shape);
    double copies = (double)block->options.sharding.tensor / shards;
    double share = 1 / ((double)shape.size[row.dims] * copies);
    ech_node *node = ech_block_node(block, &ech_layer_row_squares, &share, sizeof share);
    ech_node_in(node, x);
    node->b.in = 1;
    int squares = ech_node_out(block, node, "out", row);
    block->value.at[squares].type = ECH_TYPE_WIDE;
    squares = ech_block_sum_both(block, squares);
    node = ech_block_node(block, &ech_layer_row_rmsnorm_part, &options, sizeof options);
    ech_node_in(node, squares);
    ech_node_in(node, x);
    ech_node_param(node, gain);
    ech_node_keep_wide(block, node, "rstd", row);
    node->b = (ech_reads){.in = 2, .keep = 1, .param = 1};
    node->partial_gradient = true;
    return ech_node_out(block, node, "out", shape);
}

int ech_layer_rmsnorm(ech_block *block, int x, int gain, double offset, double eps)
{
    const ech_shape *shape = &block->value.at[x].shape;
    int shards = ech_axis_shards(shape->axis[shape->dims - 1], block->options.sharding);
    norm_options options = {eps, offset};
    if (shards > 1) return add_norm_of_shards(block, x, gain, options, shards);
    return add_norm(block, &ech_layer_row_rmsnorm, x, gain, -1, options);
}

static void layernorm_forward(const ech_call *call)
{
    const norm_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[0]), y = ech_tensor_matrix(&call->out[0]);
    ech_tensor mean = ech_tensor_flat(&call->keep[0]), rstd = ech_tensor_flat(&call->keep[1]);
    call->kernels->layernorm_forward(call->context, &x, &call->param[0], &call->param[1],
                                     options->eps, &y, &mean, &rstd);
}

static void rmsnorm_forward(const ech_call *call)
{
    const norm_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[0]), y = ech_tensor_matrix(&call->out[0]);
    ech_tensor rstd = ech_tensor_flat(&call->keep[0]);
    call->kernels->rmsnorm_forward(call->context, &x, NULL, &call->param[0], options->offset,
                                   options->eps, &y, &rstd);
}

static void layernorm_backward(const ech_call *call)
{
    ech_tensor x = ech_tensor_matrix(&call->in[0]), dy = ech_tensor_matrix(&call->dout[0]);
    ech_tensor dx = ech_tensor_matrix(&call->din[0]), add = dx;
    ech_tensor mean = ech_tensor_flat(&call->keep[0]), rstd = ech_tensor_flat(&call->keep[1]);
    bool accumulate = call->accumulate[call->dparam[0].data ? 0 : 1];
    add.data = call->add[0].data;
    call->kernels->layernorm_backward(
        call->context, &dy, &x, &call->param[0], &mean, &rstd, ech_optional(&add), &dx, accumulate,
        ech_optional(&call->dparam[0]), ech_optional(&call->dparam[1]));
}

static void rmsnorm_backward(const ech_call *call)
{
    const norm_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[0]), dy = ech_tensor_matrix(&call->dout[0]);
    ech_tensor dx = ech_tensor_matrix(&call->din[0]), add = dx;
    ech_tensor rstd = ech_tensor_flat(&call->keep[0]);
    add.data = call->add[0].data;
    call->kernels->rmsnorm_backward(call->context, &dy, &x, &call->param[0], options->offset, &rstd,
                                    ech_optional(&add), &dx, NULL, call->accumulate[0],
                                    ech_optional(&call->dparam[0]));
}

/* The last input is x. */
static size_t scratch(const ech_scratch_query *query)
{
    if (query->phase != ECH_BACKWARD_INPUT) return 0;
    const ech_shape *shape = &query->block->value.at[query->node->in[query->node->ins - 1]].shape;
    int last = shape->dims - 1;
    int64_t C = ech_axis_local(shape->axis[last], shape->size[last], query->extent.sharding);
    int64_t dims[] = {ech_shape_count(shape, query->extent) / C, C};
    ech_op op = query->node->params > 1 ? ECH_OP_layernorm_backward : ECH_OP_rmsnorm_backward;
    return ech_kernel_scratch(query->kernels, op, query->threads, dims);
}

#define NORM(norm)                                                                                 \
    {                                                                                              \
        .name = #norm, .forward = norm##_forward, .backward_input = norm##_backward,               \
        .scratch = scratch, .fuses_add = true, .finishes_in_b = true, .cheap = true,               \
        .needs_in = ECH_NEED_10_BITS                                                               \
    }

const ech_layer ech_layer_row_layernorm = NORM(layernorm);
const ech_layer ech_layer_row_rmsnorm = NORM(rmsnorm);

/* ---- rows that are sharded over tensor ranks ---- */

static void squares_forward(const ech_call *call)
{
    const double *share = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[0]), y = ech_tensor_flat(&call->out[0]);
    call->kernels->squares_forward(call->context, &x, *share, &y);
}

static void squares_backward(const ech_call *call)
{
    const double *share = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[0]), dy = ech_tensor_flat(&call->dout[0]);
    ech_tensor dx = ech_tensor_matrix(&call->din[0]), add = dx;
    add.data = call->add[0].data;
    call->kernels->squares_backward(call->context, &dy, &x, *share, ech_optional(&add), &dx);
}

const ech_layer ech_layer_row_squares = {.name = "squares",
                                         .forward = squares_forward,
                                         .backward_input = squares_backward,
                                         .needs_in = ECH_NEED_10_BITS,
                                         .fuses_add = true};

static void rmsnorm_part_forward(const ech_call *call)
{
    const norm_options *options = call->node->options;
    ech_tensor squares = ech_tensor_flat(&call->in[0]), x = ech_tensor_matrix(&call->in[1]);
    ech_tensor y = ech_tensor_matrix(&call->out[0]), rstd = ech_tensor_flat(&call->keep[0]);
    call->kernels->rmsnorm_forward(call->context, &x, &squares, &call->param[0], options->offset,
                                   options->eps, &y, &rstd);
}

static void rmsnorm_part_backward(const ech_call *call)
{
    const norm_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[1]), dy = ech_tensor_matrix(&call->dout[0]);
    ech_tensor dx = ech_tensor_matrix(&call->din[1]), dsquares = ech_tensor_flat(&call->din[0]);
    ech_tensor rstd = ech_tensor_flat(&call->keep[0]);
    ECH_ASSERT(!call->add[0].data && !call->add[1].data);
    call->kernels->rmsnorm_backward(call->context, &dy, &x, &call->param[0], options->offset, &rstd,
                                    NULL, &dx, &dsquares, call->accumulate[0],
                                    ech_optional(&call->dparam[0]));
}

const ech_layer ech_layer_row_rmsnorm_part = {.name = "rmsnorm_part",
                                              .forward = rmsnorm_part_forward,
                                              .backward_input = rmsnorm_part_backward,
                                              .scratch = scratch,
                                              .needs_in = ECH_NEED_10_BITS,
                                              .finishes_in_b = true};

/* ---- fused with the residual sum before it: the inputs are its addends, and the sum is the second
 * output ---- */

static void residual_layernorm(const ech_call *call)
{
    const norm_options *options = call->node->options;
    ech_tensor a = ech_tensor_matrix(&call->in[0]), b = ech_tensor_matrix(&call->in[1]);
    ech_tensor y = ech_tensor_matrix(&call->out[0]), x = ech_tensor_matrix(&call->out[1]);
    ech_tensor mean = ech_tensor_flat(&call->keep[0]), rstd = ech_tensor_flat(&call->keep[1]);
    call->kernels->add_layernorm(call->context, &a, &b, &x, &call->param[0], &call->param[1],
                                 options->eps, &y, &mean, &rstd);
}

static void residual_rmsnorm(const ech_call *call)
{
    const norm_options *options = call->node->options;
    ech_tensor a = ech_tensor_matrix(&call->in[0]), b = ech_tensor_matrix(&call->in[1]);
    ech_tensor y = ech_tensor_matrix(&call->out[0]), x = ech_tensor_matrix(&call->out[1]);
    ech_tensor rstd = ech_tensor_flat(&call->keep[0]);
    call->kernels->add_rmsnorm(call->context, &a, &b, &x, &call->param[0], options->offset,
                               options->eps, &y, &rstd);
}

const ech_layer ech_layer_row_residual_layernorm = {.name = "residual_layernorm",
                                                    .forward = residual_layernorm};
const ech_layer ech_layer_row_residual_rmsnorm = {.name = "residual_rmsnorm",
                                                  .forward = residual_rmsnorm};

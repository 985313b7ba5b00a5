/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSNorm. Zhang and Sennrich 2019, arXiv:1910.07467. The gain's gradient is finished in B.
 */
#include "base/status.h"
#include "layer/layers.h"

typedef struct rmsnorm_options {
    double eps;
} rmsnorm_options;

int ech_layer_rmsnorm(ech_block *block, int x, int gain, double eps)
{
    rmsnorm_options options = {eps};
    ech_axis last = block->value.at[x].shape.axis[block->value.at[x].shape.dims - 1];
    ECH_ASSERT(!ech_block_cuts(block, last)); /* each rank would normalize its own shard */
    ech_node *node = ech_block_node(block, &ech_layer_row_rmsnorm, &options, sizeof options);
    ech_node_in(node, x);
    ech_node_param(node, gain);
    ech_node_keep(block, node, "rstd", ech_shape_of_rows(&block->value.at[x].shape));
    node->b = (ech_reads){.in = 1, .keep = 1, .param = 1};
    return ech_node_out(block, node, "out", block->value.at[x].shape);
}

static void forward(const ech_call *call)
{
    const rmsnorm_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[0]), y = ech_tensor_matrix(&call->out[0]);
    ech_tensor rstd = ech_tensor_1d(call->keep[0].data, x.dtype, x.shape[0]);
    call->kernels->rmsnorm_forward(call->context, &x, &call->param[0], options->eps, &y, &rstd);
}

static void backward_input(const ech_call *call)
{
    ech_tensor x = ech_tensor_matrix(&call->in[0]), dy = ech_tensor_matrix(&call->dout[0]);
    ech_tensor dx = ech_tensor_matrix(&call->din[0]), add = dx;
    ech_tensor rstd = ech_tensor_1d(call->keep[0].data, x.dtype, x.shape[0]);
    add.data = call->add[0].data;
    call->kernels->rmsnorm_backward(call->context, &dy, &x, &call->param[0], &rstd,
                                    ech_optional(&add), &dx, call->accumulate[0], &call->dparam[0]);
}

static size_t scratch(const ech_scratch_query *query)
{
    if (query->phase != ECH_BACKWARD_INPUT) return 0;
    const ech_shape *shape = &query->block->value.at[query->node->in[0]].shape;
    int64_t C = shape->size[shape->dims - 1];
    int64_t dims[] = {ech_shape_count(shape, query->extent) / C, C};
    return ech_kernel_scratch(query->kernels, ECH_OP_rmsnorm_backward, query->threads, dims);
}

const ech_layer ech_layer_row_rmsnorm = {.name = "rmsnorm",
                                         .forward = forward,
                                         .backward_input = backward_input,
                                         .scratch = scratch,
                                         .fuses_add = true,
                                         .finishes_in_b = true,
                                         .cheap = true};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear: y (R,out) = x (R,in) Wᵀ + bias, W (out,in) as in PyTorch, or (in,out) as in GPT-2's
 * Conv1D. B: dx = dy W. W: dW = dyᵀ x, dbias = sum of dy's rows. If fused with the following
 * residual sum, F also adds that, as input 1. x may be row shards (ECH_AXIS_ROWS) if neither axis
 * of W is sharded. Sharded over tensor ranks along `out`
 * (column-parallel) it needs the whole x; along `in` (row-parallel) a rank's y is a partial sum.
 */
#include "base/status.h"
#include "layer/layers.h"

typedef struct linear_options {
    bool in_first;
    ech_axis in_axis, out_axis;
    int64_t in, out;  /* unsharded */
    bool partial_sum; /* the inner axis is sharded: y is a partial sum; one rank adds the bias */
} linear_options;

int ech_layer_linear(ech_block *block, int x, int weight, int bias, bool in_first, ech_axis axis,
                     int64_t out)
{
    if (ech_block_is_sharded(block, axis)) x = ech_block_whole(block, x, false);
    const ech_shape *shape = &block->value.at[x].shape;
    bool is_rows = shape->axis[0] == ECH_AXIS_ROWS;
    int last = is_rows ? 1 : 2;
    linear_options options = {in_first, shape->axis[last], axis, 1, out, false};
    for (int i = last; i < shape->dims; i++) options.in *= shape->size[i];
    options.partial_sum = ech_block_is_sharded(block, options.in_axis);
    ech_node *node = ech_block_node(block, &ech_layer_row_linear, &options, sizeof options);
    ech_node_in(node, x);
    ech_node_weights(node, weight, bias);
    node->w.in = 1;
    node->partial_gradient = ech_block_gradient_is_partial(block, axis);
    int y = ech_node_out(block, node, "out",
                         is_rows ? ech_shape_2d(ECH_AXIS_ROWS, 0, axis, out)
                                 : ech_shape_rows(axis, out));
    return options.partial_sum ? ech_block_sum(block, y) : y;
}

static void forward(const ech_call *call)
{
    const linear_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[0]), y = ech_tensor_matrix(&call->out[0]);
    bool adds_bias = !options->partial_sum || call->tensor_index == 0;
    ech_tensor residual = call->in[1];
    if (residual.data) residual = ech_tensor_matrix(&residual);
    call->kernels->matmul(call->context, &x, false, &call->param[0], !options->in_first,
                          adds_bias ? ech_optional(&call->param[1]) : NULL, ech_optional(&residual),
                          &y);
}

static void backward_input(const ech_call *call)
{
    const linear_options *options = call->node->options;
    ech_tensor dy = ech_tensor_matrix(&call->dout[0]), dx = ech_tensor_matrix(&call->din[0]);
    ech_tensor add = call->add[0];
    if (add.data) add = ech_tensor_matrix(&add);
    call->kernels->matmul(call->context, &dy, false, &call->param[0], options->in_first, NULL,
                          ech_optional(&add), &dx);
}

static void backward_weight(const ech_call *call)
{
    const linear_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[0]), dy = ech_tensor_matrix(&call->dout[0]);
    const ech_tensor *a = options->in_first ? &x : &dy, *b = options->in_first ? &dy : &x;
    if (call->dparam[0].data)
        call->kernels->matmul(call->context, a, true, b, false, NULL,
                              call->accumulate[0] ? &call->dparam[0] : NULL, &call->dparam[0]);
    if (call->dparam[1].data)
        call->kernels->bias_backward(call->context, &dy, call->accumulate[1], &call->dparam[1]);
}

/* Rows of this rank's input. */
static int64_t rows_of(const ech_block *block, const ech_node *node, ech_extent extent)
{
    const linear_options *o = node->options;
    return ech_shape_count(&block->value.at[node->in[0]].shape, extent) /
           ech_axis_local(o->in_axis, o->in, extent.sharding);
}

static size_t scratch(const ech_scratch_query *query)
{
    const linear_options *o = query->node->options;
    int64_t R = rows_of(query->block, query->node, query->extent);
    int64_t in = ech_axis_local(o->in_axis, o->in, query->extent.sharding);
    int64_t out = ech_axis_local(o->out_axis, o->out, query->extent.sharding);
    bool bias = query->node->params > 1;
    if (query->phase == ECH_FORWARD)
        return ech_query_matmul(query, R, out, in, false, !o->in_first, bias, query->node->ins > 1);
    size_t most = 0;
    for (int add = 0; add < 2; add++) {
        size_t bytes = query->phase == ECH_BACKWARD_INPUT
                           ? ech_query_matmul(query, R, in, out, false, o->in_first, false, add)
                           : ech_query_matmul(query, o->in_first ? in : out, o->in_first ? out : in,
                                              R, true, false, false, add);
        if (bytes > most) most = bytes;
    }
    if (query->phase == ECH_BACKWARD_INPUT || !bias) return most;
    int64_t dims[] = {R, out};
    size_t bytes = ech_kernel_scratch(query->kernels, ECH_OP_bias_backward, query->threads, dims);
    return bytes > most ? bytes : most;
}

static ech_products products(const ech_block *block, const ech_node *node, ech_extent extent,
                             ech_phase phase)
{
    const linear_options *o = node->options;
    double rows = (double)rows_of(block, node, extent);
    double in = (double)ech_axis_local(o->in_axis, o->in, extent.sharding);
    double out = (double)ech_axis_local(o->out_axis, o->out, extent.sharding);
    if (phase == ECH_BACKWARD_WEIGHT) return (ech_products){out, in, rows, 1};
    bool forward = phase == ECH_FORWARD;
    return (ech_products){rows, forward ? out : in, forward ? in : out, 1};
}

const ech_layer ech_layer_row_linear = {.name = "linear",
                                        .forward = forward,
                                        .backward_input = backward_input,
                                        .backward_weight = backward_weight,
                                        .scratch = scratch,
                                        .products = products,
                                        .needs_in = ECH_NEED_8_BITS,
                                        .fuses_add = true};

/* ---- fused with the following layer ---- */

static size_t scratch_before(const ech_scratch_query *query, ech_op op)
{
    const linear_options *o = query->node->options;
    int64_t dims[] = {query->extent.batch * query->extent.tokens,
                      ech_axis_local(o->out_axis, o->out, query->extent.sharding),
                      ech_axis_local(o->in_axis, o->in, query->extent.sharding),
                      false,
                      !o->in_first,
                      query->node->params > 1,
                      false};
    return ech_kernel_scratch(query->kernels, op, query->threads, dims);
}

/* An activation of one operand; out: its result, and the product where something else reads it. */
#define LAYERS_1(NAME)                                                                             \
    static void before_##NAME(const ech_call *call)                                                \
    {                                                                                              \
        const linear_options *options = call->node->options;                                       \
        ech_tensor x = ech_tensor_matrix(&call->in[0]), y = ech_tensor_matrix(&call->out[0]);      \
        ech_tensor product = y;                                                                    \
        ECH_ASSERT(!options->partial_sum); /* a collective would be between */                     \
        product.data = call->out[1].data;                                                          \
        call->kernels->matmul_##NAME(call->context, &x, false, &call->param[0],                    \
                                     !options->in_first, ech_optional(&call->param[1]),            \
                                     ech_optional(&product), &y);                                  \
    }                                                                                              \
    static size_t scratch_before_##NAME(const ech_scratch_query *query)                            \
    {                                                                                              \
        return scratch_before(query, ECH_OP_matmul_##NAME);                                        \
    }                                                                                              \
    const ech_layer ech_layer_row_linear_##NAME = {.name = "linear_" #NAME,                        \
                                                   .forward = before_##NAME,                       \
                                                   .scratch = scratch_before_##NAME,               \
                                                   .products = products};
#define LAYERS_2(NAME)
#define LAYERS(NAME, name, operands, ...) LAYERS_##operands(name)
ECH_ACTIVATIONS(LAYERS)

const ech_layer ech_layer_row_linear_residual = {
    .name = "linear_residual", .forward = forward, .scratch = scratch, .products = products};

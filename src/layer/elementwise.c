/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers without parameters that work element by element: copy, residual sum, activations, dropout.
 */
#include "layer/layers.h"

/* ---- copy: of a view's columns, so that the rest of its base need not be saved ---- */

int ech_layer_copy(ech_block *block, int x)
{
    return ech_block_add(block, &ech_layer_row_copy, x, -1, 0, block->value.at[x].shape);
}

static void copy_forward(const ech_call *call)
{
    call->kernels->copy(call->context, &call->in[0], &call->out[0]);
}

static void copy_backward(const ech_call *call)
{
    call->kernels->copy(call->context, &call->dout[0], &call->din[0]);
}

const ech_layer ech_layer_row_copy = {
    .name = "copy", .forward = copy_forward, .backward_input = copy_backward};

/* ---- residual ---- */

int ech_layer_residual(ech_block *block, int x, int y)
{
    const ech_shape shape = block->value.at[x].shape;
    if (block->value.at[x].type == block->value.at[y].type)
        return ech_block_add(block, &ech_layer_row_residual, x, y, 0, shape);
    int sum = ech_block_add(block, &ech_layer_row_residual_wide, x, y, 0, shape);
    block->node.at[block->node.n - 1].passes = 1;
    return sum;
}

static void residual_forward(const ech_call *call)
{
    call->kernels->add(call->context, &call->in[0], &call->in[1], &call->out[0]);
}

const ech_layer ech_layer_row_residual = {.name = "residual",
                                          .forward = residual_forward,
                                          .passes_gradient = true,
                                          .inverse = &ech_layer_row_difference};

/* The rows of x as the heads of one token. */
static ech_tensor as_heads(const ech_tensor *x)
{
    ech_tensor rows = ech_tensor_matrix(x);
    return ech_tensor_view(x->data, x->dtype, 4, (int64_t[]){1, 1, rows.shape[0], rows.shape[1]});
}

/* The stream's gradient is passed on unchanged; the branch's is the same, rounded to the branch's
 * type. */
static void narrow_gradient(const ech_call *call)
{
    ech_tensor from = as_heads(&call->dout[0]), to = as_heads(&call->din[1]);
    call->kernels->copy(call->context, &from, &to);
}

const ech_layer ech_layer_row_residual_wide = {.name = "residual_wide",
                                               .forward = residual_forward,
                                               .backward_input = narrow_gradient,
                                               .inverse = &ech_layer_row_difference};

static void difference_forward(const ech_call *call)
{
    call->kernels->subtract(call->context, &call->in[0], &call->in[1], &call->out[0]);
}

const ech_layer ech_layer_row_difference = {.name = "difference", .forward = difference_forward};

/* ---- activations (kernel/activations.h); and B of those with one operand, fused with the sum over
 * rows that is the gradient of the bias, parameter 0 ---- */

static size_t bias_scratch(const ech_scratch_query *query, ech_op op)
{
    const ech_shape *shape = &query->block->value.at[query->node->in[0]].shape;
    int last = shape->dims - 1;
    int64_t N = ech_axis_local(shape->axis[last], shape->size[last], query->extent.sharding);
    int64_t dims[] = {ech_shape_count(shape, query->extent) / N, N};
    return ech_kernel_scratch(query->kernels, op, query->threads, dims);
}

/* What B needs of the input, by layer. */
enum {
    NEEDS_relu = ECH_NEED_SIGN,
    NEEDS_relu2 = ECH_NEED_8_BITS,
    NEEDS_gelu = ECH_NEED_8_BITS,
    NEEDS_gelu_exact = ECH_NEED_8_BITS
};

#define LAYERS_1(NAME)                                                                             \
    static void NAME##_forward(const ech_call *call)                                               \
    {                                                                                              \
        call->kernels->NAME##_forward(call->context, &call->in[0], &call->out[0]);                 \
    }                                                                                              \
    static void NAME##_backward(const ech_call *call)                                              \
    {                                                                                              \
        call->kernels->NAME##_backward(call->context, &call->dout[0], &call->in[0],                \
                                       &call->din[0]);                                             \
    }                                                                                              \
    const ech_layer ech_layer_row_##NAME = {.name = #NAME,                                         \
                                            .forward = NAME##_forward,                             \
                                            .backward_input = NAME##_backward,                     \
                                            .needs_in = (ech_need)NEEDS_##NAME,                    \
                                            .overwrites = 1,                                       \
                                            .renews = true,                                        \
                                            .cheap = true};                                        \
    static void NAME##_bias_backward(const ech_call *call)                                         \
    {                                                                                              \
        ech_tensor dy = ech_tensor_matrix(&call->dout[0]), x = ech_tensor_matrix(&call->in[0]);    \
        ech_tensor dx = ech_tensor_matrix(&call->din[0]);                                          \
        call->kernels->NAME##_backward_bias(call->context, &dy, &x, &dx, call->accumulate[0],      \
                                            &call->dparam[0]);                                     \
    }                                                                                              \
    static size_t NAME##_bias_scratch(const ech_scratch_query *query)                              \
    {                                                                                              \
        return bias_scratch(query, ECH_OP_##NAME##_backward_bias);                                 \
    }                                                                                              \
    const ech_layer ech_layer_row_##NAME##_bias = {.name = #NAME "_bias",                          \
                                                   .backward_input = NAME##_bias_backward,         \
                                                   .scratch = NAME##_bias_scratch,                 \
                                                   .overwrites = 1,                                \
                                                   .finishes_in_b = true};

#define LAYERS_2(NAME)                                                                             \
    static void NAME##_forward(const ech_call *call)                                               \
    {                                                                                              \
        call->kernels->NAME##_forward(call->context, &call->in[0], &call->in[1], &call->out[0]);   \
    }                                                                                              \
    static void NAME##_backward(const ech_call *call)                                              \
    {                                                                                              \
        call->kernels->NAME##_backward(call->context, &call->dout[0], &call->in[0], &call->in[1],  \
                                       &call->din[0], &call->din[1]);                              \
    }                                                                                              \
    const ech_layer ech_layer_row_##NAME = {.name = #NAME,                                         \
                                            .forward = NAME##_forward,                             \
                                            .backward_input = NAME##_backward,                     \
                                            .needs_in = ECH_NEED_8_BITS,                           \
                                            .overwrites = 3,                                       \
                                            .cheap = true};

#define LAYERS(NAME, name, operands, ...) LAYERS_##operands(name)
ECH_ACTIVATIONS(LAYERS)

int ech_activation_operands(ech_activation activation)
{
#define OPERANDS(NAME, name, operands, ...) [ECH_ACTIVATION_##NAME] = operands,
    static const int of[] = {ECH_ACTIVATIONS(OPERANDS)};
    return of[activation];
}

int ech_layer_activation(ech_block *block, ech_activation activation, int x, int up)
{
#define ROW(NAME, name, ...) [ECH_ACTIVATION_##NAME] = &ech_layer_row_##name,
    static const ech_layer *const rows[] = {ECH_ACTIVATIONS(ROW)};
    return ech_block_add(block, rows[activation], x, up, up < 0 ? 1 : 3, block->value.at[x].shape);
}

/* ---- a constant factor ---- */

typedef struct scale_options {
    double factor;
} scale_options;

int ech_layer_scale(ech_block *block, int x, double factor)
{
    if (factor == 1) return x;
    scale_options options = {factor};
    ech_node *node = ech_block_node(block, &ech_layer_row_scale, &options, sizeof options);
    ech_node_in(node, x);
    return ech_node_out_like(block, node, x);
}

static void scale_forward(const ech_call *call)
{
    const scale_options *options = call->node->options;
    call->kernels->scale(call->context, &call->in[0], options->factor, 0, &call->out[0]);
}

static void scale_backward(const ech_call *call)
{
    const scale_options *options = call->node->options;
    call->kernels->scale(call->context, &call->dout[0], options->factor, 0, &call->din[0]);
}

const ech_layer ech_layer_row_scale = {
    .name = "scale", .forward = scale_forward, .backward_input = scale_backward};

/* ---- dropout: Srivastava et al. 2014. The mask is a function of (seed, step, layer, site,
 * element), so nothing is saved: B draws the same mask ---- */

typedef struct dropout_options {
    double p;
    int64_t columns; /* unsharded */
} dropout_options;

int ech_layer_dropout(ech_block *block, int x, double p)
{
    if (p == 0) return x;
    const ech_shape *shape = &block->value.at[x].shape;
    dropout_options options = {p, 1};
    for (int d = shape->axis[0] == ECH_AXIS_ROWS ? 1 : 2; d < shape->dims; d++)
        options.columns *= shape->size[d];
    ech_node *node = ech_block_node(block, &ech_layer_row_dropout, &options, sizeof options);
    ech_node_in(node, x);
    node->site = ECH_SITE_DROPOUT + (uint32_t)block->sites++;
    return ech_node_out_like(block, node, x);
}

static void drop(const ech_call *call, const ech_tensor *from, const ech_tensor *to)
{
    const dropout_options *options = call->node->options;
    ech_dropout dropout = ech_call_dropout(call, options->p, call->node->site);
    ech_tensor x = ech_tensor_matrix(from), y = ech_tensor_matrix(to);
    dropout.columns = options->columns;
    if (x.shape[1] < options->columns) dropout.first_column = call->tensor_index * x.shape[1];
    call->kernels->dropout(call->context, &x, &dropout, ech_call_rows(call), &y);
}

static void dropout_forward(const ech_call *call)
{
    drop(call, &call->in[0], &call->out[0]);
}

static void dropout_backward(const ech_call *call)
{
    drop(call, &call->dout[0], &call->din[0]);
}

const ech_layer ech_layer_row_dropout = {.name = "dropout",
                                         .forward = dropout_forward,
                                         .backward_input = dropout_backward,
                                         .keeps_zeros = true};

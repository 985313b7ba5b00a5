/* SPDX-License-Identifier: Apache-2.0
 *
 * Vocabulary projection joined with the cross-entropy loss. Logits exist for one chunk of rows at a
 * time, in scratch: in training, B computes per chunk the logits, the loss, dx and dW; without a
 * backward, F computes the loss. So neither logits nor their gradient of size (B·T, V) live, and
 * nothing is computed twice.
 */
#include "layer/layers.h"

typedef struct head_options {
    int64_t C, V;
} head_options;

/* Logits of a chunk take about this many bytes, but a chunk is at least CHUNK_ROWS rows. */
enum { CHUNK_BYTES = 4 << 20, CHUNK_ROWS = 128 };

int ech_layer_head_loss(ech_block *block, int x, int targets, int weights, int weight, int64_t V)
{
    head_options options = {block->value.at[x].shape.size[2], V};
    ech_node *node = ech_block_node(block, &ech_layer_row_head_loss, &options, sizeof options);
    ech_node_in(node, x);
    ech_node_in(node, targets);
    ech_node_in(node, weights);
    ech_node_param(node, weight);
    node->b.in = 7;
    ech_shape shape = {.dims = 2, .axis = {ECH_AXIS_BATCH, ECH_AXIS_VOCAB}, .size = {0, V}};
    int logits = ech_node_out(block, node, "logits", shape);
    block->value.at[logits].purposes = 1u << ECH_GENERATE;
    return logits;
}

static int64_t chunk_rows(int64_t R, int64_t V, ech_dtype real)
{
    int64_t rows = CHUNK_BYTES / (V * (int64_t)ech_dtype_bytes(real));
    if (rows < CHUNK_ROWS) rows = CHUNK_ROWS;
    return rows < R ? rows : R;
}

static size_t logits_bytes(int64_t rows, int64_t V, ech_dtype real)
{
    return ((size_t)(rows * V) * ech_dtype_bytes(real) + 63) / 64 * 64;
}

/* The logits and loss of rows [first, first + rows); with `gradient` also dx and dW. */
static void run_chunk(const ech_call *call, ech_kernel_context *context, const ech_tensor *logits,
                      int64_t first, bool gradient)
{
    int64_t rows = logits->shape[0];
    ech_tensor x = ech_tensor_matrix(&call->in[0]);
    ech_tensor targets = ech_tensor_1d((int32_t *)call->in[1].data + first, ECH_I32, rows);
    ech_tensor weights = ech_tensor_1d((float *)call->in[2].data + first, ECH_F32, rows);
    ech_tensor scale = ech_tensor_1d(call->loss_scale, ECH_F64, 1);
    ech_tensor sums = ech_tensor_1d(call->loss_sums, ECH_F64, ECH_LOSS_SUMS);

    x = ech_tensor_rows(&x, first, rows);
    call->kernels->matmul(context, &x, false, &call->param[0], true, NULL, false, logits);
    call->kernels->cross_entropy(context, logits, &targets, &weights, &scale, gradient, &sums);
    if (!gradient) return;

    ech_tensor dx = ech_tensor_matrix(&call->din[0]);
    dx = ech_tensor_rows(&dx, first, rows);
    call->kernels->matmul(context, logits, false, &call->param[0], false, NULL, false, &dx);
    call->kernels->matmul(context, logits, true, &x, false, NULL, first > 0 || call->accumulate[0],
                          &call->dparam[0]);
}

static void run_chunks(const ech_call *call, bool gradient)
{
    const head_options *options = call->node->options;
    int64_t R = call->extent.batch * call->extent.tokens;
    int64_t rows = chunk_rows(R, options->V, call->kernels->dtype);
    size_t own = logits_bytes(rows, options->V, call->kernels->dtype);
    void *scratch = call->context->scratch;
    for (int64_t first = 0; first < R; first += rows) {
        int64_t n = R - first < rows ? R - first : rows;
        ech_tensor logits = ech_tensor_2d(scratch, call->kernels->dtype, n, options->V);
        ech_kernel_context context = *call->context;
        context.scratch = (char *)scratch + own;
        context.scratch_bytes -= own;
        run_chunk(call, &context, &logits, first, gradient);
        call->context->library = context.library; /* opened by a rank's first product */
    }
}

/* Logits (B,V) of the token at call->position of every sample. */
static void generate(const ech_call *call)
{
    const head_options *options = call->node->options;
    for (int64_t b = 0; b < call->extent.batch; b++) {
        ech_tensor x = ech_tensor_matrix(&call->in[0]);
        x = ech_tensor_rows(&x, b * call->extent.tokens + call->position, 1);
        ech_tensor logits = ech_tensor_rows(&call->out[0], b, 1);
        logits.shape[1] = options->V;
        call->kernels->matmul(call->context, &x, false, &call->param[0], true, NULL, false,
                              &logits);
    }
}

static void forward(const ech_call *call)
{
    if (call->purpose == ECH_EVALUATE) run_chunks(call, false);
    if (call->purpose == ECH_GENERATE) generate(call);
}

static void backward_input(const ech_call *call)
{
    run_chunks(call, true);
}

static size_t chunk_scratch(const ech_scratch_query *query, int64_t rows)
{
    const head_options *o = query->node->options;
    int64_t loss[] = {rows, o->V};
    size_t most = ech_kernel_scratch(query->kernels, ECH_OP_cross_entropy, query->threads, loss);
    size_t products[] = {ech_query_matmul(query, rows, o->V, o->C, false, true, false, false),
                         ech_query_matmul(query, rows, o->C, o->V, false, false, false, false),
                         ech_query_matmul(query, o->V, o->C, rows, true, false, false, false),
                         ech_query_matmul(query, o->V, o->C, rows, true, false, false, true)};
    for (int i = 0; i < 4; i++)
        if (products[i] > most) most = products[i];
    return most;
}

static size_t scratch(const ech_scratch_query *query)
{
    const head_options *o = query->node->options;
    if (query->purpose == ECH_GENERATE)
        return ech_query_matmul(query, 1, o->V, o->C, false, true, false, false);
    if (query->purpose == ECH_TRAIN && query->phase == ECH_FORWARD) return 0;
    int64_t R = query->extent.batch * query->extent.tokens;
    int64_t rows = chunk_rows(R, o->V, query->kernels->dtype);
    size_t most = chunk_scratch(query, rows);
    /* The last chunk may be shorter, and other shapes may ask for more. */
    if (R % rows) {
        size_t last = chunk_scratch(query, R % rows);
        if (last > most) most = last;
    }
    return logits_bytes(rows, o->V, query->kernels->dtype) + most;
}

const ech_layer ech_layer_row_head_loss = {.name = "head_loss",
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .scratch = scratch,
                                           .joined = true,
                                           .finishes_in_b = true};

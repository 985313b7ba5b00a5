/* SPDX-License-Identifier: Apache-2.0
 *
 * Vocabulary projection joined with the cross-entropy loss. Logits exist for one chunk of rows at a
 * time, in scratch: in training, B computes per chunk the logits, the loss, dx and dW; without a
 * backward, F computes the loss. So neither logits nor their gradient of size (B·T, V) live, and
 * nothing is computed twice.
 *
 * Of a vocabulary that is shared out over tensor ranks each has the logits of some ids: per chunk the
 * ranks tell each other three numbers a row, and dx is this rank's part of a sum. Shares are padded to
 * one length; the padding takes no part. Shoeybi et al. 2019, "Megatron-LM", section 3.
 */
#include "layer/layers.h"

typedef struct head_options {
    int64_t V;
} head_options;

/* Logits of a chunk take about this many bytes, but a chunk is at least CHUNK_ROWS rows. */
enum { CHUNK_BYTES = 4 << 20, CHUNK_ROWS = 256, ALIGN = 64 };

int ech_layer_head_loss(ech_block *block, int x, int targets, int weights, int weight, int64_t V)
{
    head_options options = {V};
    if (ech_block_cuts(block, ECH_AXIS_VOCAB)) x = ech_block_whole(block, x, true);
    ech_node *node = ech_block_node(block, &ech_layer_row_head_loss, &options, sizeof options);
    ech_node_in(node, x);
    ech_node_in(node, targets);
    ech_node_in(node, weights);
    ech_node_param(node, weight);
    node->b = (ech_reads){.in = 7, .param = 1};
    node->shares_gradient = ech_block_shares_gradient(block, ECH_AXIS_VOCAB);
    ech_shape shape = {.dims = 2, .axis = {ECH_AXIS_BATCH, ECH_AXIS_VOCAB}, .size = {0, V}};
    int logits = ech_node_out(block, node, "logits", shape);
    block->value.at[logits].purposes = 1u << ECH_GENERATE;
    return logits;
}

/* How a rank's share of the vocabulary is worked on: R rows, `rows` at a time, which is the same on all
 * tensor ranks, whatever the last one's share holds. */
typedef struct chunking {
    int64_t R, rows;
    int64_t share;                    /* ids of a share with its padding */
    size_t logits, stats, all, bytes; /* bytes of each part of the scratch, and of them together */
} chunking;

static size_t aligned(int64_t n, size_t bytes)
{
    return ((size_t)n * bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static chunking chunk(const ech_node *node, ech_extent extent, ech_dtype real)
{
    const head_options *options = node->options;
    int t = ech_axis_shares(ECH_AXIS_VOCAB, extent.cut);
    chunking c = {.R = extent.batch * extent.tokens,
                  .share = ech_axis_local(ECH_AXIS_VOCAB, options->V, extent.cut)};
    c.rows = CHUNK_BYTES / (c.share * (int64_t)ech_dtype_bytes(real));
    if (c.rows < CHUNK_ROWS) c.rows = CHUNK_ROWS;
    if (c.rows > c.R) c.rows = c.R;
    c.logits = aligned(c.rows * c.share, ech_dtype_bytes(real));
    c.stats = aligned(c.rows * ECH_LOSS_STATS, sizeof(double));
    c.all = t > 1 ? aligned(t * c.rows * ECH_LOSS_STATS, sizeof(double)) : 0;
    c.bytes = c.logits + c.stats + c.all;
    return c;
}

int ech_head_loss_exchanges(const ech_block *block, const ech_node *node, ech_extent extent,
                            ech_dtype real, int64_t *bytes)
{
    (void)block;
    chunking c = chunk(node, extent, real);
    int64_t others = ech_axis_shares(ECH_AXIS_VOCAB, extent.cut) - 1;
    *bytes = others * c.R * ECH_LOSS_STATS * (int64_t)sizeof(double);
    return others > 0 && c.rows > 0 ? (int)((c.R + c.rows - 1) / c.rows) : 0;
}

/* One call, and its scratch cut up. Ids [first_id, first_id + valid) are this rank's. */
typedef struct head {
    const ech_call *call;
    chunking chunk;
    int64_t first_id, valid;
    ech_tensor weight, dweight, x, dx;
    char *logits, *stats, *all;
    ech_kernel_context context; /* with what is left of the scratch */
} head;

static head open_head(const ech_call *call)
{
    const head_options *options = call->node->options;
    head h = {.call = call, .chunk = chunk(call->node, call->extent, call->kernels->dtype)};
    h.first_id = call->tensor_index * h.chunk.share;
    h.valid = options->V - h.first_id;
    if (h.valid < 0) h.valid = 0;
    if (h.valid > h.chunk.share) h.valid = h.chunk.share;
    h.weight = ech_tensor_rows(&call->param[0], 0, h.valid);
    h.x = ech_tensor_matrix(&call->in[0]);
    if (call->dparam[0].data) {
        h.dweight = ech_tensor_rows(&call->dparam[0], 0, h.valid);
        h.dx = ech_tensor_matrix(&call->din[0]);
    }
    h.context = *call->context;
    h.logits = h.context.scratch;
    h.stats = h.logits + h.chunk.logits;
    h.all = h.stats + h.chunk.stats;
    h.context.scratch = h.logits + h.chunk.bytes;
    h.context.scratch_bytes -= h.chunk.bytes;
    return h;
}

/* From the stats of this rank's share to those of whole rows. */
static ech_status share_stats(const head *h, int64_t rows)
{
    const ech_call *call = h->call;
    if (call->tensor_size <= 1) return ECH_OK;
    size_t bytes = (size_t)rows * ECH_LOSS_STATS * sizeof(double);
    ECH_TRY(call->exchange(call->exchange_context, h->stats, bytes, h->all));
    ech_loss_combine((const double *)(void *)h->all, call->tensor_size, rows,
                     (double *)(void *)h->stats);
    return ECH_OK;
}

/* The logits and loss of rows [first, first + n); with `gradient` also dx and dW. */
static ech_status run_chunk(head *h, int64_t first, int64_t n, bool gradient)
{
    const ech_call *call = h->call;
    const ech_kernels *kernels = call->kernels;
    ech_tensor logits = ech_tensor_2d(h->logits, kernels->dtype, n, h->valid);
    ech_tensor stats = ech_tensor_2d(h->stats, ECH_F64, n, ECH_LOSS_STATS);
    ech_tensor targets = ech_tensor_1d((int32_t *)call->in[1].data + first, ECH_I32, n);
    ech_tensor weights = ech_tensor_1d((float *)call->in[2].data + first, ECH_F32, n);
    ech_tensor scale = ech_tensor_1d(call->loss_scale, ECH_F64, 1);
    ech_tensor sums = ech_tensor_1d(call->loss_sums, ECH_F64, ECH_LOSS_SUMS);
    ech_tensor x = ech_tensor_rows(&h->x, first, n);

    kernels->matmul(&h->context, &x, false, &h->weight, true, NULL, NULL, &logits);
    kernels->loss_statistics(&h->context, &logits, &targets, h->first_id, &stats);
    ECH_TRY(share_stats(h, n));
    kernels->loss_gradient(&h->context, &logits, &targets, &weights, h->first_id, &stats, &scale,
                           gradient, &sums);
    if (!gradient) return ECH_OK;
    ech_tensor dx = ech_tensor_rows(&h->dx, first, n);
    kernels->matmul(&h->context, &logits, false, &h->weight, false, NULL, NULL, &dx);
    kernels->matmul(&h->context, &logits, true, &x, false, NULL,
                    first > 0 || call->accumulate[0] ? &h->dweight : NULL, &h->dweight);
    return ECH_OK;
}

static void run_chunks(const ech_call *call, bool gradient)
{
    head h = open_head(call);
    ech_status status = ECH_OK;
    for (int64_t first = 0; status == ECH_OK && first < h.chunk.R; first += h.chunk.rows) {
        int64_t left = h.chunk.R - first;
        status = run_chunk(&h, first, left < h.chunk.rows ? left : h.chunk.rows, gradient);
    }
    if (gradient && !call->accumulate[0]) {
        ech_tensor padding = ech_tensor_rows(&call->dparam[0], h.valid, h.chunk.share - h.valid);
        call->kernels->fill(&h.context, &padding, 0);
    }
    call->context->library = h.context.library; /* opened by a rank's first product */
    if (status != ECH_OK) *call->status = status;
}

/* Logits (B,V) of the last token of every sample. */
static void generate(const ech_call *call)
{
    ECH_ASSERT(call->tensor_size <= 1);
    ech_tensor rows = ech_tensor_matrix(&call->in[0]);
    for (int64_t b = 0; b < call->extent.batch; b++) {
        ech_tensor x = ech_tensor_rows(&rows, (b + 1) * call->extent.tokens - 1, 1);
        ech_tensor logits = ech_tensor_rows(&call->out[0], b, 1);
        call->kernels->matmul(call->context, &x, false, &call->param[0], true, NULL, NULL, &logits);
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

/* The most that the products of `rows` rows with `ids` ids ask for. */
static size_t product_scratch(const ech_scratch_query *query, int64_t rows, int64_t ids, int64_t C)
{
    size_t most = 0;
    size_t products[] = {ech_query_matmul(query, rows, ids, C, false, true, false, false),
                         ech_query_matmul(query, rows, C, ids, false, false, false, false),
                         ech_query_matmul(query, ids, C, rows, true, false, false, false),
                         ech_query_matmul(query, ids, C, rows, true, false, false, true)};
    for (int i = 0; i < 4; i++)
        if (products[i] > most) most = products[i];
    return most;
}

static size_t scratch(const ech_scratch_query *query)
{
    const head_options *o = query->node->options;
    const ech_shape *x = &query->block->value.at[query->node->in[0]].shape;
    int64_t C = x->size[x->dims - 1];
    if (query->purpose == ECH_GENERATE)
        return ech_query_matmul(query, 1, o->V, C, false, true, false, false);
    chunking c = chunk(query->node, query->extent, query->kernels->dtype);
    if (c.R == 0) return 0;
    /* The last chunk may be shorter, the share of the last rank that has any smaller, and other shapes
     * may ask for more. */
    int64_t rows[] = {c.rows, c.R % c.rows}, ids[] = {c.share, o->V % c.share};
    size_t most = 0;
    for (int i = 0; i < 4; i++) {
        size_t bytes = product_scratch(query, rows[i % 2], ids[i / 2], C);
        if (bytes > most) most = bytes;
    }
    return c.bytes + most;
}

/* In training F does nothing, and B three products. */
static double multiplies(const ech_block *block, const ech_node *node, ech_extent extent,
                         ech_phase phase)
{
    const head_options *o = node->options;
    int64_t x = ech_shape_count(&block->value.at[node->in[0]].shape, extent);
    double product = (double)x * (double)ech_axis_local(ECH_AXIS_VOCAB, o->V, extent.cut);
    return phase == ECH_FORWARD ? 0 : 3 * product;
}

const ech_layer ech_layer_row_head_loss = {.name = "head_loss",
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .scratch = scratch,
                                           .exchanges = ech_head_loss_exchanges,
                                           .multiplies = multiplies,
                                           .joined = true,
                                           .finishes_in_b = true};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Vocabulary projection and cross-entropy loss, a chunk of rows at a time: all chunks' logits share
 * the same memory, one after the other. Neither logits nor their gradient of size (B·T, V) ever
 * exist, and nothing is computed twice. In training B runs the forward of a chunk, turns its logits
 * into their gradient in place, and computes dx and dW from it; without a backward, F computes the
 * loss.
 *
 * If the vocabulary is sharded over tensor ranks, a rank has the logits of some ids: per chunk the
 * ranks gather three numbers per row, and dx is a partial sum. Shards are padded to one length; the
 * padding takes no part. Shoeybi et al. 2019, "Megatron-LM", section 3.
 */
#include "layer/layers.h"
#include "layer/plugged.h"

/* Rows [first, first + n) of a micro-batch's B·T'. */
typedef struct head_options {
    int64_t V, first;
    ech_logits logits;
    const echelon_loss *plugged; /* NULL: the cross-entropy */
    double smoothing;            /* share of all classes in targets, in training */
    bool classes;                /* outside of training, samples whose class is found are counted */
} head_options;

/* Logits of a chunk take about CHUNK_BYTES, but a chunk has at least the device's loss_rows. There
 * are at most MOST_CHUNKS, since each has nodes of its own in plans. */
enum { CHUNK_BYTES = 4 << 20, MOST_CHUNKS = 256 };

static int64_t most_rows(const ech_block_options *options, int64_t V)
{
    int64_t row = ech_axis_local(ECH_AXIS_VOCAB, V, options->sharding) *
                  (int64_t)ech_dtype_bytes(options->wide);
    int64_t most = CHUNK_BYTES / row > options->loss_rows ? CHUNK_BYTES / row : options->loss_rows;
    int64_t even = (options->rows + MOST_CHUNKS - 1) / MOST_CHUNKS;
    return most > even ? most : even;
}

/* ---- the nodes ---- */

typedef struct builder {
    ech_block *block;
    int x, targets, weights, weight;
    int bias;        /* -1: none */
    int64_t V, rows; /* rows: of a chunk; 0: all there are, where nobody says how many */
    ech_logits with;
    const echelon_loss *plugged;
    double smoothing;
    int logits; /* (rows,V): every chunk's */
} builder;

/* (rows,columns), with equal copies on all ranks unless the axis is sharded. */
static ech_shape shape_of(int64_t rows, ech_axis axis, int64_t columns)
{
    return rows ? ech_shape_2d(ECH_AXIS_NONE, rows, axis, columns) : ech_shape_rows(axis, columns);
}

/* Statistics of `rows` rows, for `shards` shards of the vocabulary. */
static ech_shape shape_of_stats(int64_t rows, int shards)
{
    ech_shape one = shape_of(rows, ECH_AXIS_NONE, ECH_LOSS_STATS);
    if (shards == 1) return one;
    ech_shape all = {.dims = one.dims + 1, .axis = {ECH_AXIS_NONE}, .size = {shards}};
    for (int d = 0; d < one.dims; d++) {
        all.axis[d + 1] = one.axis[d];
        all.size[d + 1] = one.size[d];
    }
    return all;
}

static int add_stats(builder *b, ech_node *node, const char *name, int64_t rows, int shards)
{
    int stats = ech_node_out(b->block, node, name, shape_of_stats(rows, shards));
    ech_block_value *value = &b->block->value.at[stats];
    value->role = ECH_ROLE_SCRATCH;
    value->type = ECH_TYPE_FIXED;
    value->dtype = ECH_F64;
    return stats;
}

/* The chunk's logits of all shards of the vocabulary, one after the other. */
static int add_whole(builder *b, ech_node *node, int64_t rows, int shards)
{
    ech_shape one = shape_of(rows, ECH_AXIS_VOCAB, b->V);
    ech_shape all = {.dims = one.dims + 1, .axis = {ECH_AXIS_NONE}, .size = {shards}};
    for (int d = 0; d < one.dims; d++) {
        all.axis[d + 1] = one.axis[d];
        all.size[d + 1] = one.size[d];
    }
    int whole = ech_node_out(b->block, node, "whole", all);
    b->block->value.at[whole].role = ECH_ROLE_SCRATCH;
    b->block->value.at[whole].type = ECH_TYPE_WIDE;
    return whole;
}

static void add_chunk(builder *b, int64_t first, int64_t rows)
{
    ech_block *block = b->block;
    head_options options = {b->V, first, b->with, b->plugged, b->smoothing, b->bias >= 0};
    int shards = ech_axis_shards(ECH_AXIS_VOCAB, block->options.sharding), logits = b->logits;
    if (rows < b->rows)
        logits = ech_block_view(block, logits, 0, shape_of(rows, ECH_AXIS_VOCAB, b->V));

    ech_node *node = ech_block_node(block, &ech_layer_row_head_logits, &options, sizeof options);
    ech_node_in(node, b->x);
    ech_node_in(node, b->targets);
    ech_node_weights(node, b->weight, b->bias);
    node->rows_of = b->x; /* a chunk's logits do not say whose rows they are */
    ech_node_out_in_place(node, logits);
    int stats = add_stats(b, node, "statistics", rows, 1);
    node->b = (ech_reads){.in = 1, .param = 1};
    node->purposes = 1u << ECH_EVALUATE;
    node->partial_gradient = ech_block_gradient_is_partial(block, ECH_AXIS_VOCAB);
    node->is_part = rows < block->options.rows;

    if (shards > 1) {
        node = ech_block_node(block, &ech_layer_row_head_gather, NULL, 0);
        ech_node_in(node, b->plugged ? logits : stats);
        node->purposes = 1u << ECH_EVALUATE;
        stats =
            b->plugged ? add_whole(b, node, rows, shards) : add_stats(b, node, "out", rows, shards);
    }

    node = ech_block_node(block, &ech_layer_row_head_loss, &options, sizeof options);
    ech_node_in(node, logits);
    ech_node_in(node, stats);
    ech_node_in(node, b->targets);
    ech_node_in(node, b->weights);
    node->b.in = 15;
    node->purposes = 1u << ECH_EVALUATE;
}

/* Adds the logits of the next token, of whole rows. */
static int add_next(builder *b)
{
    ech_shape shape = ech_shape_2d(ECH_AXIS_BATCH, 0, ECH_AXIS_VOCAB, b->V);
    head_options options = {b->V, 0, b->with, b->plugged, 0, false};
    ech_node *node = ech_block_node(b->block, &ech_layer_row_head_next, &options, sizeof options);
    ech_node_in(node, b->x);
    ech_node_param(node, b->weight);
    node->purposes = 1u << ECH_GENERATE;
    int logits = ech_node_out(b->block, node, "logits", shape);
    b->block->value.at[logits].purposes = 1u << ECH_GENERATE;
    b->block->value.at[logits].type = ECH_TYPE_WIDE;
    return logits;
}

static void add_chunks(builder *b)
{
    const ech_block_options *options = &b->block->options;
    if (b->rows > most_rows(options, b->V)) b->rows = most_rows(options, b->V);
    b->logits = ech_block_scratch(b->block, "logits", shape_of(b->rows, ECH_AXIS_VOCAB, b->V));
    b->block->value.at[b->logits].type = ECH_TYPE_WIDE;
    int64_t first = 0;
    do {
        int64_t left = options->rows - first;
        add_chunk(b, first, left < b->rows ? left : b->rows);
        first += b->rows;
    } while (first < options->rows);
}

int ech_layer_head_loss(ech_block *block, int x, int targets, int weights, int weight, int64_t V,
                        ech_logits logits, const echelon_loss *plugged)
{
    const ech_block_options *options = &block->options;
    if (ech_block_is_sharded(block, ECH_AXIS_VOCAB)) x = ech_block_whole(block, x, true);
    builder b = {block,
                 x,
                 targets,
                 weights,
                 weight,
                 -1,
                 V,
                 .rows = options->rows,
                 .with = logits,
                 .plugged = plugged};
    add_chunks(&b);
    return add_next(&b);
}

void ech_layer_classes_loss(ech_block *block, int x, int weight, int bias, int64_t V,
                            double smoothing)
{
    ECH_ASSERT(smoothing == 0 || !ech_block_is_sharded(block, ECH_AXIS_VOCAB));
    int targets = ech_block_batch(block, ECH_TARGETS);
    builder b = {block,
                 x,
                 targets,
                 ech_block_batch(block, ECH_WEIGHTS),
                 weight,
                 bias,
                 V,
                 .rows = block->options.rows,
                 .with = {.factor = 1},
                 .smoothing = smoothing};
    add_chunks(&b);
}

/* ---- a chunk ---- */

/* This rank's shard of the vocabulary: ids [first_id, first_id + valid). */
typedef struct vocab_shard {
    int64_t first_id, valid, padded;
} vocab_shard;

static vocab_shard shard_of(const ech_call *call)
{
    const head_options *options = call->node->options;
    vocab_shard s = {.padded = ech_axis_local(ECH_AXIS_VOCAB, options->V, call->extent.sharding)};
    s.first_id = call->tensor_index * s.padded;
    s.valid = options->V - s.first_id;
    if (s.valid < 0) s.valid = 0;
    if (s.valid > s.padded) s.valid = s.padded;
    return s;
}

/* The gradient of n rows of logits, in their place: an operand of products, so of the compute type.
 * Each of its rows begins where the row of logits does. */
static ech_tensor gradient_of(const ech_call *call, const ech_tensor *logits, int64_t n,
                              int64_t valid)
{
    ech_dtype compute = call->kernels->dtype;
    ech_tensor x = ech_tensor_2d(logits->data, compute, n, valid);
    x.stride[0] *= (int64_t)(ech_dtype_bytes(logits->dtype) / ech_dtype_bytes(compute));
    return x;
}

/* The chunk's n rows of a tensor of all rows. */
static ech_tensor rows_of(const ech_call *call, const ech_tensor *x, int64_t n)
{
    const head_options *options = call->node->options;
    ech_tensor matrix = ech_tensor_matrix(x);
    return ech_tensor_rows(&matrix, options->first, n);
}

static ech_tensor numbers_of(const ech_call *call, const ech_tensor *x, int64_t n)
{
    const head_options *options = call->node->options;
    ech_tensor all = ech_tensor_flat(x);
    return ech_tensor_rows(&all, options->first, n);
}

/* Logits become what the softmax reads, where they are. */
static void transform(const ech_call *call, const ech_tensor *logits)
{
    const head_options *o = call->node->options;
    if (o->logits.factor == 1 && !(o->logits.cap > 0)) return;
    call->kernels->scale(call->context, logits, o->logits.factor, o->logits.cap, logits);
}

/* Whether the call's targets are smoothed: other purposes report the plain cross-entropy. */
static bool smooths(const ech_call *call)
{
    const head_options *options = call->node->options;
    return options->smoothing > 0 && call->purpose == ECH_TRAIN;
}

static void logits_forward(const ech_call *call)
{
    const head_options *options = call->node->options;
    const ech_kernels *kernels = call->kernels;
    vocab_shard s = shard_of(call);
    int64_t n = ech_tensor_count(&call->out[1]) / ECH_LOSS_STATS;
    ech_tensor x = rows_of(call, &call->in[0], n), targets = numbers_of(call, &call->in[1], n);
    ech_tensor weight = ech_tensor_rows(&call->param[0], 0, s.valid);
    ech_tensor logits = ech_tensor_2d(call->out[0].data, call->out[0].dtype, n, s.valid);
    ech_tensor stats = ech_tensor_2d(call->out[1].data, ECH_F64, n, ECH_LOSS_STATS);
    ech_tensor all = ech_tensor_flat(&call->out[0]);
    ech_tensor padding = ech_tensor_rows(&all, n * s.valid, n * (s.padded - s.valid));
    kernels->matmul(call->context, &x, false, &weight, true, ech_optional(&call->param[1]), NULL,
                    &logits);
    transform(call, &logits);
    if (padding.shape[0]) kernels->fill(call->context, &padding, 0);
    kernels->loss_statistics(call->context, &logits, &targets, s.first_id, &stats);
    if (smooths(call))
        kernels->smooth_statistics(call->context, &logits, options->smoothing, &stats);
}

static void logits_backward(const ech_call *call)
{
    const ech_kernels *kernels = call->kernels;
    vocab_shard s = shard_of(call);
    int64_t n = ech_tensor_count(&call->dout[0]) / s.padded;
    ech_tensor x = rows_of(call, &call->in[0], n);
    ech_tensor weight = ech_tensor_rows(&call->param[0], 0, s.valid);
    ech_tensor dlogits = gradient_of(call, &call->dout[0], n, s.valid);
    if (call->din[0].data) {
        ech_tensor dx = rows_of(call, &call->din[0], n);
        kernels->matmul(call->context, &dlogits, false, &weight, false, NULL, NULL, &dx);
    }
    if (call->dparam[1].data)
        kernels->bias_backward(call->context, &dlogits, call->accumulate[1], &call->dparam[1]);
    if (!call->dparam[0].data) return;
    ech_tensor dweight = ech_tensor_rows(&call->dparam[0], 0, s.valid);
    kernels->matmul(call->context, &dlogits, true, &x, false, NULL,
                    call->accumulate[0] ? &dweight : NULL, &dweight);
    if (call->accumulate[0]) return;
    ech_tensor padding = ech_tensor_rows(&call->dparam[0], s.valid, s.padded - s.valid);
    kernels->fill(call->context, &padding, 0);
}

/* The most scratch of the products of n rows with `ids` ids. */
static size_t product_scratch(const ech_scratch_query *query, int64_t n, int64_t ids, int64_t C)
{
    bool bias = query->node->params > 1;
    if (query->phase == ECH_FORWARD)
        return ech_query_matmul(query, n, ids, C, false, true, bias, false);
    int64_t dims[] = {n, ids};
    size_t most =
        bias ? ech_kernel_scratch(query->kernels, ECH_OP_bias_backward, query->threads, dims) : 0;
    size_t products[] = {ech_query_matmul(query, n, C, ids, false, false, false, false),
                         ech_query_matmul(query, ids, C, n, true, false, false, false),
                         ech_query_matmul(query, ids, C, n, true, false, false, true)};
    for (int i = 0; i < 3; i++)
        if (products[i] > most) most = products[i];
    return most;
}

static int64_t width_of(const ech_block *block, const ech_node *node)
{
    const ech_shape *x = &block->value.at[node->in[0]].shape;
    return x->size[x->dims - 1];
}

static int64_t count_rows(const ech_block *block, const ech_node *node, ech_extent extent)
{
    return ech_shape_count(&block->value.at[node->out[1]].shape, extent) / ECH_LOSS_STATS;
}

/* The last shard may be smaller, and smaller shapes may need more scratch. */
static size_t logits_scratch(const ech_scratch_query *query)
{
    const head_options *o = query->node->options;
    int64_t C = width_of(query->block, query->node);
    int64_t n = count_rows(query->block, query->node, query->extent);
    int64_t ids = ech_axis_local(ECH_AXIS_VOCAB, o->V, query->extent.sharding);
    size_t even = product_scratch(query, n, ids, C);
    size_t last = o->V % ids ? product_scratch(query, n, o->V % ids, C) : 0;
    return even > last ? even : last;
}

/* Backward: of the inputs, and of the weights if they are trained. */
static ech_products logits_products(const ech_block *block, const ech_node *node, ech_extent extent,
                                    ech_phase phase)
{
    const head_options *o = node->options;
    return (ech_products){(double)count_rows(block, node, extent),
                          (double)ech_axis_local(ECH_AXIS_VOCAB, o->V, extent.sharding),
                          (double)width_of(block, node),
                          phase == ECH_FORWARD ? 1 : node->back + node->trains};
}

const ech_layer ech_layer_row_head_logits = {.name = "head_logits",
                                             .forward = logits_forward,
                                             .backward_input = logits_backward,
                                             .scratch = logits_scratch,
                                             .products = logits_products,
                                             .joined = true,
                                             .finishes_in_b = true};

const ech_layer ech_layer_row_head_gather = {
    .name = "head_gather",
    .exchange = {ECH_COLLECTIVE_ALL_GATHER, ECH_MESH_TENSOR, 0},
    .joined = true};

/* Merges the shards' statistics into statistics of whole rows, in scratch; an unsharded head has
 * these already. */
static ech_tensor combine(const ech_call *call, int64_t n)
{
    ech_tensor own = ech_tensor_2d(call->in[1].data, ECH_F64, n, ECH_LOSS_STATS);
    if (call->tensor_size <= 1) return own;
    ech_tensor parts =
        ech_tensor_view(own.data, ECH_F64, 3, (int64_t[]){call->tensor_size, n, ECH_LOSS_STATS});
    ech_tensor stats = ech_tensor_2d(call->context->scratch, ECH_F64, n, ECH_LOSS_STATS);
    call->kernels->loss_combine(call->context, &parts, &stats);
    return stats;
}

/* The same by a plugin's loss, which gets whole rows. */
static void find_plugged_loss(const ech_call *call, bool turns)
{
    const head_options *options = call->node->options;
    vocab_shard s = shard_of(call);
    int64_t n = ech_tensor_count(&call->in[0]) / s.padded;
    ech_loss_chunk chunk = {.row = options->plugged,
                            .vocabulary = options->V,
                            .padded = s.padded,
                            .first_id = s.first_id,
                            .own = s.valid,
                            .with = &options->logits,
                            .backward = turns};
    chunk.shards = call->tensor_size > 1 ? call->tensor_size : 1;
    chunk.logits = chunk.shards > 1 ? ech_tensor_flat(&call->in[1]) : ech_tensor_flat(&call->in[0]);
    chunk.targets = numbers_of(call, &call->in[2], n);
    chunk.weights = numbers_of(call, &call->in[3], n);
    chunk.sums = ech_tensor_1d(call->loss_sums, ECH_F64, ECH_LOSS_SUMS);
    chunk.scale = ech_tensor_1d(call->loss_factor, ECH_F64, 1);
    chunk.gradient = gradient_of(call, &call->in[0], n, s.valid);
    ech_loss_call_plugged(call, &chunk);
}

/* turns: the logits become their gradient. */
static void find_loss(const ech_call *call, bool turns)
{
    const head_options *options = call->node->options;
    if (options->plugged) {
        find_plugged_loss(call, turns);
        return;
    }
    vocab_shard s = shard_of(call);
    int64_t n = ech_tensor_count(&call->in[0]) / s.padded;
    ech_tensor stats = combine(call, n);
    ech_tensor logits = ech_tensor_2d(call->in[0].data, call->in[0].dtype, n, s.valid);
    ech_tensor targets = numbers_of(call, &call->in[2], n);
    ech_tensor weights = numbers_of(call, &call->in[3], n);
    ech_tensor scale = ech_tensor_1d(call->loss_factor, ECH_F64, 1);
    ech_tensor sums = ech_tensor_1d(call->loss_sums, ECH_F64, ECH_LOSS_SUMS);
    ech_tensor gradient = gradient_of(call, &call->in[0], n, s.valid);
    call->kernels->loss_gradient(call->context, &logits, &targets, &weights, s.first_id, &stats,
                                 &scale, options->logits.factor, options->logits.cap,
                                 turns ? &gradient : NULL, &sums);
    if (turns && smooths(call))
        call->kernels->smooth_gradient(call->context, &targets, &weights, &scale,
                                       options->smoothing, &gradient);
}

static void count_hits(const ech_call *call)
{
    vocab_shard s = shard_of(call);
    int64_t n = ech_tensor_count(&call->in[0]) / s.padded;
    ech_tensor logits = ech_tensor_2d(call->in[0].data, call->in[0].dtype, n, s.valid);
    ech_tensor targets = numbers_of(call, &call->in[2], n);
    ech_tensor weights = numbers_of(call, &call->in[3], n);
    ech_tensor sums = ech_tensor_1d(call->hits, ECH_F64, ECH_HITS);
    call->kernels->class_hits(call->context, &logits, &targets, &weights, &sums);
}

static void loss_forward(const ech_call *call)
{
    const head_options *options = call->node->options;
    find_loss(call, false);
    if (options->classes && call->purpose == ECH_EVALUATE) count_hits(call);
}

static void loss_backward(const ech_call *call)
{
    ECH_ASSERT(call->din[0].data == call->in[0].data);
    find_loss(call, true);
}

static size_t loss_scratch(const ech_scratch_query *query)
{
    int shards = ech_axis_shards(ECH_AXIS_VOCAB, query->extent.sharding);
    const ech_shape *stats = &query->block->value.at[query->node->in[1]].shape;
    const head_options *options = query->node->options;
    if (options->plugged) {
        int64_t rows =
            ech_shape_count(&query->block->value.at[query->node->in[0]].shape, query->extent) /
            ech_axis_local(ECH_AXIS_VOCAB, options->V, query->extent.sharding);
        return ech_loss_plugged_scratch(query->kernels->dtype, rows, options->V);
    }
    if (shards == 1) return 0;
    return (size_t)(ech_shape_count(stats, query->extent) / shards) * sizeof(double);
}

const ech_layer ech_layer_row_head_loss = {.name = "head_loss",
                                           .forward = loss_forward,
                                           .backward_input = loss_backward,
                                           .scratch = loss_scratch,
                                           .joined = true};

/* ---- sampling ---- */

/* Logits (B,V) of the last token of every sample. */
static void next_forward(const ech_call *call)
{
    ECH_ASSERT(call->tensor_size <= 1);
    ech_tensor rows = ech_tensor_matrix(&call->in[0]);
    for (int64_t b = 0; b < call->extent.batch; b++) {
        ech_tensor x = ech_tensor_rows(&rows, (b + 1) * call->extent.tokens - 1, 1);
        ech_tensor logits = ech_tensor_rows(&call->out[0], b, 1);
        call->kernels->matmul(call->context, &x, false, &call->param[0], true, NULL, NULL, &logits);
        transform(call, &logits);
    }
}

static size_t next_scratch(const ech_scratch_query *query)
{
    const ech_shape *logits = &query->block->value.at[query->node->out[0]].shape;
    return ech_query_matmul(query, 1, logits->size[1], width_of(query->block, query->node), false,
                            true, false, false);
}

const ech_layer ech_layer_row_head_next = {
    .name = "head_next", .forward = next_forward, .scratch = next_scratch};

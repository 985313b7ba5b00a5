/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm whose statistics cover the micro-batches that all D replicas work on at the same time
 * (model.norm_sync; synchronized batch norm: Peng et al. 2018, arXiv:1711.07240). Each replica's
 * micro-batch has equally many rows, so mean and variance of all rows follow from the replicas'
 * own. The nodes, in the order of F:
 *
 *     batch_moments   x (B,H,W,C) -> moments (2,C): mean and variance of this replica's rows
 *     gather_moments  (2,C) -> (2D,C), an all-gather over replicas in their order
 *     batch_merge     (2D,C) -> mean, variance (B,C) of all rows, which B reads and R keeps
 *     batch_sync      the norm by these; y, and `sums`, which only has a gradient
 *     sum_gradients   F: nothing; B: an all-reduce of the gradient of `sums`
 *     batch_sums      F: nothing; B: from dy and x, the gradient of `sums`, (2,C) and padding: this
 *                     replica's sums of dy and of dy z, z = (x - mean) / sqrt(variance + eps)
 *
 * So B computes batch_sums, reduces its result, and computes dx in batch_sync. The gradients of
 * gain and bias are this replica's own sums: the reduction of gradients adds the other replicas'.
 */
#include "base/status.h"
#include "layer/batch_norm.h"

/* Further ports. */
enum {
    Y, /* outputs of batch_sync */
    SUMS,
    OWN_SUMS = 0, /* inputs of batch_sums */
    OWN_X,
    OWN_MEAN,
    OWN_VARIANCE
};

static ech_shape rows_of_channels(int64_t rows, int64_t channels)
{
    return ech_shape_2d(ECH_AXIS_NONE, rows, ECH_AXIS_CHANNELS, channels);
}

/* Numbers of the sums (2,C), rounded up so that all replicas reduce equal shards. Replicas then
 * send equally much, as plans assume of ranks that are alike. */
static int64_t padded_sums(int64_t channels, int replicas)
{
    return (2 * channels + replicas - 1) / replicas * replicas;
}

/* The sums (2,C) at the beginning of their padded value. */
static ech_tensor sums_of(const ech_tensor *padded, int64_t channels)
{
    return ech_tensor_2d(padded->data, padded->dtype, 2, channels);
}

static int add_table(ech_block *block, ech_node *node, const char *name, ech_shape shape)
{
    int table = ech_node_out_table(block, node, name, shape, ECH_TYPE_WIDE, ECH_DTYPES);
    node->purposes = block->value.at[table].purposes = ECH_NORM_TRAINING;
    return table;
}

void ech_norm_sync_statistics(ech_block *block, const ech_norm_options *options, int x, int *mean,
                              int *variance)
{
    int64_t C = block->value.at[x].shape.size[3];
    ech_node *node = ech_block_node(block, &ech_layer_row_batch_moments, options, sizeof *options);
    ech_node_in(node, x);
    int own = add_table(block, node, "moments", rows_of_channels(2, C));
    node = ech_block_node(block, &ech_layer_row_gather_moments, NULL, 0);
    ech_node_in(node, own);
    int all = add_table(block, node, "moments", rows_of_channels(2 * options->replicas, C));
    node = ech_block_node(block, &ech_layer_row_batch_merge, NULL, 0);
    ech_node_in(node, all);
    node->purposes = ECH_NORM_TRAINING;
    *mean = ech_norm_statistic(block, node, "mean", C);
    *variance = ech_norm_statistic(block, node, "variance", C);
    block->value.at[*mean].stays = block->value.at[*variance].stays = true;
}

int ech_norm_sync(ech_block *block, const ech_norm_options *options, int x, int mean, int variance)
{
    int64_t C = block->value.at[x].shape.size[3];
    ech_node *node = ech_norm_node(block, &ech_layer_row_batch_sync, options, x, mean, variance);
    /* batch_sums writes their gradients */
    node->frozen = 1u << ECH_NORM_GAIN | 1u << ECH_NORM_BIAS;
    int y = ech_node_out_like(block, node, x);
    int sums = ech_node_out(block, node, "sums",
                            ech_shape_1d(ECH_AXIS_NONE, padded_sums(C, options->replicas)));
    block->value.at[sums].type = ECH_TYPE_WIDE;
    block->value.at[sums].purposes = 0;

    node = ech_block_node(block, &ech_layer_row_sum_gradients, NULL, 0);
    ech_node_in(node, sums);
    ech_node_out_in_place(node, sums);

    node = ech_block_node(block, &ech_layer_row_batch_sums, options, sizeof *options);
    ech_node_in(node, sums);
    ech_node_in(node, x);
    ech_node_in(node, mean);
    ech_node_in(node, variance);
    ech_node_param(node, options->norm.gain);
    ech_node_param(node, options->norm.bias);
    ech_node_out_in_place(node, y);
    node->b.in = 1u << OWN_X | 1u << OWN_MEAN | 1u << OWN_VARIANCE;
    node->constant = 1u << OWN_X;
    node->partial_gradient = true;
    return y;
}

/* ---- statistics ---- */

/* As one group of one sample with all rows. */
static void moments_forward(const ech_call *call)
{
    const ech_tensor x = ech_tensor_matrix(&call->in[0]), *moments = &call->out[0];
    ech_tensor mean = ech_tensor_rows(moments, 0, 1), variance = ech_tensor_rows(moments, 1, 1);
    call->kernels->batch_norm_statistics(call->context, &x, 1, &mean, &variance);
}

static size_t moments_scratch(const ech_scratch_query *query)
{
    return ech_norm_scratch(query, ECH_OP_batch_norm_statistics, 0, 1);
}

const ech_layer ech_layer_row_batch_moments = {
    .name = "batch_moments", .forward = moments_forward, .scratch = moments_scratch};

const ech_layer ech_layer_row_gather_moments = {
    .name = "gather_moments", .exchange = {ECH_COLLECTIVE_ALL_GATHER, ECH_MESH_REPLICAS, 0}};

static void merge_forward(const ech_call *call)
{
    call->kernels->batch_norm_merge(call->context, &call->in[0], &call->out[0], &call->out[1]);
}

const ech_layer ech_layer_row_batch_merge = {.name = "batch_merge", .forward = merge_forward};

/* ---- the norm ---- */

static void sync_backward(const ech_call *call)
{
    const ech_norm_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[ECH_NORM_X]), dy = ech_tensor_matrix(&call->dout[Y]);
    ech_tensor dx = ech_tensor_matrix(&call->din[ECH_NORM_X]);
    ech_tensor sums = sums_of(&call->dout[SUMS], x.shape[1]);
    call->kernels->batch_norm_input(call->context, &dy, &x, &call->in[ECH_NORM_MEAN],
                                    &call->in[ECH_NORM_VARIANCE], &call->param[ECH_NORM_GAIN],
                                    &sums, options->replicas * x.shape[0], options->norm.eps, &dx);
}

const ech_layer ech_layer_row_batch_sync = {.name = "batch_sync",
                                            .forward = ech_norm_forward,
                                            .backward_input = sync_backward,
                                            .needs_in = ECH_NEED_10_BITS,
                                            .overwrites = 1u << ECH_NORM_X,
                                            .renews = true,
                                            .cheap = true};

const ech_layer ech_layer_row_sum_gradients = {
    .name = "sum_gradients",
    .exchange_back = {ECH_COLLECTIVE_ALL_REDUCE, ECH_MESH_REPLICAS, 0},
    .in_place = true};

static void sums_backward(const ech_call *call)
{
    const ech_norm_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[OWN_X]), dy = ech_tensor_matrix(&call->dout[Y]);
    const ech_tensor *padded = &call->din[OWN_SUMS];
    ech_tensor sums = sums_of(padded, x.shape[1]);
    bool accumulate =
        call->accumulate[call->dparam[ECH_NORM_GAIN].data ? ECH_NORM_GAIN : ECH_NORM_BIAS];
    call->kernels->fill(call->context, padded, 0);
    call->kernels->batch_norm_sums(call->context, &dy, &x, &call->in[OWN_MEAN],
                                   &call->in[OWN_VARIANCE], options->norm.eps, &sums, accumulate,
                                   ech_optional(&call->dparam[ECH_NORM_GAIN]),
                                   ech_optional(&call->dparam[ECH_NORM_BIAS]));
}

static size_t sums_scratch(const ech_scratch_query *query)
{
    return query->phase == ECH_BACKWARD_INPUT
               ? ech_norm_scratch(query, ECH_OP_batch_norm_sums, OWN_X, 1)
               : 0;
}

const ech_layer ech_layer_row_batch_sums = {.name = "batch_sums",
                                            .backward_input = sums_backward,
                                            .scratch = sums_scratch,
                                            .needs_in = ECH_NEED_10_BITS,
                                            .finishes_in_b = true};

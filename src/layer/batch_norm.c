/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm (Ioffe and Szegedy 2015, arXiv:1502.03167). In training each group of consecutive
 * samples is normalized by its own statistics, which lie within a micro-batch: so layouts do not
 * change them. With ech_block_options.norm_replicas the group is the micro-batches of all replicas
 * (batch_norm_sync.c).
 *
 * Outside of training the running statistics normalize, which are layer states. A
 * step's commit moves them towards the mean of the statistics of the step's groups, with the
 * variance unbiased, as in PyTorch. Diverging replicas commit by their own groups. B
 * completes the gradients of gain and bias.
 */
#include "layer/batch_norm.h"

#include "base/status.h"

static ech_shape statistics_shape(int64_t channels)
{
    return ech_shape_2d(ECH_AXIS_BATCH, 0, ECH_AXIS_CHANNELS, channels);
}

int ech_norm_statistic(ech_block *block, ech_node *node, const char *name, int64_t channels)
{
    int table = ech_node_out_table(block, node, name, statistics_shape(channels), ECH_TYPE_WIDE,
                                   ECH_DTYPES);
    block->value.at[table].purposes = ECH_NORM_TRAINING;
    return table;
}

static void add_statistics(ech_block *block, const ech_norm_options *options, int x, int *mean,
                           int *variance)
{
    int64_t channels = block->value.at[x].shape.size[3];
    ech_node *node =
        ech_block_node(block, &ech_layer_row_batch_statistics, options, sizeof *options);
    ech_node_in(node, x);
    node->purposes = ECH_NORM_TRAINING;
    *mean = ech_norm_statistic(block, node, "mean", channels);
    *variance = ech_norm_statistic(block, node, "variance", channels);
}

static void add_running(ech_block *block, const ech_norm_options *options, int mean, int variance)
{
    ech_node *node = ech_block_node(block, &ech_layer_row_batch_running, options, sizeof *options);
    ech_node_in(node, mean);
    ech_node_in(node, variance);
    ech_node_param(node, options->norm.running_mean);
    ech_node_param(node, options->norm.running_variance);
    node->purposes = ECH_NORM_TRAINING;
}

ech_node *ech_norm_node(ech_block *block, const ech_layer *layer, const ech_norm_options *options,
                        int x, int mean, int variance)
{
    ech_node *node = ech_block_node(block, layer, options, sizeof *options);
    ech_node_in(node, x);
    ech_node_in(node, mean);
    ech_node_in(node, variance);
    ech_node_param(node, options->norm.gain);
    ech_node_param(node, options->norm.bias);
    ech_node_param(node, options->norm.running_mean);
    ech_node_param(node, options->norm.running_variance);
    node->untrained = 1u << ECH_NORM_RUNNING_MEAN | 1u << ECH_NORM_RUNNING_VARIANCE;
    node->b = (ech_reads){.in = 1u << ECH_NORM_X | 1u << ECH_NORM_MEAN | 1u << ECH_NORM_VARIANCE,
                          .param = 1u << ECH_NORM_GAIN};
    return node;
}

int ech_layer_batch_norm(ech_block *block, int x, const ech_layer_batch_norm_args *norm)
{
    const ech_shape shape = block->value.at[x].shape;
    int D = block->options.norm_replicas;
    const ech_norm_options options = {*norm, shape.size[1] * shape.size[2], D > 1 ? D : 1};
    int mean, variance;
    if (options.replicas > 1) {
        ech_norm_sync_statistics(block, &options, x, &mean, &variance);
        add_running(block, &options, mean, variance);
        return ech_norm_sync(block, &options, x, mean, variance);
    }
    add_statistics(block, &options, x, &mean, &variance);
    add_running(block, &options, mean, variance);
    ech_node *node = ech_norm_node(block, &ech_layer_row_batch_norm, &options, x, mean, variance);
    return ech_node_out_like(block, node, x);
}

/* Consecutive samples with the same statistics. */
static int64_t samples_of(const ech_node *node, ech_extent extent)
{
    const ech_norm_options *options = node->options;
    int64_t samples = options->norm.samples > 0 ? options->norm.samples : extent.batch;
    ECH_ASSERT(extent.batch % samples == 0);
    return samples;
}

size_t ech_norm_scratch(const ech_scratch_query *query, ech_op op, int x, int64_t groups)
{
    const ech_shape *shape = &query->block->value.at[query->node->in[x]].shape;
    int64_t C = shape->size[shape->dims - 1];
    int64_t dims[] = {ech_shape_count(shape, query->extent) / C, C, groups};
    return ech_kernel_scratch(query->kernels, op, query->threads, dims);
}

static size_t scratch_of(const ech_scratch_query *query, ech_op op, int x)
{
    return ech_norm_scratch(query, op, x,
                            query->extent.batch / samples_of(query->node, query->extent));
}

/* ---- statistics of a micro-batch ---- */

static void statistics_forward(const ech_call *call)
{
    ech_tensor x = ech_tensor_matrix(&call->in[0]);
    call->kernels->batch_norm_statistics(call->context, &x, samples_of(call->node, call->extent),
                                         &call->out[0], &call->out[1]);
}

static size_t statistics_scratch(const ech_scratch_query *query)
{
    return scratch_of(query, ECH_OP_batch_norm_statistics, 0);
}

const ech_layer ech_layer_row_batch_statistics = {
    .name = "batch_statistics", .forward = statistics_forward, .scratch = statistics_scratch};

/* ---- their part of a step's ---- */

static void running_forward(const ech_call *call)
{
    const ech_norm_options *options = call->node->options;
    double rows = (double)(samples_of(call->node, call->extent) * options->pixels);
    rows *= options->replicas;
    double share = call->state_share / (double)options->norm.step_samples;
    double unbiased = rows > 1 ? rows / (rows - 1) : 1;
    call->kernels->batch_norm_partial(call->context, &call->in[0], share, call->accumulate[0],
                                      &call->dparam[0]);
    call->kernels->batch_norm_partial(call->context, &call->in[1], share * unbiased,
                                      call->accumulate[1], &call->dparam[1]);
}

const ech_layer ech_layer_row_batch_running = {
    .name = "batch_running", .forward = running_forward, .writes_partials = true};

void ech_layer_batch_norm_commit(const ech_commit *commit)
{
    commit->kernels->batch_norm_commit(commit->context, commit->sum, commit->of->commit_rate,
                                       commit->update, commit->state);
}

/* ---- the norm ---- */

/* The running statistic, as if one sample had all rows. */
static ech_tensor as_sample(const ech_tensor *state)
{
    return ech_tensor_2d(state->data, state->dtype, 1, state->shape[0]);
}

void ech_norm_forward(const ech_call *call)
{
    const ech_norm_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[ECH_NORM_X]), y = ech_tensor_matrix(&call->out[0]);
    ech_tensor mean = call->in[ECH_NORM_MEAN], variance = call->in[ECH_NORM_VARIANCE];
    if (call->purpose != ECH_TRAIN) {
        mean = as_sample(&call->param[ECH_NORM_RUNNING_MEAN]);
        variance = as_sample(&call->param[ECH_NORM_RUNNING_VARIANCE]);
    }
    call->kernels->batch_norm_forward(call->context, &x, &mean, &variance,
                                      &call->param[ECH_NORM_GAIN], &call->param[ECH_NORM_BIAS],
                                      options->norm.eps, &y);
}

static void backward(const ech_call *call)
{
    const ech_norm_options *options = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[ECH_NORM_X]), dy = ech_tensor_matrix(&call->dout[0]);
    ech_tensor dx = ech_tensor_matrix(&call->din[ECH_NORM_X]);
    bool accumulate =
        call->accumulate[call->dparam[ECH_NORM_GAIN].data ? ECH_NORM_GAIN : ECH_NORM_BIAS];
    call->kernels->batch_norm_backward(call->context, &dy, &x, samples_of(call->node, call->extent),
                                       &call->in[ECH_NORM_MEAN], &call->in[ECH_NORM_VARIANCE],
                                       &call->param[ECH_NORM_GAIN], options->norm.eps, &dx,
                                       accumulate, ech_optional(&call->dparam[ECH_NORM_GAIN]),
                                       ech_optional(&call->dparam[ECH_NORM_BIAS]));
}

static size_t scratch(const ech_scratch_query *query)
{
    return query->phase == ECH_BACKWARD_INPUT
               ? scratch_of(query, ECH_OP_batch_norm_backward, ECH_NORM_X)
               : 0;
}

const ech_layer ech_layer_row_batch_norm = {.name = "batch_norm",
                                            .forward = ech_norm_forward,
                                            .backward_input = backward,
                                            .scratch = scratch,
                                            .needs_in = ECH_NEED_10_BITS,
                                            .overwrites = 1u << ECH_NORM_X,
                                            .renews = true,
                                            .finishes_in_b = true,
                                            .cheap = true};

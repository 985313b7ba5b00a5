/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of convolutional networks.
 */
#include "model/images.h"

#include <math.h>

int ech_images_block(ech_images *b, const char *name, int x)
{
    ech_shape shape = {0};
    bool zeros = false;
    if (x >= 0) {
        ech_block_output(b->block, x);
        shape = b->block->value.at[x].shape;
        zeros = ech_block_has_zeros(b->block, x);
    }
    b->block = ech_model_block(b->model, name);
    if (x < 0) return ech_block_batch(b->block, ECH_PIXELS);
    int input = ech_block_input(b->block, "hidden", shape);
    b->block->value.at[input].zeros = zeros;
    return input;
}

static const ech_shape *shape_of(const ech_images *b, int x)
{
    return &b->block->value.at[x].shape;
}

const char *ech_images_name(const ech_images *b, const char *name, const char *what)
{
    return ech_pool_format(b->model->pool, "%s.%s", name, what);
}

static int add_vector(const ech_images *b, const char *name, const char *what, int64_t size,
                      ech_initializer initializer)
{
    return ech_model_vector(b->model, b->block, ech_images_name(b, name, what), ECH_AXIS_CHANNELS,
                            size, initializer);
}

static ech_filter filter_of(ech_images_filter f)
{
    return (ech_filter){{f.size, f.size}, {f.stride, f.stride}, {f.padding, f.padding}};
}

int ech_images_conv(const ech_images *b, const char *name, int x, int64_t channels,
                    ech_images_filter filter, bool bias)
{
    const ech_filter f = filter_of(filter);
    const ech_shape shape = {
        .dims = 4,
        .axis = {ECH_AXIS_CHANNELS, ECH_AXIS_CHANNELS, ECH_AXIS_HEIGHT, ECH_AXIS_WIDTH},
        .size = {channels, shape_of(b, x)->size[3], filter.size, filter.size}};
    double outputs = (double)(channels * filter.size * filter.size);
    int weight = ech_model_matrix(b->model, b->block, ech_images_name(b, name, "weight"), shape,
                                  sqrt(2 / outputs));
    return ech_layer_conv2d(b->block, x, weight,
                            bias ? add_vector(b, name, "bias", channels, ECH_INIT_ZERO) : -1, &f,
                            channels);
}

/* As in PyTorch: added to the variance; the share of a step's statistics in the running ones. */
static const double norm_eps = 1e-5, norm_rate = 0.1;

static int add_running(const ech_images *b, const char *name, const char *what, int64_t channels,
                       ech_initializer initializer)
{
    int state = ech_model_state(b->model, b->block, ech_images_name(b, name, what),
                                ech_shape_1d(ECH_AXIS_CHANNELS, channels),
                                ech_layer_batch_norm_commit, norm_rate);
    b->model->param.at[state].initializer = initializer;
    return state;
}

/* PyTorch has a count of commits for each norm. */
static int add_running_mean(const ech_images *b, const char *name, int64_t channels)
{
    int state = add_running(b, name, "running_mean", channels, ECH_INIT_ZERO);
    b->model->param.at[state].counter = ech_images_name(b, name, "num_batches_tracked");
    return state;
}

int ech_images_norm(const ech_images *b, const char *name, int x)
{
    int64_t channels = shape_of(b, x)->size[3], samples = b->config->model.norm_samples;
    const ech_layer_batch_norm_args norm = {
        .gain = add_vector(b, name, "weight", channels, ECH_INIT_ONE),
        .bias = add_vector(b, name, "bias", channels, ECH_INIT_ZERO),
        .running_mean = add_running_mean(b, name, channels),
        .running_variance = add_running(b, name, "running_var", channels, ECH_INIT_ONE),
        .samples = samples == ECH_AUTO ? 0 : samples,
        .step_samples = b->config->training.global_batch_size,
        .eps = norm_eps};
    return ech_layer_batch_norm(b->block, x, &norm);
}

int ech_images_relu(const ech_images *b, int x)
{
    return ech_layer_activation(b->block, ECH_ACTIVATION_RELU, x, -1);
}

int ech_images_linear(const ech_images *b, const char *name, int x, int64_t out, double std)
{
    int64_t in = shape_of(b, x)->size[2];
    int weight = ech_model_matrix(b->model, b->block, ech_images_name(b, name, "weight"),
                                  ech_shape_2d(ECH_AXIS_NONE, out, ECH_AXIS_MODEL, in), std);
    int bias = ech_model_vector(b->model, b->block, ech_images_name(b, name, "bias"), ECH_AXIS_NONE,
                                out, ECH_INIT_ZERO);
    return ech_layer_linear(b->block, x, weight, bias, false, ECH_AXIS_MODEL, out);
}

/* ---- residual units ---- */

enum { BASIC_CONVS = 2, BOTTLENECK_CONVS = 3, WIDER = 4 };

static int64_t outer_of(const ech_images_unit *unit)
{
    return unit->bottleneck ? WIDER * unit->channels : unit->channels;
}

int ech_images_unit_convs(const ech_images_unit *unit)
{
    return unit->bottleneck ? BOTTLENECK_CONVS : BASIC_CONVS;
}

int ech_images_unit_conv(const ech_images *b, const char *name, int x, const ech_images_unit *unit,
                         int i)
{
    bool narrow = unit->bottleneck && i != 2; /* 1 x 1 */
    bool strides = i == (unit->bottleneck ? 2 : 1);
    const ech_images_filter filter = {narrow ? 1 : 3, strides ? unit->stride : 1, narrow ? 0 : 1};
    return ech_images_conv(b, ech_pool_format(b->model->pool, "%s.conv%d", name, i), x,
                           i == BOTTLENECK_CONVS ? outer_of(unit) : unit->channels, filter, false);
}

int ech_images_preactivated(const ech_images *b, const char *name, int x,
                            const ech_images_unit *unit, bool begun)
{
    for (int i = 1; i <= ech_images_unit_convs(unit); i++) {
        const char *norm = ech_pool_format(b->model->pool, "%s.bn%d", name, i);
        if (i > 1 || !begun) x = ech_images_relu(b, ech_images_norm(b, norm, x));
        x = ech_images_unit_conv(b, name, x, unit, i);
    }
    return x;
}

bool ech_images_unit_projects(const ech_images *b, int x, const ech_images_unit *unit)
{
    return unit->stride > 1 || shape_of(b, x)->size[3] != outer_of(unit);
}

int ech_images_unit_project(const ech_images *b, const char *name, int x,
                            const ech_images_unit *unit)
{
    const ech_images_filter filter = {1, unit->stride, 0};
    return ech_images_conv(b, name, x, outer_of(unit), filter, false);
}

/* ---- the end ---- */

/* Makes the parameter begin uniform within the bound. */
static void begin_uniform(const ech_images *b, int param, double bound)
{
    b->model->param.at[param].initializer = ECH_INIT_UNIFORM;
    b->model->param.at[param].std = bound;
}

void ech_images_classes(const ech_images *b, const char *name, int x, double std)
{
    int64_t classes = b->config->model.num_classes, in = shape_of(b, x)->size[2];
    int weight = ech_model_matrix(b->model, b->block, ech_images_name(b, name, "weight"),
                                  ech_shape_2d(ECH_AXIS_VOCAB, classes, ECH_AXIS_MODEL, in), std);
    int bias = ech_model_vector(b->model, b->block, ech_images_name(b, name, "bias"),
                                ECH_AXIS_VOCAB, classes, ECH_INIT_ZERO);
    if (std == 0) {
        begin_uniform(b, weight, 1 / sqrt((double)in));
        begin_uniform(b, bias, 1 / sqrt((double)in));
    }
    ech_layer_classes_loss(b->block, x, weight, bias, classes, b->config->training.label_smoothing);
    b->model->logits = -1;
}

/* ---- checks ---- */

ech_status ech_images_check_norms(const ech_config *config)
{
    int64_t samples = config->model.norm_samples, micro = config->training.micro_batch_size;
    if (samples == ECH_AUTO || micro == ECH_AUTO || micro % samples == 0) return ECH_OK;
    return ech_config_complain(config, "model.norm_samples",
                               "does not divide training.micro_batch_size = %lld, and a norm's "
                               "samples lie within a micro-batch; %lld would",
                               (long long)micro, (long long)ech_nearest_divisor(micro, samples));
}

ech_status ech_images_check_depth(const ech_config *config, const int *depths, int n)
{
    ECH_FREED_TEXT known = {0};
    for (int i = 0; i < n; i++) {
        if (depths[i] == config->model.weight_layers) return ECH_OK;
        ech_text_append(&known, "%s%d", i == 0 ? "" : i < n - 1 ? ", " : " or ", depths[i]);
    }
    return ech_config_complain(config, "model.weight_layers", "no depth of %s; use %s",
                               ech_family_of(config)->name, known.at);
}

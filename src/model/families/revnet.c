/* SPDX-License-Identifier: Apache-2.0
 *
 * RevNet (Gomez et al. 2017, arXiv:1707.04585) for small images, such as CIFAR's. Two streams of
 * half the channels pass three groups of units: y1 = x1 + F(x2), y2 = x2 + G(y1). F and G are two
 * 3 x 3 convolutions, each after batch norm and ReLU. R computes a unit's inputs from its outputs.
 * The first units of the second and third group halve the images, so they have no inverse: they
 * keep their inputs, which is all that a group keeps. Convolutions of 1 x 1 bring their streams to
 * the new shape, where the authors use mean pools and channels of zeros.
 */
#include "model/images.h"

enum { GROUPS = 3, STREAMS = 2, OF_UNIT = 4, ENDS = 2, LEAST_DEPTH = GROUPS * OF_UNIT + ENDS };

static const ech_images_filter one = {1, 1, 0}, nine = {3, 1, 1};

/* Depths are 2 + 12 n: two convolutions in each of F and G, n units in each group, a convolution
 * before them and the layer of classes. */
static ech_status check(const ech_config *config)
{
    int64_t depth = config->model.weight_layers, per_unit = GROUPS * OF_UNIT;
    int64_t fits = depth < LEAST_DEPTH ? LEAST_DEPTH : depth - (depth - ENDS) % per_unit;
    if (depth != fits)
        return ech_config_complain(config, "model.weight_layers",
                                   "no depth of revnet, whose depths are 2 more than a multiple "
                                   "of 12; %lld would do",
                                   (long long)fits);
    if (config->model.base_channels % STREAMS)
        return ech_config_complain(config, "model.base_channels",
                                   "two streams cannot share an odd number; use %lld",
                                   (long long)config->model.base_channels + 1);
    return ech_images_check_norms(config);
}

/* Of one stream. The paper's RevNet-38 has 32, 64 and 112 channels, RevNet-110 32, 64 and 128. */
static int64_t channels_of(const ech_config *config, int group)
{
    enum { PAPERS = 38 };
    int64_t first = config->model.base_channels / STREAMS;
    if (config->model.weight_layers == PAPERS && group == GROUPS - 1) return first * 7 / 2;
    return first << group;
}

static const char *join(const ech_images *b, const char *at, const char *what)
{
    return ech_pool_format(b->model->pool, "%s.%s", at, what);
}

/* Begins a block, and ends the one before with both streams, which become its inputs. */
static void begin_block(ech_images *b, const char *name, int x[STREAMS])
{
    const ech_shape shape = b->block->value.at[x[1]].shape; /* of either stream */
    ech_block_output(b->block, x[0]);
    x[0] = ech_images_block(b, name, x[1]);
    x[1] = ech_block_input(b->block, "hidden 2", shape);
}

static void build_stem(ech_images *b, int x[STREAMS])
{
    int pixels = ech_images_block(b, "stem", -1);
    for (int s = 0; s < STREAMS; s++) {
        const char *name = ech_pool_format(b->model->pool, "stem.%d", s + 1);
        x[s] = ech_images_conv(b, join(b, name, "conv"), pixels, channels_of(b->config, 0), nine,
                               false);
        x[s] = ech_images_norm(b, join(b, name, "bn"), x[s]);
        x[s] = ech_images_relu(b, x[s]);
    }
}

/* F or G: norm, ReLU and convolution, twice. The first convolution has the stride. */
static int add_residual(const ech_images *b, const char *name, int x, int64_t channels,
                        int64_t stride)
{
    for (int i = 1; i <= 2; i++) {
        ech_images_filter filter = nine;
        const char *norm = ech_pool_format(b->model->pool, "%s.bn%d", name, i);
        const char *conv = ech_pool_format(b->model->pool, "%s.conv%d", name, i);
        if (i == 1) filter.stride = stride;
        x = ech_images_relu(b, ech_images_norm(b, norm, x));
        x = ech_images_conv(b, conv, x, channels, filter, false);
    }
    return x;
}

/* The stream to which F or G is added. */
static int add_shortcut(const ech_images *b, const char *name, int x, int64_t channels,
                        int64_t stride)
{
    ech_images_filter filter = one;
    filter.stride = stride;
    if (stride == 1) return x;
    return ech_images_conv(b, join(b, name, "downsample"), x, channels, filter, false);
}

static void build_unit(ech_images *b, int group, int64_t unit, int x[STREAMS])
{
    const char *at =
        ech_pool_format(b->model->pool, "layer%d.%lld", group + 1, (long long)unit);
    const char *f = join(b, at, "f"), *g = join(b, at, "g");
    int64_t channels = channels_of(b->config, group), stride = group > 0 && unit == 0 ? 2 : 1;
    begin_block(b, at, x);
    if (stride > 1 && b->block->options.invert) {
        b->block->options.invert = false;
        b->block->options.recompute = ECH_RECOMPUTE_FULL;
    }
    int y = add_residual(b, f, x[1], channels, stride);
    x[0] = ech_layer_residual(b->block, add_shortcut(b, f, x[0], channels, stride), y);
    y = add_residual(b, g, x[0], channels, 1);
    x[1] = ech_layer_residual(b->block, add_shortcut(b, g, x[1], channels, stride), y);
}

/* Norms and pools work on channels, so both streams come side by side only after these. */
static void build_classes(ech_images *b, int x[STREAMS])
{
    begin_block(b, "fc", x);
    for (int s = 0; s < STREAMS; s++) {
        const char *norm = ech_pool_format(b->model->pool, "bn%d", s + 1);
        x[s] = ech_images_relu(b, ech_images_norm(b, norm, x[s]));
        x[s] = ech_layer_global_pool(b->block, x[s]);
    }
    int both = ech_layer_flatten(b->block, ech_layer_pack(b->block, x[0], x[1]));
    ech_images_classes(b, "fc", both, 0);
}

static void build(const ech_config *config, ech_model *model)
{
    ech_images b = {.config = config, .model = model};
    int64_t units = (config->model.weight_layers - ENDS) / (GROUPS * OF_UNIT);
    int x[STREAMS];
    build_stem(&b, x);
    for (int group = 0; group < GROUPS; group++)
        for (int64_t unit = 0; unit < units; unit++) build_unit(&b, group, unit, x);
    build_classes(&b, x);
}

static const ech_family_row rows[] = {ECH_ROWS_IMAGES,
                                      ECH_ROW_DEPTH,
                                      {"base_channels", "model.base_channels", .initial = "32"},
                                      ECH_ROWS_END};

const ech_family ech_family_row_revnet = {
    .name = "revnet",
    .help = "RevNet: reversible units of convolutions with batch norm, depth 38, 110 or 2 + 12 n",
    .reads = ECH_IMAGE_KEYS "model.norm_samples",
    .constants = ECH_IMAGE_CONSTANTS " model.reversible=true",
    .defaults = "model.base_channels=32",
    .check = check,
    .build = build,
    .samples = ECH_SAMPLES_OF_images,
    .ours = true,
    .architecture = "RevNet",
    .rows = rows,
    .replaces = "",
    .prefix = "",
    .buffers = "num_batches_tracked"};

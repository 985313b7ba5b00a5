/* SPDX-License-Identifier: Apache-2.0
 *
 * RevNet (Gomez et al. 2017, arXiv:1707.04585) for small images, such as CIFAR's. Two streams of
 * half the channels pass three groups of units: y1 = x1 + F(x2), y2 = x2 + G(y1). F and G are the
 * convolutions of a residual unit (images.h), each after batch norm and ReLU: two, or a
 * bottleneck's three. R computes a unit's inputs from its outputs. Units whose outputs have another
 * shape have no inverse: the first ones of the second and third group, which halve the images, and
 * the first bottleneck. They keep their inputs, which is all that a group keeps. Convolutions of
 * 1 x 1 bring their streams to the new shape, where the authors use mean pools and channels of
 * zeros.
 */
#include "model/images.h"

/* Weight layers of a unit in each of the groups, and besides units: the stem, and the classes. */
enum { GROUPS = 3, STREAMS = 2, ENDS = 2, BASIC = 4 * GROUPS, BOTTLENECK = 6 * GROUPS };

static const ech_images_filter stem = {3, 1, 1};

/* Units of a group; 0: there is no such depth. Depths 2 + 12 n have n units with two convolutions
 * in each of F and G; other depths 2 + 18 n have n units of bottlenecks. */
static int64_t units_of(int64_t depth, bool *bottleneck)
{
    int64_t inner = depth - ENDS;
    *bottleneck = inner % BASIC != 0;
    if (inner < BASIC || inner % (*bottleneck ? BOTTLENECK : BASIC) != 0) return 0;
    return inner / (*bottleneck ? BOTTLENECK : BASIC);
}

static ech_status check(const ech_config *config)
{
    enum { LEAST_DEPTH = ENDS + BASIC };
    bool bottleneck;
    int64_t depth = config->model.weight_layers, fits = depth;
    while (fits > LEAST_DEPTH && units_of(fits, &bottleneck) == 0) fits--;
    if (units_of(depth, &bottleneck) == 0)
        return ech_config_complain(config, "model.weight_layers",
                                   "no depth of revnet, whose depths are 2 + 12 n and 2 + 18 n; "
                                   "%lld would do",
                                   (long long)(fits > LEAST_DEPTH ? fits : LEAST_DEPTH));
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
        x[s] = ech_images_conv(b, ech_images_name(b, name, "conv"), pixels,
                               channels_of(b->config, 0), stem, false);
        x[s] = ech_images_norm(b, ech_images_name(b, name, "bn"), x[s]);
        x[s] = ech_images_relu(b, x[s]);
    }
}

/* The stream to which F or G is added, in the shape of its outputs. */
static int add_shortcut(const ech_images *b, const char *name, int x, const ech_images_unit *unit)
{
    if (!ech_images_unit_projects(b, x, unit)) return x;
    return ech_images_unit_project(b, ech_images_name(b, name, "downsample"), x, unit);
}

/* The stream `to` after F or G of the stream `of` is added, whose first convolution with a stride
 * has `stride`: G reads a stream that F has halved. */
static int add_residual(const ech_images *b, const char *name, int to, int of,
                        const ech_images_unit *unit, int64_t stride)
{
    ech_images_unit residual = *unit;
    residual.stride = stride;
    int y = ech_images_preactivated(b, name, of, &residual, false);
    return ech_layer_residual(b->block, add_shortcut(b, name, to, unit), y);
}

static void build_unit(ech_images *b, int group, int64_t i, bool bottleneck, int x[STREAMS])
{
    const char *at = ech_pool_format(b->model->pool, "layer%d.%lld", group + 1, (long long)i);
    const ech_images_unit unit = {.channels = channels_of(b->config, group),
                                  .stride = group > 0 && i == 0 ? 2 : 1,
                                  .bottleneck = bottleneck};
    begin_block(b, at, x);
    if (ech_images_unit_projects(b, x[0], &unit) && b->block->options.invert) {
        b->block->options.invert = false;
        b->block->options.recompute = ECH_RECOMPUTE_FULL;
    }
    x[0] = add_residual(b, ech_images_name(b, at, "f"), x[0], x[1], &unit, unit.stride);
    x[1] = add_residual(b, ech_images_name(b, at, "g"), x[1], x[0], &unit, 1);
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
    bool bottleneck;
    int64_t units = units_of(config->model.weight_layers, &bottleneck);
    int x[STREAMS];
    build_stem(&b, x);
    for (int group = 0; group < GROUPS; group++)
        for (int64_t unit = 0; unit < units; unit++) build_unit(&b, group, unit, bottleneck, x);
    build_classes(&b, x);
}

static const ech_family_row rows[] = {ECH_ROWS_IMAGES,
                                      ECH_ROW_DEPTH,
                                      {"base_channels", "model.base_channels", .initial = "32"},
                                      ECH_ROWS_END};

const ech_family ech_family_row_revnet = {
    .name = "revnet",
    .help = "RevNet: reversible units of convolutions with batch norm, depth 2 + 12 n or 2 + 18 n",
    .reads = ECH_IMAGE_KEYS "model.norm_samples model.norm_sync",
    .constants = ECH_IMAGE_CONSTANTS " model.reversible=true",
    .defaults = "model.base_channels=32",
    .check = check,
    .build = build,
    .architecture = "RevNet",
    .rows = rows,
    ECH_IMAGE_FAMILY,
    .buffers = "num_batches_tracked"};

/* SPDX-License-Identifier: Apache-2.0
 *
 * ResNet (He et al. 2016, arXiv:1512.03385), as in torchvision: four groups of residual units of
 * two 3 x 3 convolutions, or of three with a narrow one in the middle, which has the stride. The
 * stem and each unit are blocks.
 */
#include "model/images.h"

enum { GROUPS = 4, WIDER = 4 };

typedef struct resnet {
    int depth;
    bool narrows; /* units of three convolutions, WIDER times as wide outside */
    int units[GROUPS];
} resnet;

static const resnet kinds[] = {{18, false, {2, 2, 2, 2}},
                               {34, false, {3, 4, 6, 3}},
                               {50, true, {3, 4, 6, 3}},
                               {101, true, {3, 4, 23, 3}},
                               {152, true, {3, 8, 36, 3}}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const ech_images_filter whole_stem = {7, 2, 3}, small_stem = {3, 1, 1}, one = {1, 1, 0},
                               nine = {3, 1, 1};

static ech_status check(const ech_config *config)
{
    int depths[KINDS];
    for (int i = 0; i < KINDS; i++) depths[i] = kinds[i].depth;
    ECH_TRY(ech_images_check_depth(config, depths, KINDS));
    return ech_images_check_norms(config);
}

static ech_images_filter with_stride(ech_images_filter filter, int64_t stride)
{
    filter.stride = stride;
    return filter;
}

/* NAME.convI and NAME.bnI. */
static int add_conv_norm(const ech_images *b, int x, const char *name, int i, int64_t channels,
                         ech_images_filter filter)
{
    ech_pool *pool = b->model->pool;
    x = ech_images_conv(b, ech_pool_format(pool, "%sconv%d", name, i), x, channels, filter, false);
    return ech_images_norm(b, ech_pool_format(pool, "%sbn%d", name, i), x);
}

static int build_stem(ech_images *b)
{
    const ech_filter pool = {{3, 3}, {2, 2}, {1, 1}};
    bool small = b->config->model.small_stem == 1;
    int x = ech_images_block(b, "stem", -1);
    x = add_conv_norm(b, x, "", 1, b->config->model.base_channels, small ? small_stem : whole_stem);
    x = ech_images_relu(b, x);
    return small ? x : ech_layer_max_pool(b->block, x, &pool);
}

/* The other summand: x, or what a convolution of 1 x 1 makes of it. */
static int add_shortcut(const ech_images *b, const char *name, int x, int64_t channels,
                        int64_t stride)
{
    ech_pool *pool = b->model->pool;
    if (stride == 1 && b->block->value.at[x].shape.size[3] == channels) return x;
    x = ech_images_conv(b, ech_pool_format(pool, "%sdownsample.0", name), x, channels,
                        with_stride(one, stride), false);
    return ech_images_norm(b, ech_pool_format(pool, "%sdownsample.1", name), x);
}

static int build_unit(ech_images *b, const resnet *is, int group, int unit, int x)
{
    const char *at = ech_pool_format(b->model->pool, "layer%d.%d", group + 1, unit);
    const char *name = ech_pool_format(b->model->pool, "%s.", at);
    int64_t channels = b->config->model.base_channels << group;
    int64_t outer = is->narrows ? WIDER * channels : channels;
    int64_t stride = group > 0 && unit == 0 ? 2 : 1;
    x = ech_images_block(b, at, x);
    int y = add_conv_norm(b, x, name, 1, channels, is->narrows ? one : with_stride(nine, stride));
    y = add_conv_norm(b, ech_images_relu(b, y), name, 2, channels,
                      is->narrows ? with_stride(nine, stride) : nine);
    if (is->narrows) y = add_conv_norm(b, ech_images_relu(b, y), name, 3, outer, one);
    x = add_shortcut(b, name, x, outer, stride);
    return ech_images_relu(b, ech_layer_residual(b->block, x, y));
}

static void build(const ech_config *config, ech_model *model)
{
    ech_images b = {.config = config, .model = model};
    const resnet *is = kinds;
    while (is->depth != config->model.weight_layers) is++;
    int x = build_stem(&b);
    for (int group = 0; group < GROUPS; group++)
        for (int unit = 0; unit < is->units[group]; unit++) x = build_unit(&b, is, group, unit, x);
    x = ech_images_block(&b, "fc", x);
    x = ech_layer_flatten(b.block, ech_layer_global_pool(b.block, x));
    ech_images_classes(&b, "fc", x, 0);
}

static const ech_family_row rows[] = {ECH_ROWS_IMAGES,
                                      ECH_ROW_DEPTH,
                                      ECH_ROW_BASE_CHANNELS,
                                      {"small_stem", "model.small_stem", .initial = "false"},
                                      ECH_ROWS_END};

const ech_family ech_family_row_resnet = {
    .name = "resnet",
    .help = "ResNet: residual units of convolutions with batch norm, depth 18 to 152",
    .reads = ECH_IMAGE_KEYS "model.norm_samples",
    .constants = ECH_IMAGE_CONSTANTS,
    .check = check,
    .build = build,
    .samples = ECH_SAMPLES_OF_images,
    .ours = true,
    .architecture = "ResNet",
    .rows = rows,
    .replaces = "",
    .prefix = "",
    .buffers = "num_batches_tracked"};

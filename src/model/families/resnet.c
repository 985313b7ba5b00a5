/* SPDX-License-Identifier: Apache-2.0
 *
 * ResNet. The depths of ImageNet's networks (He et al. 2016, arXiv:1512.03385) have torchvision's
 * four groups of residual units. Other depths have three groups, as CIFAR's networks: 2 + 6 n have
 * n units of two convolutions in each group, 2 + 9 n have n bottlenecks. The stem and each unit are
 * blocks.
 *
 * With model.pre_activation (He et al. 2016, arXiv:1603.05027) norms and ReLUs come before
 * convolutions, so no function changes the sum that passes the units. A unit's first norm and ReLU
 * are also before its shortcut if that is a convolution, and in the first unit. The stem has no
 * norm; a norm and a ReLU follow the last unit.
 */
#include "model/images.h"

enum { MOST_GROUPS = 4, SMALL_GROUPS = 3, ENDS = 2, LEAST_DEPTH = 8 };

typedef struct resnet {
    int64_t depth; /* 0: there is none */
    bool bottleneck;
    int64_t units[MOST_GROUPS]; /* 0: there is no such group */
} resnet;

static const resnet kinds[] = {{18, false, {2, 2, 2, 2}},  {34, false, {3, 4, 6, 3}},
                               {50, true, {3, 4, 6, 3}},   {101, true, {3, 4, 23, 3}},
                               {152, true, {3, 8, 36, 3}}, {200, true, {3, 24, 36, 3}}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const ech_images_filter whole_stem = {7, 2, 3}, small_stem = {3, 1, 1};

/* Three groups. Depths 2 + 18 n could have either unit: they have the published networks' one, two
 * convolutions up to 110 layers and bottlenecks above. */
static resnet small_of(int64_t depth)
{
    enum { BASIC = 2 * SMALL_GROUPS, BOTTLENECK = 3 * SMALL_GROUPS, DEEPEST_BASIC = 110 };
    int64_t inner = depth - ENDS;
    bool basic = inner % BASIC == 0, bottleneck = inner % BOTTLENECK == 0;
    if (depth < LEAST_DEPTH || !(basic || bottleneck)) return (resnet){0};
    if (basic && bottleneck) bottleneck = depth > DEEPEST_BASIC;
    int64_t n = inner / (bottleneck ? BOTTLENECK : BASIC);
    return (resnet){depth, bottleneck, {n, n, n}};
}

static resnet resnet_of(int64_t depth)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].depth == depth) return kinds[i];
    return small_of(depth);
}

static ech_status check(const ech_config *config)
{
    int64_t depth = config->model.weight_layers;
    if (resnet_of(depth).depth == depth) return ech_images_check_norms(config);
    while (depth > LEAST_DEPTH && resnet_of(depth).depth == 0) depth--;
    return ech_config_complain(config, "model.weight_layers",
                               "no depth of resnet; use 18, 34, 50, 101, 152 or 200, or another "
                               "2 + 6 n or 2 + 9 n, such as %lld",
                               (long long)(depth > LEAST_DEPTH ? depth : LEAST_DEPTH));
}

static int build_stem(ech_images *b)
{
    const ech_filter pool = {{3, 3}, {2, 2}, {1, 1}};
    bool small = b->config->model.small_stem == 1;
    int x = ech_images_block(b, "stem", -1);
    x = ech_images_conv(b, "conv1", x, b->config->model.base_channels,
                        small ? small_stem : whole_stem, false);
    if (!b->config->model.pre_activation) x = ech_images_relu(b, ech_images_norm(b, "bn1", x));
    return small ? x : ech_layer_max_pool(b->block, x, &pool);
}

/* Norms after convolutions. The shortcut is x, or a convolution of 1 x 1 with a norm. */
static int add_unit(const ech_images *b, const char *name, int x, const ech_images_unit *unit)
{
    int y = x, last = ech_images_unit_convs(unit);
    for (int i = 1; i <= last; i++) {
        y = ech_images_unit_conv(b, name, y, unit, i);
        y = ech_images_norm(b, ech_pool_format(b->model->pool, "%s.bn%d", name, i), y);
        if (i < last) y = ech_images_relu(b, y);
    }
    if (ech_images_unit_projects(b, x, unit)) {
        x = ech_images_unit_project(b, ech_images_name(b, name, "downsample.0"), x, unit);
        x = ech_images_norm(b, ech_images_name(b, name, "downsample.1"), x);
    }
    return ech_images_relu(b, ech_layer_residual(b->block, x, y));
}

static int add_preactivated(const ech_images *b, const char *name, int x,
                            const ech_images_unit *unit, bool first)
{
    bool projects = ech_images_unit_projects(b, x, unit), shares = projects || first;
    if (shares) x = ech_images_relu(b, ech_images_norm(b, ech_images_name(b, name, "bn1"), x));
    int y = ech_images_preactivated(b, name, x, unit, shares);
    if (projects) x = ech_images_unit_project(b, ech_images_name(b, name, "downsample"), x, unit);
    return ech_layer_residual(b->block, x, y);
}

static int build_unit(ech_images *b, const resnet *is, int group, int64_t i, int x)
{
    const char *name = ech_pool_format(b->model->pool, "layer%d.%lld", group + 1, (long long)i);
    const ech_images_unit unit = {.channels = b->config->model.base_channels << group,
                                  .stride = group > 0 && i == 0 ? 2 : 1,
                                  .bottleneck = is->bottleneck};
    x = ech_images_block(b, name, x);
    return b->config->model.pre_activation ? add_preactivated(b, name, x, &unit, group + i == 0)
                                           : add_unit(b, name, x, &unit);
}

static void build(const ech_config *config, ech_model *model)
{
    ech_images b = {.config = config, .model = model};
    const resnet is = resnet_of(config->model.weight_layers);
    int x = build_stem(&b);
    for (int group = 0; group < MOST_GROUPS; group++)
        for (int64_t i = 0; i < is.units[group]; i++) x = build_unit(&b, &is, group, i, x);
    x = ech_images_block(&b, "fc", x);
    if (config->model.pre_activation) x = ech_images_relu(&b, ech_images_norm(&b, "bn", x));
    x = ech_layer_flatten(b.block, ech_layer_global_pool(b.block, x));
    ech_images_classes(&b, "fc", x, 0);
}

static const ech_family_row rows[] = {
    ECH_ROWS_IMAGES,
    ECH_ROW_DEPTH,
    ECH_ROW_BASE_CHANNELS,
    {"small_stem", "model.small_stem", .initial = "false"},
    {"pre_activation", "model.pre_activation", .initial = "false"},
    ECH_ROWS_END};

const ech_family ech_family_row_resnet = {.name = "resnet",
                                          .help = "ResNet: residual units of convolutions with "
                                                  "batch norm, depth 18 to 200, 2 + 6 n or 2 + 9 n",
                                          .reads =
                                              ECH_IMAGE_KEYS "model.norm_samples model.norm_sync",
                                          .constants = ECH_IMAGE_CONSTANTS,
                                          .check = check,
                                          .build = build,
                                          .architecture = "ResNet",
                                          .rows = rows,
                                          ECH_IMAGE_FAMILY,
                                          .buffers = "num_batches_tracked"};

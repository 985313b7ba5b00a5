/* SPDX-License-Identifier: Apache-2.0
 *
 * VGG (Simonyan and Zisserman 2015, arXiv:1409.1556): five groups of 3 x 3 convolutions with ReLUs,
 * each followed by a pool, and two wide layers before the classes. Each of these layers is a block.
 * Images of 224 x 224 pixels have torchvision's shapes; its classifier reads 7 x 7 pixels, ours as
 * many as are left.
 */
#include "model/images.h"

enum { GROUPS = 5, MOST_FACTOR = 8 };
static const int depths[] = {11, 13, 16, 19};
/* Convolutions of each group. */
static const int convolutions[][GROUPS] = {
    {1, 1, 2, 2, 2}, {2, 2, 2, 2, 2}, {2, 2, 3, 3, 3}, {2, 2, 4, 4, 4}};
enum { DEPTHS = sizeof depths / sizeof *depths };
static const ech_images_filter nine = {3, 1, 1};
/* Of a classifier's weights. */
static const double classifier_std = 0.01;

static ech_status check(const ech_config *config)
{
    int64_t least = 1 << GROUPS, H = config->model.image_height, W = config->model.image_width;
    ECH_TRY(ech_images_check_depth(config, depths, DEPTHS));
    if (H >= least && W >= least) return ECH_OK;
    return ech_config_complain(config, H < least ? "model.image_height" : "model.image_width",
                               "five pools leave no pixel of it; use images of at least 32 x 32 "
                               "pixels, or model.architecture = resnet");
}

static const int *find_groups(const ech_config *config)
{
    int i = 0;
    while (depths[i] != config->model.weight_layers) i++;
    return convolutions[i];
}

/* Numbers of torchvision's list `features`, in which ReLUs and pools count. */
static int build_features(ech_images *b)
{
    const ech_filter four = {{2, 2}, {2, 2}, {0, 0}};
    const int *groups = find_groups(b->config);
    int x = -1, number = 0;
    for (int g = 0; g < GROUPS; g++) {
        int64_t factor = 1 << g < MOST_FACTOR ? 1 << g : MOST_FACTOR;
        for (int i = 0; i < groups[g]; i++, number += 2) {
            const char *name = ech_pool_format(b->model->pool, "features.%d", number);
            x = ech_images_block(b, name, x);
            x = ech_images_conv(b, name, x, factor * b->config->model.base_channels, nine, true);
            x = ech_images_relu(b, x);
        }
        x = ech_layer_max_pool(b->block, x, &four);
        number++;
    }
    return x;
}

static void build(const ech_config *config, ech_model *model)
{
    static const char *const wide[] = {"classifier.0", "classifier.3"};
    ech_images b = {.config = config, .model = model};
    int x = build_features(&b);
    for (int i = 0; i < 2; i++) {
        x = ech_images_block(&b, wide[i], x);
        if (i == 0) x = ech_layer_flatten(b.block, x);
        x = ech_images_linear(&b, wide[i], x, config->model.hidden_size, classifier_std);
        x = ech_layer_dropout(b.block, ech_images_relu(&b, x), config->model.classifier_dropout);
    }
    ech_images_classes(&b, "classifier.6", x, classifier_std);
}

static const ech_family_row rows[] = {
    ECH_ROWS_IMAGES,
    ECH_ROW_DEPTH,
    ECH_ROW_BASE_CHANNELS,
    {"hidden_size", "model.hidden_size", .initial = "4096"},
    {"classifier_dropout", "model.classifier_dropout", "0.5", .use = ECH_ROW_MAY_DIFFER},
    ECH_ROWS_END};

const ech_family ech_family_row_vgg = {.name = "vgg",
                                       .help = "VGG: 3 x 3 convolutions and pools, depth 11 to 19",
                                       .reads = ECH_IMAGE_KEYS,
                                       .constants = ECH_IMAGE_CONSTANTS,
                                       .defaults = "model.hidden_size=4096",
                                       .check = check,
                                       .build = build,
                                       .architecture = "Vgg",
                                       .rows = rows,
                                       ECH_IMAGE_FAMILY,
                                       .buffers = ""};

/* SPDX-License-Identifier: Apache-2.0
 *
 * A multilayer perceptron on the pixels of images: num_hidden_layers products with ReLUs,
 * hidden_size wide, and the classes. Each product with a ReLU is a block.
 */
#include <math.h>

#include "model/images.h"

static void build(const ech_config *config, ech_model *model)
{
    ech_images b = {.config = config, .model = model};
    int x = -1;
    for (int64_t i = 0; i < config->model.num_hidden_layers; i++) {
        const char *name = ech_pool_format(model->pool, "layers.%lld", (long long)i);
        x = ech_images_block(&b, name, x);
        if (i == 0) x = ech_layer_flatten(b.block, x);
        double in = (double)b.block->value.at[x].shape.size[2];
        x = ech_images_linear(&b, name, x, config->model.hidden_size, sqrt(2 / in));
        x = ech_images_relu(&b, x);
    }
    ech_images_classes(&b, "head", x, 0);
}

static const ech_family_row rows[] = {
    ECH_ROWS_IMAGES,
    {"hidden_size", "model.hidden_size", .initial = NULL},
    {"num_hidden_layers", "model.num_hidden_layers", .initial = NULL},
    ECH_ROWS_END};

const ech_family ech_family_row_mlp = {.name = "mlp",
                                       .help = "multilayer perceptron on the pixels of images",
                                       .reads = ECH_IMAGE_KEYS,
                                       .constants = ECH_IMAGE_CONSTANTS,
                                       .build = build,
                                       .architecture = "Mlp",
                                       .rows = rows,
                                       ECH_IMAGE_FAMILY,
                                       .buffers = ""};

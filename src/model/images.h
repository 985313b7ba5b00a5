/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/model. What families of convolutional networks are built from. Names of tensors
 * are torchvision's, whose weights are stored as (O,C,KH,KW), as ours are.
 */
#ifndef ECH_MODEL_IMAGES_H
#define ECH_MODEL_IMAGES_H

#include "model/family.h"

typedef struct ech_images {
    const ech_config *config;
    ech_model *model;
    ech_block *block; /* the current one */
} ech_images;

/* Begins a block, and ends the one before with the output x. Returns the new block's input; in the
 * first block x is -1, and the result the batch's pixels. */
int ech_images_block(ech_images *b, const char *name, int x);
/* "NAME.what", in the model's pool. */
const char *ech_images_name(const ech_images *b, const char *name, const char *what);
/* A convolution with the weights NAME.weight, and NAME.bias if `bias`. `size` and padding are equal
 * in both directions. Weights begin as normals of variance 2 / (channels KH KW) (He et al. 2015,
 * arXiv:1502.01852, by outputs), biases as zeros. x (B,H,W,C) -> (B,P,Q,channels). */
typedef struct ech_images_filter {
    int64_t size, stride, padding;
} ech_images_filter;
int ech_images_conv(const ech_images *b, const char *name, int x, int64_t channels,
                    ech_images_filter filter, bool bias);
/* Batch norm, of NAME.weight, NAME.bias, NAME.running_mean and NAME.running_var. */
int ech_images_norm(const ech_images *b, const char *name, int x);
int ech_images_relu(const ech_images *b, int x);
/* A product with bias. x (B,1,in) -> (B,1,out). std: of initial weights. */
int ech_images_linear(const ech_images *b, const char *name, int x, int64_t out, double std);
/* A residual unit's convolutions: two of 3 x 3, the first with the stride; or, of a bottleneck,
 * 1 x 1 to `channels`, 3 x 3 with the stride, and 1 x 1 to four times `channels`. */
typedef struct ech_images_unit {
    int64_t channels, stride;
    bool bottleneck;
} ech_images_unit;
/* The number of convolutions. */
int ech_images_unit_convs(const ech_images_unit *unit);
/* Convolution i, from 1 on, with the weights NAME.convI. */
int ech_images_unit_conv(const ech_images *b, const char *name, int x, const ech_images_unit *unit,
                         int i);
/* All convolutions, each after the norm NAME.bnI and a ReLU. begun: x has passed the first ones. */
int ech_images_preactivated(const ech_images *b, const char *name, int x,
                            const ech_images_unit *unit, bool begun);
/* True if the unit's output has another shape than x. Then its shortcut is a convolution. */
bool ech_images_unit_projects(const ech_images *b, int x, const ech_images_unit *unit);
/* That convolution, of 1 x 1, with the weights NAME.weight. */
int ech_images_unit_project(const ech_images *b, const char *name, int x,
                            const ech_images_unit *unit);
/* The last layer, and the loss of its classes. std 0: weight and bias begin uniform within
 * 1 / sqrt(in), as PyTorch's. x (B,1,in). */
void ech_images_classes(const ech_images *b, const char *name, int x, double std);

/* Errors: micro-batches that groups of norms do not divide. */
ech_status ech_images_check_norms(const ech_config *config);
/* Errors: model.weight_layers is none of the n depths. */
ech_status ech_images_check_depth(const ech_config *config, const int *depths, int n);

#define ECH_IMAGE_CONSTANTS "model.hidden_act=relu"

/* What the families of images have in common. */
#define ECH_IMAGE_FAMILY                                                                           \
    .samples = ECH_SAMPLES_OF_images, .ours = true, .replaces = "", .prefix = ""

/* Rows of config.json. */
#define ECH_ROWS_IMAGES                                                                            \
    ECH_ROW("image_height", "model.image_height", .initial = NULL),                                \
        ECH_ROW("image_width", "model.image_width", .initial = NULL),                              \
        ECH_ROW("num_channels", "model.image_channels", .initial = "3"),                           \
        ECH_ROW("num_classes", "model.num_classes", .initial = NULL)
#define ECH_ROW_DEPTH         ECH_ROW("weight_layers", "model.weight_layers", .initial = NULL)
#define ECH_ROW_BASE_CHANNELS ECH_ROW("base_channels", "model.base_channels", .initial = "64")

#endif

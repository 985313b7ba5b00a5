/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: files of images in other programs' formats, by hand. Image i has the label i mod
 * classes, and byte (i + 7 at) mod 251 at each place.
 */
#ifndef ECH_TESTS_DATA_IMAGES_H
#define ECH_TESTS_DATA_IMAGES_H

#include "data/loaders.h"

#include "data/idx.h"
#include "data/image_file.h"

static inline uint8_t image_byte(int64_t i, int64_t at)
{
    return (uint8_t)((i + 7 * at) % 251);
}

static inline uint8_t image_label(const idx_set *set, int image)
{
    return (uint8_t)(image % set->classes);
}

static inline uint8_t image_pixel(const idx_set *set, int image, int at)
{
    (void)set;
    return image_byte(image, at);
}

/* few-images-idx3-ubyte and few-labels-idx1-ubyte. */
static inline void write_idx(int images, int rows, int columns, int classes)
{
    const idx_set set = {.images = images,
                         .rows = rows,
                         .columns = columns,
                         .classes = classes,
                         .label = image_label,
                         .pixel = image_pixel};
    idx_write(in_scratch("few"), &set);
}

/* Packs a file or folder of the scratch folder as NAME.images. */
static inline ech_status pack(const char *in, const char *name, double valid, int workers,
                              ech_images_count *count)
{
    char from[4200], to[4200];
    snprintf(from, sizeof from, "%s", in_scratch(in));
    snprintf(to, sizeof to, "%s", in_scratch(name));
    const ech_images_options options = {.in = from, .out = to, .valid = valid, .workers = workers};
    return ech_data_import_images(&options, count);
}

#endif

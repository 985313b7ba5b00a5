/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: files of images in other programs' formats, by hand. Image i has the label i mod
 * classes, and byte (i + 7 at) mod 251 at each place.
 */
#ifndef ECH_TESTS_DATA_IMAGES_H
#define ECH_TESTS_DATA_IMAGES_H

#include "data/loaders.h"

#include "data/image_file.h"

static inline uint8_t image_byte(int64_t i, int64_t at)
{
    return (uint8_t)((i + 7 * at) % 251);
}

static inline void put_big(uint8_t *to, uint32_t number)
{
    for (int b = 0; b < 4; b++) to[b] = (uint8_t)(number >> (24 - 8 * b));
}

static inline void write_idx(int images, int rows, int columns, int classes)
{
    int n = rows * columns;
    uint8_t *pixels = ech_calloc((size_t)(16 + images * n), 1);
    uint8_t *labels = ech_calloc((size_t)(8 + images), 1);
    put_big(pixels, 0x803);
    put_big(pixels + 4, (uint32_t)images);
    put_big(pixels + 8, (uint32_t)rows);
    put_big(pixels + 12, (uint32_t)columns);
    put_big(labels, 0x801);
    put_big(labels + 4, (uint32_t)images);
    for (int i = 0; i < images; i++) {
        labels[8 + i] = (uint8_t)(i % classes);
        for (int at = 0; at < n; at++) pixels[16 + i * n + at] = image_byte(i, at);
    }
    write_file("few-images-idx3-ubyte", pixels, (size_t)(16 + images * n));
    write_file("few-labels-idx1-ubyte", labels, (size_t)(8 + images));
    free(pixels);
    free(labels);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: images and labels as IDX files (MNIST's format). A file begins with its type, the
 * number of its images and, for pixels, their rows and columns; each number has four bytes, the
 * highest first.
 */
#ifndef ECH_TESTS_DATA_IDX_H
#define ECH_TESTS_DATA_IDX_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"

enum { IDX_IMAGES = 0x803, IDX_LABELS = 0x801, IDX_IMAGES_HEAD = 16, IDX_LABELS_HEAD = 8 };

typedef struct idx_set {
    int images, rows, columns;
    uint8_t (*label)(const struct idx_set *set, int image);
    uint8_t (*pixel)(const struct idx_set *set, int image, int at); /* at: row * columns + column */
    int classes;
} idx_set;

static inline void idx_put(uint8_t *to, uint32_t number)
{
    for (int b = 0; b < 4; b++) to[b] = (uint8_t)(number >> (24 - 8 * b));
}

static inline void idx_write_file(const char *prefix, const char *kind, uint8_t *bytes, int n)
{
    char path[4300];
    snprintf(path, sizeof path, "%s-%s-ubyte", prefix, kind);
    ECH_ASSERT(ech_file_write(path, (const char *)bytes, (size_t)n) == ECH_OK);
    free(bytes);
}

/* Writes PREFIX-images-idx3-ubyte and PREFIX-labels-idx1-ubyte. */
static inline void idx_write(const char *prefix, const idx_set *set)
{
    int n = set->rows * set->columns;
    uint8_t *pixels = ech_calloc((size_t)(IDX_IMAGES_HEAD + set->images * n), 1);
    uint8_t *labels = ech_calloc((size_t)(IDX_LABELS_HEAD + set->images), 1);
    idx_put(pixels, IDX_IMAGES);
    idx_put(pixels + 4, (uint32_t)set->images);
    idx_put(pixels + 8, (uint32_t)set->rows);
    idx_put(pixels + 12, (uint32_t)set->columns);
    idx_put(labels, IDX_LABELS);
    idx_put(labels + 4, (uint32_t)set->images);
    for (int i = 0; i < set->images; i++) {
        labels[IDX_LABELS_HEAD + i] = set->label(set, i);
        for (int at = 0; at < n; at++)
            pixels[IDX_IMAGES_HEAD + i * n + at] = set->pixel(set, i, at);
    }
    idx_write_file(prefix, "images-idx3", pixels, IDX_IMAGES_HEAD + set->images * n);
    idx_write_file(prefix, "labels-idx1", labels, IDX_LABELS_HEAD + set->images);
}

#endif

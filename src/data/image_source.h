/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: images and their labels in other programs' files, all of one size.
 */
#ifndef ECH_DATA_IMAGE_SOURCE_H
#define ECH_DATA_IMAGE_SOURCE_H

#include "base/memory.h"
#include "data/image_file.h"

typedef struct ech_image_source ech_image_source;

/* A format. Errors of opening and reading name the file and, of a damaged image, its number. */
typedef struct ech_image_format {
    const char *name;
    /* Whether the file or folder is of this format, by its first bytes or its files' names. */
    bool (*is)(const char *path);
    /* Fills files, count, classes and sizes, which are within image_file.h's bounds. */
    ech_status (*open)(const char *path, ech_image_source *out);
    /* Reads image i: its pixels, channels last, and its label. Threads may call it together. */
    ech_status (*read)(const ech_image_source *source, int64_t i, uint8_t *pixels, uint32_t *label);
} ech_image_format;

typedef struct ech_image_part {
    char *path;
    int fd;
    int64_t first; /* its first image's number */
} ech_image_part;

/* A file of one image. */
typedef struct ech_image_named {
    char *path;
    uint32_t label;
} ech_image_named;

struct ech_image_source {
    const ech_image_format *format;
    ECH_LIST(ech_image_named) file; /* of folders of classes */
    ECH_LIST(ech_image_part) part;  /* of IDX: images, labels */
    ECH_LIST(char *) class;
    ech_image_header sizes; /* height, width, channels, classes, count */
};

/* Errors: no format is recognized. Release with ech_image_source_close. */
ech_status ech_image_source_open(const char *path, ech_image_source *out);
void ech_image_source_close(ech_image_source *source); /* accepts {0} */

/* For formats: opens a file as the next part, beginning with image `first`. */
ech_status ech_image_source_add(ech_image_source *source, const char *path, int64_t first,
                                int64_t *bytes);
/* The part with image i. */
const ech_image_part *ech_image_source_part(const ech_image_source *source, int64_t i);

extern const ech_image_format ech_image_format_idx, ech_image_format_cifar, ech_image_format_folder;

#endif

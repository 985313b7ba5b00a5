/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: files of one image, PNG and JPEG. A codec whose library the build lacks refuses
 * its files by name.
 */
#ifndef ECH_DATA_IMAGE_CODEC_H
#define ECH_DATA_IMAGE_CODEC_H

#include <stddef.h>

#include "data/image_file.h"

typedef struct ech_image_codec {
    const char *name;
    const char *endings; /* blank-separated, lower case: ".jpg .jpeg" */
    /* Reads a file's n bytes. *sizes, if its height is 0, gets the image's height, width and
     * channels (1: gray, or 3), which are within bounds. Otherwise they are what the image must
     * have, except that a gray image becomes one of 3 channels. pixels NULL: only the sizes are
     * read. Any number of threads may call it. Errors name the file: damaged; out of bounds; of
     * other sizes. */
    ech_status (*decode)(const char *path, const uint8_t *bytes, size_t n, ech_image_header *sizes,
                         uint8_t *pixels);
} ech_image_codec;

extern const ech_image_codec ech_image_codec_png, ech_image_codec_jpeg;

/* The codec for a file's ending; NULL: it is no image's. */
const ech_image_codec *ech_image_codec_of(const char *name);
/* For codecs: takes or checks an image's sizes. color: it has more than one channel. */
ech_status ech_image_codec_sizes(const char *path, int64_t height, int64_t width, bool color,
                                 ech_image_header *sizes);

#endif

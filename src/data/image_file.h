/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: packed images, a file of records of one size (docs/formats.md). All numbers are
 * little-endian.
 *
 *     header    ech_image_header
 *     names     of the classes, each followed by a NUL; zeros up to header.bytes
 *     records   `count` times: a label (u32), then height x width x channels bytes, channels last
 */
#ifndef ECH_DATA_IMAGE_FILE_H
#define ECH_DATA_IMAGE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "layer/samples.h"

enum { ECH_IMAGE_CHANNELS = 4, ECH_IMAGE_CLASSES = 1000000, ECH_IMAGE_SIDE = 65536 };
/* Numbers of an image, and bytes of a header, at most. */
enum { ECH_IMAGE_NUMBERS = 1 << 28, ECH_IMAGE_HEADER = 64 << 20 };

enum { ECH_IMAGE_VERSION = 1 };

#define ECH_IMAGE_ENDING ".images"
#define ECH_IMAGE_MAGIC  "ECHIMAGE"

typedef struct ech_image_header {
    char magic[8];    /* "ECHIMAGE" */
    uint32_t version; /* 1 */
    uint32_t bytes;   /* of header and names: where records begin */
    uint32_t height, width, channels, classes;
    uint64_t count, hash; /* records; XXH3-64 of all of them */
    /* of each channel's bytes in the training share: pixels are normalized by them */
    float mean[ECH_IMAGE_CHANNELS], deviation[ECH_IMAGE_CHANNELS];
} ech_image_header;

_Static_assert(sizeof(ech_image_header) == 80, "no padding");

/* Bytes of an image, and of a record. */
int64_t ech_image_bytes(const ech_image_header *header);
int64_t ech_image_record_bytes(const ech_image_header *header);
/* Errors, ECH_EINPUT: sizes or classes out of bounds. Call it before allocating by sizes. */
ech_status ech_image_check_sizes(const char *path, const ech_image_header *header);

/* ---- reading ---- */

typedef struct ech_image_file {
    char *path;
    int fd;
    ech_image_header header;
    char *names; /* [classes], each with its NUL */
    /* [channels][256] what a byte becomes, in fp32 */
    float (*normal)[256];
} ech_image_file;

/* Opens and checks a packed file. Errors, ECH_EINPUT, name the file: no packed file, or a newer
 * version; sizes out of bounds; another length than the header states; names without an end. */
ech_status ech_image_file_open(const char *path, ech_image_file **out);
void ech_image_file_close(ech_image_file *file); /* accepts NULL */
ECH_DESTROY_AT(ech_image_file, ech_image_file_close)
/* Reads record i: its label, below header.classes, and its bytes. Errors name file and record. */
ech_status ech_image_file_read(const ech_image_file *file, int64_t i, void *record, int32_t *label);
/* The bytes of a record that was read. */
static inline const uint8_t *ech_image_pixels(const void *record)
{
    return (const uint8_t *)record + sizeof(uint32_t);
}

/* ---- writing ---- */

typedef struct ech_image_writer ech_image_writer;
/* Begins a file. sizes: height, width, channels and classes; names: [classes]. Errors: sizes out of
 * bounds; too many bytes of names. */
ech_status ech_image_writer_create(const char *path, const ech_image_header *sizes,
                                   const char *const *names, ech_image_writer **out);
ech_status ech_image_writer_add(ech_image_writer *writer, uint32_t label, const uint8_t *pixels);
/* Gives the file its name, with mean and deviation of `normal`. Destroys the writer, also on
 * failure. */
ech_status ech_image_writer_finish(ech_image_writer *writer, const ech_image_header *normal);
void ech_image_writer_discard(ech_image_writer *writer); /* accepts NULL */
ECH_DESTROY_AT(ech_image_writer, ech_image_writer_discard)

#endif

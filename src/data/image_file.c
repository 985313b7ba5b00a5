/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading packed images.
 */
#include "data/image_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

int64_t ech_image_bytes(const ech_image_header *header)
{
    return (int64_t)header->height * header->width * header->channels;
}

int64_t ech_image_record_bytes(const ech_image_header *header)
{
    return (int64_t)sizeof(uint32_t) + ech_image_bytes(header);
}

ech_status ech_image_check_sizes(const char *path, const ech_image_header *h)
{
    if (h->height == 0 || h->width == 0 || h->height > ECH_IMAGE_SIDE ||
        h->width > ECH_IMAGE_SIDE || h->channels == 0 || h->channels > ECH_IMAGE_CHANNELS ||
        ech_image_bytes(h) > ECH_IMAGE_NUMBERS)
        ECH_FAIL(ECH_EINPUT,
                 "%s: images of %u x %u pixels and %u channels; sides are 1 to %d, channels 1 to "
                 "%d, and an image has at most %d numbers",
                 path, h->height, h->width, h->channels, ECH_IMAGE_SIDE, ECH_IMAGE_CHANNELS,
                 ECH_IMAGE_NUMBERS);
    if (h->classes == 0 || h->classes > ECH_IMAGE_CLASSES)
        ECH_FAIL(ECH_EINPUT, "%s: %u classes; there are 1 to %d", path, h->classes,
                 ECH_IMAGE_CLASSES);
    return ECH_OK;
}

/* ---- reading ---- */

static ech_status check_header(const char *path, const ech_image_header *h, int64_t bytes)
{
    int64_t records;
    if (memcmp(h->magic, ECH_IMAGE_MAGIC, sizeof h->magic) != 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: not a file of packed images; make one with `echelon data IMAGES OUT`", path);
    if (h->version != ECH_IMAGE_VERSION)
        ECH_FAIL(ECH_EINPUT, "%s: packed images of version %u; this program reads version %d", path,
                 h->version, ECH_IMAGE_VERSION);
    ECH_TRY(ech_image_check_sizes(path, h));
    if (h->bytes < sizeof *h || h->bytes > ECH_IMAGE_HEADER || h->bytes > bytes)
        ECH_FAIL(ECH_EINPUT, "%s: a header of %u bytes in a file of %" PRId64 ": damaged", path,
                 h->bytes, bytes);
    if (h->count == 0 ||
        __builtin_mul_overflow((int64_t)h->count, ech_image_record_bytes(h), &records) ||
        records != bytes - h->bytes)
        ECH_FAIL(ECH_EINPUT,
                 "%s: %" PRId64 " bytes of records, and the header says %" PRIu64
                 " records of %" PRId64
                 " bytes: damaged or truncated; make it again with `echelon data`",
                 path, bytes - h->bytes, h->count, ech_image_record_bytes(h));
    for (uint32_t c = 0; c < h->channels; c++)
        if (!isfinite(h->mean[c]) || !isfinite(h->deviation[c]) || !(h->deviation[c] > 0))
            ECH_FAIL(ECH_EINPUT,
                     "%s: channel %u has mean %g and deviation %g, which cannot normalize: damaged",
                     path, c, (double)h->mean[c], (double)h->deviation[c]);
    return ECH_OK;
}

static ech_status read_names(ech_image_file *file)
{
    const ech_image_header *h = &file->header;
    size_t n = h->bytes - sizeof *h, at = 0;
    file->names = ech_calloc(n + 1, 1);
    ECH_TRY(ech_file_read_at(file->fd, file->path, file->names, n, sizeof *h));
    for (uint32_t k = 0; k < h->classes; k++) {
        size_t length = at < n ? strnlen(file->names + at, n - at) : 0;
        if (length == 0 || at + length == n)
            ECH_FAIL(ECH_EINPUT, "%s: the name of class %u is empty or has no end: damaged",
                     file->path, k);
        at += length + 1;
    }
    return ECH_OK;
}

static void find_normal(ech_image_file *file)
{
    const ech_image_header *h = &file->header;
    file->normal = ech_calloc(h->channels, sizeof *file->normal);
    for (uint32_t c = 0; c < h->channels; c++)
        for (int byte = 0; byte < 256; byte++)
            file->normal[c][byte] = (float)((byte - (double)h->mean[c]) / (double)h->deviation[c]);
}

ech_status ech_image_file_open(const char *path, ech_image_file **out)
{
    int64_t bytes;
    ECH_CLEANUP(ech_image_file_close_at) ech_image_file *file = ech_calloc(1, sizeof *file);
    file->path = ech_strdup(path);
    file->fd = -1;
    ECH_TRY(ech_file_open(path, &file->fd, &bytes));
    if (bytes < (int64_t)sizeof file->header)
        ECH_FAIL(ECH_EINPUT,
                 "%s: %" PRId64 " bytes are no file of packed images; make one with `echelon data "
                 "IMAGES OUT`",
                 path, bytes);
    ECH_TRY(ech_file_read_at(file->fd, path, &file->header, sizeof file->header, 0));
    ECH_TRY(check_header(path, &file->header, bytes));
    ECH_TRY(read_names(file));
    find_normal(file);
    *out = file;
    file = NULL;
    return ECH_OK;
}

void ech_image_file_close(ech_image_file *file)
{
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    free(file->normal);
    free(file->names);
    free(file->path);
    free(file);
}

ech_status ech_image_file_read(const ech_image_file *file, int64_t i, void *record, int32_t *label)
{
    const ech_image_header *h = &file->header;
    int64_t n = ech_image_record_bytes(h);
    uint32_t found;
    ECH_ASSERT(i >= 0 && i < (int64_t)h->count);
    ECH_TRY(ech_file_read_at(file->fd, file->path, record, (size_t)n, h->bytes + i * n));
    memcpy(&found, record, sizeof found);
    if (found >= h->classes)
        ECH_FAIL(ECH_EINPUT,
                 "%s: record %" PRId64 " has label %u, and there are %u classes: damaged",
                 file->path, i, found, h->classes);
    *label = (int32_t)found;
    return ECH_OK;
}

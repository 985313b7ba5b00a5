/* SPDX-License-Identifier: Apache-2.0
 *
 * IDX files, as MNIST has them: images in NAME-images-idx3-ubyte, labels in NAME-labels-idx1-ubyte
 * beside it. Numbers are big-endian: a magic number, the count, and of images rows and columns.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "data/image_source.h"

enum { IMAGES = 0x803, LABELS = 0x801, IMAGES_HEADER = 16, LABELS_HEADER = 8 };

static uint32_t number_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static bool is_idx(const char *path)
{
    uint8_t head[4];
    int64_t bytes;
    int fd;
    if (ech_file_is_folder(path) || !ech_file_exists(path)) return false;
    if (ech_file_open(path, &fd, &bytes) != ECH_OK) return false;
    bool is = bytes >= IMAGES_HEADER &&
              ech_file_read_at(fd, path, head, sizeof head, 0) == ECH_OK &&
              number_at(head) == IMAGES;
    close(fd);
    return is;
}

/* The file of labels beside the one of images; NULL: its name does not say. */
static char *find_labels(const char *path)
{
    static const char *const names[][2] = {{"images-idx3", "labels-idx1"},
                                           {"images.idx3", "labels.idx1"}};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *found = strstr(name, names[i][0]);
        ECH_FREED_TEXT text = {0};
        if (!found) continue;
        ech_text_append(&text, "%.*s%s%s", (int)(found - path), path, names[i][1],
                        found + strlen(names[i][0]));
        return ech_strdup(text.at);
    }
    return NULL;
}

static ech_status open_images(const char *path, ech_image_source *out)
{
    uint8_t head[IMAGES_HEADER];
    int64_t bytes;
    ECH_TRY(ech_image_source_add(out, path, 0, &bytes));
    ECH_TRY(ech_file_read_at(out->part.at[0].fd, path, head, sizeof head, 0));
    int64_t n = number_at(head + 4), rows = number_at(head + 8), columns = number_at(head + 12);
    if (rows == 0 || columns == 0 || rows > ECH_IMAGE_SIDE || columns > ECH_IMAGE_SIDE ||
        rows * columns > ECH_IMAGE_NUMBERS)
        ECH_FAIL(ECH_EINPUT,
                 "%s: images of %" PRId64 " x %" PRId64 " pixels; sides are 1 to %d, and an image "
                 "has at most %d pixels",
                 path, rows, columns, ECH_IMAGE_SIDE, ECH_IMAGE_NUMBERS);
    if (n == 0 || bytes - IMAGES_HEADER != n * rows * columns)
        ECH_FAIL(ECH_EINPUT,
                 "%s: %" PRId64 " bytes, and its header says %" PRId64 " images of %" PRId64
                 " x %" PRId64 " pixels: damaged or truncated; download it again",
                 path, bytes, n, rows, columns);
    out->sizes = (ech_image_header){
        .height = (uint32_t)rows, .width = (uint32_t)columns, .channels = 1, .count = (uint64_t)n};
    return ECH_OK;
}

static ech_status open_labels(const char *path, ech_image_source *out)
{
    uint8_t head[LABELS_HEADER];
    int64_t bytes, n = (int64_t)out->sizes.count;
    /* No image begins here. */
    ECH_TRY(ech_image_source_add(out, path, INT64_MAX, &bytes));
    if (bytes < LABELS_HEADER)
        ECH_FAIL(ECH_EINPUT, "%s: %" PRId64 " bytes are no IDX file of labels", path, bytes);
    ECH_TRY(ech_file_read_at(out->part.at[1].fd, path, head, sizeof head, 0));
    if (number_at(head) != LABELS || number_at(head + 4) != n || bytes - LABELS_HEADER != n)
        ECH_FAIL(ECH_EINPUT,
                 "%s: not the labels of %" PRId64 " images (magic %#x, %u labels, %" PRId64
                 " bytes); use the file that was published with %s",
                 path, n, number_at(head), number_at(head + 4), bytes, out->part.at[0].path);
    return ECH_OK;
}

/* Classes are named by their numbers, up to the largest label. */
static ech_status find_classes(ech_image_source *out)
{
    const ech_image_part *labels = &out->part.at[1];
    int64_t n = (int64_t)out->sizes.count;
    uint8_t block[4096], most = 0;
    for (int64_t at = 0; at < n; at += (int64_t)sizeof block) {
        size_t m = n - at < (int64_t)sizeof block ? (size_t)(n - at) : sizeof block;
        ECH_TRY(ech_file_read_at(labels->fd, labels->path, block, m, LABELS_HEADER + at));
        for (size_t i = 0; i < m; i++) most = block[i] > most ? block[i] : most;
    }
    for (int k = 0; k <= most; k++) {
        ECH_FREED_TEXT name = {0};
        ech_text_append(&name, "%d", k);
        ECH_PUSH(out->class, ech_strdup(name.at));
    }
    return ECH_OK;
}

static ech_status open_idx(const char *path, ech_image_source *out)
{
    ECH_FREED char *labels = find_labels(path);
    if (!labels)
        ECH_FAIL(ECH_EINPUT,
                 "%s: its name has no images-idx3, so the file of labels is not known; name the "
                 "two files NAME-images-idx3-ubyte and NAME-labels-idx1-ubyte",
                 path);
    ECH_TRY(open_images(path, out));
    ECH_TRY(open_labels(labels, out));
    return find_classes(out);
}

static ech_status read_idx(const ech_image_source *source, int64_t i, uint8_t *pixels,
                           uint32_t *label)
{
    const ech_image_part *images = &source->part.at[0], *labels = &source->part.at[1];
    int64_t n = ech_image_bytes(&source->sizes);
    uint8_t found;
    ECH_TRY(ech_file_read_at(images->fd, images->path, pixels, (size_t)n, IMAGES_HEADER + i * n));
    ECH_TRY(ech_file_read_at(labels->fd, labels->path, &found, 1, LABELS_HEADER + i));
    if (found >= source->class.n)
        ECH_FAIL(ECH_EINPUT, "%s: the label of image %" PRId64 " changed while it was read",
                 labels->path, i);
    *label = found;
    return ECH_OK;
}

const ech_image_format ech_image_format_idx = {
    .name = "IDX", .is = is_idx, .open = open_idx, .read = read_idx};

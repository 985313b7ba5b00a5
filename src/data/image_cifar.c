/* SPDX-License-Identifier: Apache-2.0
 *
 * CIFAR-10's binary files: records of a label and the planes of 32 x 32 red, green and blue bytes.
 * A folder has data_batch_*.bin, and the names of classes in batches.meta.txt.
 */
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "data/image_source.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, CHANNELS = 3, RECORD = 1 + CHANNELS * PLANE, CLASSES = 10 };

static bool is_batch(const char *name)
{
    return strncmp(name, "data_batch", strlen("data_batch")) == 0 && ech_text_ends_in(name, ".bin");
}

static bool is_cifar(const char *path)
{
    ECH_CLEANUP(ech_file_names_free) ech_file_names batches = {0};
    if (!ech_file_is_folder(path)) return ech_file_exists(path) && ech_text_ends_in(path, ".bin");
    ech_file_list(path, is_batch, &batches);
    return batches.n > 0;
}

static ech_status add_batch(const char *path, ech_image_source *out)
{
    int64_t bytes;
    ECH_TRY(ech_image_source_add(out, path, (int64_t)out->sizes.count, &bytes));
    if (bytes == 0 || bytes % RECORD)
        ECH_FAIL(ECH_EINPUT,
                 "%s: %" PRId64 " bytes are no whole number of CIFAR-10's records of %d bytes: "
                 "truncated, or another format",
                 path, bytes, RECORD);
    out->sizes.count += (uint64_t)(bytes / RECORD);
    return ECH_OK;
}

/* The first ten lines of batches.meta.txt, or numbers. */
static ech_status find_classes(const char *folder, ech_image_source *out)
{
    enum { LARGEST = 4096 };
    ECH_FREED char *path = ech_file_join(folder, "batches.meta.txt"), *text = NULL;
    size_t n;
    if (ech_file_exists(path)) ECH_TRY(ech_file_read(path, LARGEST, &text, &n));
    char *rest = text;
    for (int k = 0; k < CLASSES; k++) {
        char *name = rest ? strsep(&rest, "\n") : NULL;
        if (name) name[strcspn(name, "\r")] = '\0';
        ECH_FREED_TEXT number = {0};
        ech_text_append(&number, "%d", k);
        ECH_PUSH(out->class, ech_strdup(name && *name ? name : number.at));
    }
    return ECH_OK;
}

static ech_status open_cifar(const char *path, ech_image_source *out)
{
    ECH_CLEANUP(ech_file_names_free) ech_file_names batches = {0};
    bool folder = ech_file_is_folder(path);
    ECH_FREED char *beside = folder ? ech_strdup(path) : ech_file_parent(path);
    out->sizes = (ech_image_header){.height = SIDE, .width = SIDE, .channels = CHANNELS};
    if (folder) ech_file_list(path, is_batch, &batches);
    if (!folder) ECH_TRY(add_batch(path, out));
    for (size_t i = 0; i < batches.n; i++) {
        ECH_FREED char *batch = ech_file_join(path, batches.at[i]);
        ECH_TRY(add_batch(batch, out));
    }
    return find_classes(beside, out);
}

static ech_status read_cifar(const ech_image_source *source, int64_t i, uint8_t *pixels,
                             uint32_t *label)
{
    const ech_image_part *part = ech_image_source_part(source, i);
    uint8_t record[RECORD];
    ECH_TRY(ech_file_read_at(part->fd, part->path, record, RECORD, (i - part->first) * RECORD));
    if (record[0] >= CLASSES)
        ECH_FAIL(ECH_EINPUT, "%s: record %" PRId64 " has label %d, and CIFAR-10 has %d classes",
                 part->path, i - part->first, record[0], CLASSES);
    *label = record[0];
    for (int p = 0; p < PLANE; p++)
        for (int c = 0; c < CHANNELS; c++) pixels[p * CHANNELS + c] = record[1 + c * PLANE + p];
    return ECH_OK;
}

const ech_image_format ech_image_format_cifar = {
    .name = "CIFAR-10", .is = is_cifar, .open = open_cifar, .read = read_cifar};

/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of formats of images.
 */
#include "data/image_source.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

static const ech_image_format *const formats[] = {&ech_image_format_idx, &ech_image_format_cifar,
                                                  &ech_image_format_folder};

ech_status ech_image_source_open(const char *path, ech_image_source *out)
{
    ECH_CLEANUP(ech_image_source_close) ech_image_source source = {0};
    for (size_t i = 0; i < sizeof formats / sizeof *formats && !source.format; i++)
        if (formats[i]->is(path)) source.format = formats[i];
    if (!source.format)
        ECH_FAIL(
            ECH_EINPUT,
            "%s: no images: name an IDX file of images (unpacked), a binary file of CIFAR-10, "
            "a folder with CIFAR-10's data_batch_*.bin, or a folder with a folder of PNG or JPEG "
            "files for each class",
            path);
    ECH_TRY(source.format->open(path, &source));
    source.sizes.classes = (uint32_t)source.class.n;
    *out = source;
    source = (ech_image_source){0};
    return ECH_OK;
}

void ech_image_source_close(ech_image_source *source)
{
    for (size_t i = 0; i < source->part.n; i++) {
        close(source->part.at[i].fd);
        free(source->part.at[i].path);
    }
    for (size_t i = 0; i < source->class.n; i++) free(source->class.at[i]);
    for (size_t i = 0; i < source->file.n; i++) free(source->file.at[i].path);
    free(source->file.at);
    free(source->part.at);
    free(source->class.at);
    *source = (ech_image_source){0};
}

ech_status ech_image_source_add(ech_image_source *source, const char *path, int64_t first,
                                int64_t *bytes)
{
    int fd;
    ECH_TRY(ech_file_open(path, &fd, bytes));
    ECH_PUSH(source->part, (ech_image_part){.path = ech_strdup(path), .fd = fd, .first = first});
    return ECH_OK;
}

const ech_image_part *ech_image_source_part(const ech_image_source *source, int64_t i)
{
    size_t k = source->part.n - 1;
    while (source->part.at[k].first > i) k--;
    return &source->part.at[k];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder with a folder for each class, of PNG and JPEG files. Classes and files are in the byte
 * order of their names. Hidden files are left out; any other file must be an image.
 */
#include <inttypes.h>

#include "base/file.h"
#include "data/image_codec.h"
#include "data/image_source.h"

enum { LARGEST = 64 << 20 }; /* bytes of a file */

static bool is_visible(const char *name)
{
    return name[0] != '.';
}

static bool is_folder(const char *path)
{
    ECH_CLEANUP(ech_file_names_free) ech_file_names found = {0};
    if (!ech_file_is_folder(path)) return false;
    ech_file_list(path, is_visible, &found);
    for (size_t i = 0; i < found.n; i++) {
        ECH_FREED char *inner = ech_file_join(path, found.at[i]);
        if (ech_file_is_folder(inner)) return true;
    }
    return false;
}

static ech_status add_class(const char *folder, ech_image_source *out)
{
    ECH_CLEANUP(ech_file_names_free) ech_file_names files = {0};
    ech_file_list(folder, is_visible, &files);
    if (files.n == 0)
        ECH_FAIL(ECH_EINPUT, "%s: a class without images; add some, or remove the folder", folder);
    for (size_t i = 0; i < files.n; i++) {
        ECH_FREED char *path = ech_file_join(folder, files.at[i]);
        if (!ech_image_codec_of(files.at[i]))
            ECH_FAIL(ECH_EINPUT,
                     "%s: its name ends neither in .png nor in .jpg or .jpeg; remove it", path);
        ECH_PUSH(out->file,
                 ((ech_image_named){.path = ech_strdup(path), .label = (uint32_t)out->class.n}));
    }
    return ECH_OK;
}

static ech_status read_file(const char *path, ech_image_header *sizes, uint8_t *pixels)
{
    ECH_FREED char *bytes = NULL;
    size_t n;
    ECH_TRY(ech_file_read(path, LARGEST, &bytes, &n));
    return ech_image_codec_of(path)->decode(path, (const uint8_t *)bytes, n, sizes, pixels);
}

/* The first image has the sizes of all. */
static ech_status open_folder(const char *path, ech_image_source *out)
{
    ECH_CLEANUP(ech_file_names_free) ech_file_names classes = {0};
    ech_file_list(path, is_visible, &classes);
    for (size_t i = 0; i < classes.n; i++) {
        ECH_FREED char *folder = ech_file_join(path, classes.at[i]);
        if (!ech_file_is_folder(folder))
            ECH_FAIL(
                ECH_EINPUT,
                "%s: a file beside the classes' folders; remove it, or move it into the folder "
                "of its class",
                folder);
        ECH_TRY(add_class(folder, out));
        ECH_PUSH(out->class, ech_strdup(classes.at[i]));
    }
    ECH_TRY(read_file(out->file.at[0].path, &out->sizes, NULL));
    out->sizes.count = out->file.n;
    return ECH_OK;
}

static ech_status read_folder(const ech_image_source *source, int64_t i, uint8_t *pixels,
                              uint32_t *label)
{
    ech_image_header sizes = source->sizes;
    *label = source->file.at[i].label;
    return read_file(source->file.at[i].path, &sizes, pixels);
}

const ech_image_format ech_image_format_folder = {
    .name = "PNG and JPEG", .is = is_folder, .open = open_folder, .read = read_folder};

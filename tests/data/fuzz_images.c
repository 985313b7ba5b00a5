/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as files of images. The first byte chooses: a packed file, an IDX file with its
 * labels, CIFAR-10's, PNG or JPEG. Refused, or every label is of a class, and what is packed is
 * read again; an image has the sizes that its header says.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/data.h"
#include "data/fuzz_folder.h"
#include "data/image_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Returns the number of its records; 0: it is refused. */
static int64_t read_packed(const char *name)
{
    enum { MOST = 1 << 16 };
    ech_image_file *file;
    char *path = ech_file_join(folder, name);
    int64_t count = 0;
    if (ech_image_file_open(path, &file) == ECH_OK) {
        count = (int64_t)file->header.count;
        size_t record = (size_t)ech_image_record_bytes(&file->header);
        uint8_t *room = malloc(record);
        for (int64_t i = 0; i < count && i < MOST; i++) {
            int32_t label;
            if (ech_image_file_read(file, i, room, &label) != ECH_OK) continue;
            if (label < 0 || label >= (int32_t)file->header.classes) abort();
        }
        free(room);
        ech_image_file_close(file);
    }
    free(path);
    return count;
}

static void import(const char *name)
{
    char *in = ech_file_join(folder, name), *out = ech_file_join(folder, "out");
    const ech_images_options options = {.in = in, .out = out, .workers = 1};
    ech_images_count count;
    if (ech_data_import_images(&options, &count) == ECH_OK &&
        read_packed("out.images") != count.images)
        abort();
    free(in);
    free(out);
}

static void decode(const ech_image_codec *codec, const uint8_t *bytes, size_t n)
{
    enum { MOST = 1 << 22 };
    ech_image_header sizes = {0}, again;
    if (codec->decode("image", bytes, n, &sizes, NULL) != ECH_OK) return;
    if (ech_image_bytes(&sizes) < 1 || ech_image_bytes(&sizes) > ECH_IMAGE_NUMBERS) abort();
    if (ech_image_bytes(&sizes) > MOST) return;
    again = sizes;
    uint8_t *pixels = malloc((size_t)ech_image_bytes(&sizes)); /* a sanitizer guards its end */
    codec->decode("image", bytes, n, &again, pixels);
    if (memcmp(&again, &sizes, sizeof again) != 0) abort();
    free(pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (!folder[0]) make_folder();
    ech_log_set_quiet(true);
    if (n < 2) return 0;
    size_t rest = n - 2, labels = bytes[1] < rest ? bytes[1] : rest;
    switch (bytes[0] % 5) {
    case 0:
        write_source("packed.images", bytes + 2, rest);
        read_packed("packed.images");
        break;
    case 1: /* labels first, as many bytes as the second one says */
        write_source("x-labels-idx1-ubyte", bytes + 2, labels);
        write_source("x-images-idx3-ubyte", bytes + 2 + labels, rest - labels);
        import("x-images-idx3-ubyte");
        break;
    case 2:
        write_source("batch.bin", bytes + 2, rest);
        import("batch.bin");
        break;
    case 3:
        decode(&ech_image_codec_png, bytes + 2, rest);
        break;
    default:
        decode(&ech_image_codec_jpeg, bytes + 2, rest);
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of images, in packed files: the record's bytes, normalized by channel, and its label. In
 * training an image may be shifted and mirrored, as its position in the run draws.
 */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "data/image_file.h"
#include "data/samples.h"

static ech_status check_file(const ech_corpus_options *options, const char *path,
                             const ech_image_header *h)
{
    const ech_image *image = &options->image;
    if (h->height != image->height || h->width != image->width || h->channels != image->channels)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: %s has images of %u x %u pixels and %u channels, and the model reads %lld x "
                 "%lld and %lld; use model.image_height = %u, model.image_width = %u and "
                 "model.image_channels = %u",
                 options->key, path, h->height, h->width, h->channels, (long long)image->height,
                 (long long)image->width, (long long)image->channels, h->height, h->width,
                 h->channels);
    if (h->classes > options->vocabulary)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: %s has %u classes, and the model %lld; use model.num_classes = %u",
                 options->key, path, h->classes, (long long)options->vocabulary, h->classes);
    return ECH_OK;
}

/* Restricts the source to the records of its part of the split. */
static ech_status split_records(const ech_corpus_options *options, const char *path,
                                ech_source *source)
{
    int64_t first, end, all = source->samples;
    ECH_TRY(ech_source_split(options, path, "records", all, &first, &end));
    source->first = first;
    source->samples = end - first;
    return ECH_OK;
}

static ech_status open_images(const ech_corpus_options *options, const char *path,
                              ech_source *source)
{
    ech_image_file *file;
    ECH_TRY(ech_image_file_open(path, &file));
    source->records = file;
    source->samples = (int64_t)file->header.count;
    ECH_TRY(check_file(options, path, &file->header));
    return options->split[0] ? split_records(options, path, source) : ECH_OK;
}

static void close_images(ech_source *source)
{
    ech_image_file_close(source->records);
}

static size_t scratch_bytes(const ech_loader_options *options)
{
    const ech_image *image = &options->image;
    return sizeof(uint32_t) + (size_t)(image->height * image->width * image->channels);
}

/* How an image is read: shifted down and right, and mirrored. */
typedef struct change {
    int64_t down, right;
    bool mirrored;
} change;

/* A whole number from 0 to most, both included. */
static int64_t draw_whole(uint32_t word, int64_t most)
{
    return (int64_t)((uint64_t)word * (uint64_t)(most + 1) >> 32);
}

/* The site of these numbers (base/random.h), which no layer has; layer 0, step 0. */
enum { SITE = 254 };

static change draw_change(const ech_loader_options *options, int64_t position)
{
    const ech_random_key key = {.seed = options->seed, .stream = ech_random_stream(0, SITE)};
    uint32_t words[4];
    int64_t most = options->crop_padding;
    if (most == 0 && !options->flip) return (change){0};
    ech_random_words(key, (uint64_t)position, words);
    return (change){.down = draw_whole(words[0], 2 * most) - most,
                    .right = draw_whole(words[1], 2 * most) - most,
                    .mirrored = options->flip && words[2] >> 31};
}

/* One row of pixels; `from` NULL: it is outside of the image, where bytes are 0. */
static void put_row(const ech_image_file *file, const uint8_t *from, const change *how, float *to)
{
    int64_t W = file->header.width, C = file->header.channels;
    for (int64_t x = 0; x < W; x++) {
        int64_t at = (how->mirrored ? W - 1 - x : x) - how->right;
        const uint8_t *pixel = from && at >= 0 && at < W ? from + at * C : NULL;
        for (int64_t c = 0; c < C; c++) to[x * C + c] = file->normal[c][pixel ? pixel[c] : 0];
    }
}

static ech_status read_image(const ech_source *source, const ech_loader_options *options,
                             int64_t position, int64_t s, void *scratch, const ech_batch *batch,
                             int64_t row)
{
    const ech_image_file *file = source->records;
    int64_t H = file->header.height, line = file->header.width * (int64_t)file->header.channels;
    change how = draw_change(options, position);
    int32_t label;
    ECH_TRY(ech_image_file_read(file, source->first + s, scratch, &label));
    const uint8_t *pixels = ech_image_pixels(scratch);
    for (int64_t y = 0; y < H; y++) {
        int64_t at = y - how.down;
        put_row(file, at >= 0 && at < H ? pixels + at * line : NULL, &how,
                batch->pixels + (row * H + y) * line);
    }
    batch->targets[row] = label;
    batch->weights[row] = 1;
    return ECH_OK;
}

/* The header has a hash of all records. */
static ech_status identify(const ech_source *source, int64_t *units, ech_text *out)
{
    const ech_image_file *file = source->records;
    const int64_t part[] = {source->first, source->samples};
    *units = (int64_t)file->header.count;
    ech_text_append_bytes(out, (const char *)&file->header, sizeof file->header);
    ech_text_append_bytes(out, (const char *)part, sizeof part);
    return ECH_OK;
}

const ech_data_kind ech_data_kind_images = {.open = open_images,
                                            .close = close_images,
                                            .scratch = scratch_bytes,
                                            .read = read_image,
                                            .identify = identify};

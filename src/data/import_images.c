/* SPDX-License-Identifier: Apache-2.0
 *
 * From files of images to packed ones. Threads read a block of images at a time, which is then
 * written in order, so the result does not depend on their number. Records are in an order drawn
 * once, so any part of a file has images of all classes.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "data/data.h"
#include "data/image_source.h"

/* Images of a block, and its bytes at most if an image has no more. */
enum { BLOCK = 256, BLOCK_BYTES = 64 << 20 };

typedef struct importing {
    const ech_images_options *options;
    ech_image_source source;
    int64_t n, trained; /* all images; the first ones, on which a run trains */
    int64_t block;      /* images of a block */
    uint8_t *pixels;    /* [block] */
    uint32_t label[BLOCK];
    ech_image_writer *writer[2]; /* [0] training, or all; [1] validation */
    uint64_t sum[ECH_IMAGE_CHANNELS], squares[ECH_IMAGE_CHANNELS]; /* of the training part */
} importing;

static void free_all(importing *im)
{
    for (int i = 0; i < 2; i++) ech_image_writer_discard(im->writer[i]);
    ech_image_source_close(&im->source);
    free(im->pixels);
}

/* The image that becomes record i. */
static int64_t image_of(const importing *im, int64_t i)
{
    return (int64_t)ech_random_permute(0, 0, (uint64_t)im->n, (uint64_t)i);
}

/* ---- reading a block ---- */

typedef struct reader {
    importing *im;
    pthread_t thread;
    int index, of;         /* it reads images index, index + of, ... */
    int64_t first, images; /* of the block */
    ech_status status;     /* of image `at` */
    int64_t at;
    char *message; /* owned */
} reader;

static void *read_images(void *argument)
{
    reader *r = argument;
    importing *im = r->im;
    size_t n = (size_t)ech_image_bytes(&im->source.sizes);
    for (r->at = r->index; r->at < r->images && r->status == ECH_OK; r->at += r->of) {
        r->status = im->source.format->read(&im->source, image_of(im, r->first + r->at),
                                            im->pixels + (size_t)r->at * n, &im->label[r->at]);
        if (r->status != ECH_OK) break;
    }
    if (r->status != ECH_OK) r->message = ech_strdup(ech_last_error());
    return NULL;
}

static void *run_reader(void *argument)
{
    ech_log_set_quiet(true);
    return read_images(argument);
}

/* The error of the first image that has one. */
static ech_status join_readers(reader *readers, int n)
{
    const reader *first = NULL;
    for (int t = 0; t < n; t++) {
        pthread_join(readers[t].thread, NULL);
        bool failed = readers[t].status != ECH_OK;
        if (failed && (!first || readers[t].at < first->at)) first = &readers[t];
    }
    ech_status status = first ? first->status : ECH_OK;
    ECH_FREED char *message = ech_strdup(first ? first->message : "");
    for (int t = 0; t < n; t++) free(readers[t].message);
    if (status != ECH_OK) ECH_FAIL(status, "%s", message);
    return ECH_OK;
}

static ech_status read_block(importing *im, int64_t first, int64_t images)
{
    int n = im->options->workers < images ? im->options->workers : (int)images, started = 0;
    ECH_FREED reader *readers = ech_calloc((size_t)n, sizeof *readers);
    for (; started < n; started++) {
        readers[started] =
            (reader){.im = im, .index = started, .of = n, .first = first, .images = images};
        if (pthread_create(&readers[started].thread, NULL, run_reader, &readers[started])) break;
    }
    ECH_TRY(join_readers(readers, started));
    if (started < n)
        ECH_FAIL(ECH_EIO, "cannot start another thread to read images; use --workers %d",
                 started > 1 ? started : 1);
    return ECH_OK;
}

/* ---- writing ---- */

static void measure(importing *im, const uint8_t *pixels)
{
    int64_t n = ech_image_bytes(&im->source.sizes), C = im->source.sizes.channels;
    for (int64_t i = 0; i < n; i++) {
        im->sum[i % C] += pixels[i];
        im->squares[i % C] += (uint64_t)pixels[i] * pixels[i];
    }
}

static ech_status write_block(importing *im, int64_t first, int64_t images)
{
    size_t n = (size_t)ech_image_bytes(&im->source.sizes);
    for (int64_t i = 0; i < images; i++) {
        const uint8_t *pixels = im->pixels + (size_t)i * n;
        bool held = first + i >= im->trained;
        if (!held) measure(im, pixels);
        ECH_TRY(ech_image_writer_add(im->writer[held], im->label[i], pixels));
    }
    return ECH_OK;
}

static ech_status create_writers(importing *im)
{
    static const char *const suffixes[] = {"-train" ECH_IMAGE_ENDING, "-valid" ECH_IMAGE_ENDING};
    bool split = im->trained < im->n;
    for (int i = 0; i < 1 + split; i++) {
        ECH_FREED_TEXT path = {0};
        ech_text_append(&path, "%s%s", im->options->out, split ? suffixes[i] : ECH_IMAGE_ENDING);
        ECH_TRY(ech_image_writer_create(path.at, &im->source.sizes,
                                        (const char *const *)im->source.class.at, &im->writer[i]));
    }
    return ECH_OK;
}

/* Mean and deviation of each channel, or what `like` has if it is given. */
static ech_status find_normal(const importing *im, ech_image_header *out)
{
    const ech_image_header *sizes = &im->source.sizes;
    double n = (double)im->trained * (double)sizes->height * (double)sizes->width;
    for (uint32_t c = 0; c < sizes->channels; c++) {
        double mean = (double)im->sum[c] / n, square = (double)im->squares[c] / n - mean * mean;
        out->mean[c] = (float)mean;
        out->deviation[c] = square > 1e-6 ? (float)sqrt(square) : 1;
    }
    if (!im->options->like) return ECH_OK;
    ECH_CLEANUP(ech_image_file_close_at) ech_image_file *like = NULL;
    ECH_TRY(ech_image_file_open(im->options->like, &like));
    if (like->header.channels != sizes->channels)
        ECH_FAIL(ECH_EUSAGE, "--like %s: has %u channels, and %s %u", im->options->like,
                 like->header.channels, im->options->in, sizes->channels);
    memcpy(out->mean, like->header.mean, sizeof out->mean);
    memcpy(out->deviation, like->header.deviation, sizeof out->deviation);
    return ECH_OK;
}

static ech_status count_parts(importing *im)
{
    im->n = (int64_t)im->source.sizes.count;
    im->trained = im->n - llround(im->options->valid * (double)im->n);
    if (im->options->valid > 0 && (im->trained == 0 || im->trained == im->n))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: too few images for a validation share of %g: none is left %s; use more "
                 "images, or another --valid",
                 im->options->in, im->options->valid,
                 im->trained == 0 ? "to train on" : "to validate on");
    int64_t bytes = ech_image_bytes(&im->source.sizes);
    im->block = BLOCK_BYTES / bytes < BLOCK ? BLOCK_BYTES / bytes : BLOCK;
    if (im->block < 1) im->block = 1;
    im->pixels = ech_calloc((size_t)im->block, (size_t)bytes);
    return ECH_OK;
}

static ech_status finish(importing *im)
{
    ech_image_header normal = {0};
    ECH_TRY(find_normal(im, &normal));
    for (int i = 0; i < 2 && im->writer[i]; i++) {
        ech_image_writer *writer = im->writer[i];
        im->writer[i] = NULL;
        ECH_TRY(ech_image_writer_finish(writer, &normal));
    }
    return ECH_OK;
}

ech_status ech_data_import_images(const ech_images_options *options, ech_images_count *count)
{
    ECH_CLEANUP(free_all) importing im = {.options = options};
    ECH_ASSERT(options->valid >= 0 && options->valid < 1 && options->workers > 0);
    ECH_TRY(ech_image_source_open(options->in, &im.source));
    ECH_TRY(count_parts(&im));
    ECH_TRY(create_writers(&im));
    for (int64_t first = 0; first < im.n; first += im.block) {
        int64_t images = im.n - first < im.block ? im.n - first : im.block;
        ECH_TRY(read_block(&im, first, images));
        ECH_TRY(write_block(&im, first, images));
        if (options->progress) options->progress(0, first + images, im.n);
    }
    ECH_TRY(finish(&im));
    *count = (ech_images_count){.format = im.source.format->name,
                                .images = im.trained,
                                .valid_images = im.n - im.trained,
                                .classes = im.source.sizes.classes,
                                .image = {.height = im.source.sizes.height,
                                          .width = im.source.sizes.width,
                                          .channels = im.source.sizes.channels}};
    return ECH_OK;
}

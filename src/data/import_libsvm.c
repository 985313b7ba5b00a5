/* SPDX-License-Identifier: Apache-2.0
 *
 * From lines in LIBSVM's format to a file of samples of features.
 */
#include <stdlib.h>
#include <string.h>

#include "data/libsvm.h"
#include "data/packing.h"
#include "data/text_chunk.h"
#include "data/texts.h"
#include "data/token_index.h"

typedef struct importing {
    const ech_libsvm_options *options;
    ech_texts texts;
    ech_text_chunk_reader reader;
    ech_text_chunk chunk;
    ech_libsvm sample; /* the last one */
    int parts;
    ech_token_writer *writer[2]; /* [0] training, or all; [1] validation */
    int64_t done;                /* bytes read */
    ech_libsvm_count count;
} importing;

static void free_all(importing *im)
{
    for (int i = 0; i < 2; i++) ech_token_writer_discard(im->writer[i]);
    ech_text_chunk_reader_close(&im->reader);
    ech_texts_free(&im->texts);
    ech_libsvm_free(&im->sample);
    free(im->chunk.bytes);
}

bool ech_data_is_libsvm(const char *path)
{
    static const char *const endings[] = {".libsvm", ".svm"};
    size_t n = strlen(path);
    const ech_packing *packing = ech_packing_named(path);
    if (packing) n -= strlen(packing->ending);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t m = strlen(endings[i]);
        if (n > m && strncmp(path + n - m, endings[i], m) == 0) return true;
    }
    return false;
}

static int64_t largest_index(const importing *im)
{
    return im->options->features ? im->options->features : INT32_MAX;
}

static ech_status write_sample(importing *im, bool held)
{
    const ech_libsvm *sample = &im->sample;
    ech_libsvm_count *count = &im->count;
    int64_t n = (int64_t)sample->ids.n, last = sample->ids.at[n - 1] + (int64_t)1;
    ECH_TRY(ech_token_writer_add_sample(im->writer[held], sample->ids.at, sample->values.at,
                                        (size_t)n, sample->label));
    *(held ? &count->valid_samples : &count->samples) += 1;
    if (last > count->features) count->features = last;
    if (n > count->longest) count->longest = n;
    return ECH_OK;
}

static ech_status import_chunk(importing *im)
{
    const ech_text_chunk *chunk = &im->chunk;
    const char *begin = (const char *)chunk->bytes, *end = begin + chunk->n;
    int64_t number = chunk->line;
    for (const char *at = begin, *next; at < end; at = next, number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        bool held = im->parts > 1 && chunk->at + (at - begin) >= chunk->valid_from, found;
        next = newline ? newline + 1 : end;
        ECH_TRY(ech_libsvm_parse(chunk->path, number, at, (size_t)(next - at), largest_index(im),
                                 &im->sample, &found));
        if (found) ECH_TRY(write_sample(im, held));
    }
    im->done += (int64_t)chunk->n;
    if (im->options->progress) im->options->progress(0, im->done, im->texts.bytes);
    return ECH_OK;
}

static ech_status create_writers(importing *im)
{
    /* Labels are below the vocabulary, too. */
    int64_t vocabulary = largest_index(im) > 1 ? largest_index(im) : 2;
    static const char *const suffixes[] = {"-train", "-valid"};
    for (int i = 0; i < im->parts; i++) {
        ECH_FREED char *prefix = ech_token_path(im->options->out, im->parts > 1 ? suffixes[i] : "");
        ECH_TRY(ech_token_writer_create_valued(prefix, vocabulary, &im->writer[i]));
    }
    return ECH_OK;
}

static ech_status check_count(const importing *im)
{
    const ech_libsvm_count *count = &im->count;
    const char *in = im->options->in;
    if (count->samples + count->valid_samples == 0)
        ECH_FAIL(ECH_EINPUT, "%s: holds no sample; name a LIBSVM file, with lines like 1 3:0.5",
                 in);
    if (im->parts > 1 && (count->samples == 0 || count->valid_samples == 0))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: too few samples for a validation share of %g: none is left %s; use more "
                 "samples, or another --valid",
                 in, im->options->valid, count->samples == 0 ? "to train on" : "to validate on");
    return ECH_OK;
}

static ech_status finish(importing *im)
{
    for (int i = 0; i < im->parts; i++) {
        ech_token_writer *writer = im->writer[i];
        im->writer[i] = NULL;
        ECH_TRY(ech_token_writer_finish(writer));
    }
    return ECH_OK;
}

ech_status ech_data_import_libsvm(const ech_libsvm_options *options, ech_libsvm_count *count)
{
    ECH_CLEANUP(free_all)
    importing im = {.options = options, .parts = options->valid > 0 ? 2 : 1};
    bool found = true;
    ECH_ASSERT(options->valid >= 0 && options->valid < 1);
    ECH_ASSERT(options->features >= 0 && options->features <= INT32_MAX);
    const ech_data_text_source source = {.in = options->in, .as_text = true};
    ECH_TRY(ech_texts_find(&source, &im.texts));
    ECH_TRY(ech_texts_check_output(options->in, options->out));
    im.reader = (ech_text_chunk_reader){
        .texts = &im.texts, .valid = options->valid, .lines = true, .position = {.line = 1}};
    im.count.files = (int64_t)im.texts.file.n;
    im.count.bytes = im.texts.bytes;
    ECH_TRY(create_writers(&im));
    while (found) {
        ECH_TRY(ech_text_chunk_read(&im.reader, &im.chunk, &found));
        if (found) ECH_TRY(import_chunk(&im));
    }
    ECH_TRY(check_count(&im));
    ECH_TRY(finish(&im));
    *count = im.count;
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a token file: refused, or every id that can be read is in the vocabulary and
 * reading in pieces gives what reading at once gives; samples count what they say. The input is two
 * bytes n, then n bytes of .idx, then .bin, whose bytes, once and twice, are .values as well: what
 * then are samples of features have them in the vocabulary, finite, and one label.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/token_file.h"
#include "data/fuzz_folder.h"
#include "data/samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { VOCABULARY = 1000, MOST_TOKENS = 1 << 16 };

/* All at once, then in pieces of up to seven: what the pieces refuse, the whole refuses too. */
static void read_tokens(const ech_token_file *file)
{
    int64_t n = file->runs.tokens;
    if (n < 0 || file->documents < 0) abort();
    if (n > MOST_TOKENS) n = MOST_TOKENS;
    int32_t *ids = ech_calloc((size_t)n, sizeof *ids), piece[7];
    bool good = ech_token_file_read(file, 0, n, VOCABULARY, ids) == ECH_OK, all = true;
    for (int64_t at = 0; at < n; at += 7) {
        int64_t m = n - at < 7 ? n - at : 7;
        bool read = ech_token_file_read(file, at, m, VOCABULARY, piece) == ECH_OK;
        all = all && read;
        if (good && memcmp(piece, ids + at, (size_t)m * sizeof *ids) != 0) abort();
        for (int64_t i = 0; read && i < m; i++)
            if (piece[i] < 0 || piece[i] >= VOCABULARY) abort();
    }
    if (good != all) abort();
    free(ids);
}

/* As samples: what is said to count without reading is what counts, and documents begin in
 * order. */
static void read_samples(ech_token_file *file, bool whole)
{
    enum { LENGTH = 5 };
    int32_t ids[LENGTH + 1], tokens[LENGTH], targets[LENGTH], starts[LENGTH], length;
    float weights[LENGTH];
    ech_batch batch = {.tokens = tokens,
                       .targets = targets,
                       .weights = weights,
                       .starts = starts,
                       .lengths = &length};
    ech_loader_options options = {
        .sequence_length = LENGTH, .vocabulary = VOCABULARY, .document_mask = true};
    ech_source source = {.file = file, .samples = ech_data_samples(file->runs.tokens, LENGTH)};
    if (whole) ech_documents_pack(&file->runs, LENGTH, false, &source.documents);
    if (whole) source.samples = ech_documents_samples(&source.documents);
    for (int64_t s = 0; s < source.samples && s < MOST_TOKENS; s++) {
        if (ech_sample_read(&source, &options, s, s, ids, &batch, 0) != ECH_OK) continue;
        int64_t count = 0;
        for (int t = 0; t < LENGTH; t++) {
            count += weights[t] > 0;
            if (starts[t] < (t ? starts[t - 1] : 0) || starts[t] > t) abort();
        }
        if (count != ech_sample_count(&source, &options, s)) abort();
    }
    ech_documents_free(&source.documents);
}

static void read_examples(const ech_corpus *corpus)
{
    enum { LENGTH = 5 };
    int32_t ids[LENGTH + 1], tokens[LENGTH], target, length;
    float weight, values[LENGTH];
    ech_batch batch = {.tokens = tokens,
                       .targets = &target,
                       .weights = &weight,
                       .lengths = &length,
                       .values = values};
    ech_loader_options options = {
        .sequence_length = LENGTH, .vocabulary = VOCABULARY, .samples = ECH_SAMPLES_OF_features};
    const ech_source *source = &corpus->source.at[0];
    for (int64_t s = 0; s < source->samples && s < MOST_TOKENS; s++) {
        if (ech_sample_read(source, &options, s, s, ids, &batch, 0) != ECH_OK) continue;
        if (length < 1 || length > LENGTH || ech_sample_count(source, &options, s) != 1) abort();
        if (weight != 1 || target < 0 || target > 1) abort();
        for (int t = 0; t < LENGTH; t++) {
            if (tokens[t] < 0 || tokens[t] >= VOCABULARY || !isfinite(values[t])) abort();
            if (t >= length && (tokens[t] != 0 || values[t] != 0)) abort();
        }
    }
}

static void read_features(const char *prefix, const uint8_t *bytes, size_t n)
{
    const ech_corpus_options options = {.key = "data.train",
                                        .sources = prefix,
                                        .split = "",
                                        .sequence_length = 5,
                                        .samples = ECH_SAMPLES_OF_features,
                                        .vocabulary = VOCABULARY};
    uint8_t *twice = ech_calloc(2 * n + 1, 1);
    for (size_t i = 0; i < 2 * n; i++) twice[i] = bytes[i % n];
    for (size_t times = 1; times <= 2; times++) {
        ech_corpus *corpus;
        write_source("t.values", twice, times * n);
        if (ech_corpus_open(&options, &corpus) != ECH_OK) continue;
        read_examples(corpus);
        ech_corpus_close(corpus);
    }
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2) return 0;
    if (!folder[0]) make_folder();
    ech_log_set_quiet(true);
    size_t index = (size_t)bytes[0] | (size_t)bytes[1] << 8;
    if (index > n - 2) index = n - 2;
    write_source("t.idx", bytes + 2, index);
    write_source("t.bin", bytes + 2 + index, n - 2 - index);
    char *prefix = ech_file_join(folder, "t");
    ech_token_file *file;
    for (int documents = 0; documents < 2; documents++) {
        ech_token_options options = {.documents = documents};
        if (ech_token_file_open(prefix, &options, &file) != ECH_OK) continue;
        read_tokens(file);
        for (int whole = 0; whole < 2 && documents && file->runs.tokens; whole++)
            read_samples(file, whole);
        ech_token_file_close(file);
    }
    read_features(prefix, bytes + 2 + index, n - 2 - index);
    free(prefix);
    return 0;
}

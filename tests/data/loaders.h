/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: loaders over small files that count.
 */
#ifndef ECH_TESTS_DATA_LOADERS_H
#define ECH_TESTS_DATA_LOADERS_H

#include "data/scratch.h"
#include "unit.h"

#include "data/samples.h"

/* 40 samples of 4 tokens (the last has two pairs); sample s begins with token 4 s. */
enum { T = 4, TOKENS = 159, SAMPLES = 40, BATCH = 24 };

static inline ech_loader_options sample_options(void)
{
    return (ech_loader_options){.sequence_length = T,
                                .global_batch_size = BATCH,
                                .shares = 1,
                                .micro_batch_size = 2,
                                .data_degree = 1,
                                .vocabulary = 65000,
                                .shuffle = true,
                                .seed = 7,
                                .last_position = INT64_MAX,
                                .prefetch = 2};
}

/* A text of data.train as a corpus of samples of `length` tokens. */
static inline ech_corpus *open_corpus(const char *sources, int64_t length, bool document_mask)
{
    ech_corpus_options options = {.key = "data.train",
                                  .sources = sources,
                                  .split = "",
                                  .sequence_length = length,
                                  .document_mask = document_mask};
    ech_corpus *corpus;
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_OK);
    return corpus;
}

static inline ech_corpus *counting_corpus(const char *name, int64_t tokens)
{
    ech_token_file_close(counting_file(name, tokens));
    return open_corpus(in_scratch(name), T, false);
}

static inline ech_loader *start(const ech_corpus *corpus, ech_loader_options options, int64_t step)
{
    ech_loader *loader;
    assert_int_equal(ech_loader_create(corpus, &options, step, &loader), ECH_OK);
    return loader;
}

static inline const ech_batch *next(ech_loader *loader, int64_t step)
{
    const ech_batch *batch;
    assert_int_equal(ech_loader_next(loader, step, &batch), ECH_OK);
    assert_int_equal(batch->step, step);
    return batch;
}

/* A row holds sample s as the rules in data.h say. */
static inline void assert_sample(const ech_batch *batch, int64_t row, int64_t s)
{
    for (int64_t t = 0; t < T; t++) {
        int64_t at = row * T + t, position = s * T + t;
        bool pair = position + 1 < TOKENS;
        assert_int_equal(batch->tokens[at], position < TOKENS ? position : 0);
        assert_int_equal(batch->targets[at], pair ? position + 1 : 0);
        assert_true(batch->weights[at] == (pair ? 1.0f : 0.0f));
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * How many tokens of a step count, and from where on a token is seen: padding, documents, prompts.
 */
#include "data/loaders.h"

static double sum_weights(const ech_batch *batch, int64_t micro)
{
    double sum = 0;
    for (int64_t i = 0; i < batch->micro_batches * micro * T; i++) sum += (double)batch->weights[i];
    return sum;
}

/* Every replica, one that reads nothing too, says what the weights of all of them add up to.
 * Returns the sum over three epochs. */
static double check_step_tokens(const ech_corpus *corpus, ech_loader_options options, int degree)
{
    enum { STEPS = 3 * SAMPLES / BATCH };
    double said[STEPS] = {0}, sums[STEPS] = {0};
    options.data_degree = degree;
    for (int rank = 0; rank < degree; rank++) {
        options.data_rank = rank;
        options.counts_only = false;
        ech_loader *full = start(corpus, options, 0);
        options.counts_only = true;
        ech_loader *bare = start(corpus, options, 0);
        for (int64_t step = 0; step < STEPS; step++) {
            const ech_batch *batch = next(full, step), *counts = next(bare, step);
            if (rank == 0) said[step] = batch->step_tokens;
            assert_true(batch->step_tokens == said[step] && counts->step_tokens == said[step]);
            assert_int_equal(counts->micro_batches, batch->micro_batches);
            assert_true(!counts->tokens && !counts->targets && !counts->weights);
            sums[step] += sum_weights(batch, options.micro_batch_size);
        }
        ech_loader_destroy(full);
        ech_loader_destroy(bare);
    }
    double total = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        assert_true(said[step] == sums[step]);
        total += said[step];
    }
    return total;
}

TEST(test_tokens_of_a_step)
{
    ech_corpus *ragged = counting_corpus("ragged", TOKENS);
    ech_corpus *even = counting_corpus("even", SAMPLES * T + 1);
    for (int degree = 1; degree <= 5; degree++) {
        for (int64_t micro = 1; micro <= 3; micro++) {
            ech_loader_options options = sample_options();
            options.micro_batch_size = micro;
            assert_true(check_step_tokens(ragged, options, degree) == 3 * 158);
            assert_true(check_step_tokens(even, options, degree) == 3 * 160);
            options.shuffle = false;
            options.last_position = SAMPLES; /* in the second step, after the last sample */
            assert_true(check_step_tokens(ragged, options, degree) == 158);
            assert_true(check_step_tokens(even, options, degree) == 160);
            options.last_position = 13; /* before it */
            assert_true(check_step_tokens(ragged, options, degree) == 13 * T);
        }
    }
    ech_corpus_close(ragged);
    ech_corpus_close(even);
}

/* The numbers themselves: the last sample of 159 tokens has two of four. */
TEST(test_tokens_of_samples)
{
    const int64_t expected[][4] = {
        /* tokens, T, sample, count */
        {159, 4, 0, 4},  {159, 4, 38, 4}, {159, 4, 39, 2},
        {160, 4, 39, 3}, {161, 4, 39, 4}, {162, 4, 40, 1},
        {2, 4, 0, 1},    {3, 1, 1, 1},    {INT64_MAX, 1, INT64_MAX - 2, 1}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const int64_t *e = expected[i];
        assert_int_equal(ech_sample_pairs(e[0], e[1], e[2]), e[3]);
    }
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_loader_options options = sample_options();
    options.shuffle = false;
    options.counts_only = true;
    options.last_position = SAMPLES;
    ech_loader *loader = start(corpus, options, 0);
    assert_true(next(loader, 0)->step_tokens == 96);
    assert_true(next(loader, 1)->step_tokens == 62); /* 158 pairs in all */
    assert_true(next(loader, 2)->step_tokens == 0);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

/* A file of sequences of 0 to 5 tokens, token i with id i; most sequences go on with a document,
 * and a third of them are prompts. What belongs to each token is written down beside it. */
enum { MARKED = 60, MOST_MARKED = 5 * MARKED };
typedef struct marked_tokens {
    int64_t tokens;
    int64_t document[MOST_MARKED]; /* at which token its document begins */
    bool silent[MOST_MARKED];
} marked_tokens;

static void write_marked_tokens(marked_tokens *out)
{
    uint16_t bin[MOST_MARKED];
    int32_t lengths[MARKED];
    int64_t pointers[MARKED], begins[MARKED + 1] = {0}, documents = 0, tokens = 0, begin = 0;
    int8_t modes[MARKED];
    for (int i = 0; i < MARKED; i++) {
        lengths[i] = i * 7 % 6;
        pointers[i] = 2 * tokens;
        modes[i] = i % 3 == 0;
        if (i * i % 5 < 2) begin = tokens;
        if (i * i % 5 < 2) begins[documents++] = i;
        for (int j = 0; j < lengths[i]; j++, tokens++) {
            bin[tokens] = (uint16_t)tokens;
            out->document[tokens] = begin;
            out->silent[tokens] = modes[i];
        }
    }
    out->tokens = tokens;
    begins[documents] = MARKED;
    write_marked("m", 8, MARKED, lengths, pointers, documents, begins, modes);
    write_file("m.bin", bin, (size_t)tokens * 2);
    ech_token_file *file = open_tokens("m");
    assert_int_equal(file->runs.tokens, tokens);
    assert_int_equal(file->documents, documents);
    ech_token_file_close(file);
}

/* A row against what was written down; returns how many targets count. */
static int64_t check_marks(const marked_tokens *is, const ech_loader_options *options,
                           const ech_batch *batch, int64_t row, int64_t s)
{
    int64_t length = options->sequence_length, counted = 0, left = is->tokens - s * length;
    assert_int_equal(batch->lengths[row], left < length ? left : length);
    for (int64_t t = 0; t < length; t++) {
        int64_t at = row * length + t, p = s * length + t, q = p + 1;
        bool counts = q < is->tokens && !is->silent[q];
        if (options->document_mask && counts) counts = is->document[q] != q;
        assert_true(batch->weights[at] == (counts ? 1.0f : 0.0f));
        counted += counts;
        if (p >= is->tokens) p = is->tokens - 1;
        int64_t start = is->document[p] - s * length;
        if (options->document_mask) assert_int_equal(batch->starts[at], start > 0 ? start : 0);
    }
    return counted;
}

TEST(test_documents_and_prompts)
{
    marked_tokens is;
    write_marked_tokens(&is);
    for (int64_t length = 1; length <= 40; length++) {
        for (int mask = 0; mask < 2; mask++) {
            ech_loader_options options = sample_options();
            options.sequence_length = length;
            options.document_mask = mask;
            options.global_batch_size = options.micro_batch_size = 1;
            options.shuffle = false;
            ech_corpus *corpus = open_corpus(in_scratch("m"), length, mask);
            ech_loader *loader = start(corpus, options, 0);
            assert_int_equal(ech_corpus_samples(corpus), ech_data_samples(is.tokens, length));
            for (int64_t s = 0; s < ech_corpus_samples(corpus); s++) {
                const ech_batch *batch = next(loader, s);
                int64_t counted = check_marks(&is, &options, batch, 0, s);
                assert_true(batch->step_tokens == (double)counted);
                assert_int_equal(batch->starts != NULL, mask);
            }
            ech_loader_destroy(loader);
            ech_corpus_close(corpus);
        }
    }
}

/* Spelled out: two documents, 5 6 7 and 8 9; of the targets 6 7 8 9 all but 8 count. */
TEST(test_document_mask_of_the_golden_file)
{
    write_file("t.idx", golden_idx, sizeof golden_idx);
    write_file("t.bin", golden_bin, sizeof golden_bin);
    ech_corpus *corpus = open_corpus(in_scratch("t"), T, true);
    ech_loader_options options = sample_options();
    options.global_batch_size = options.micro_batch_size = 1;
    options.document_mask = true;
    options.last_position = 1;
    ech_loader *loader = start(corpus, options, 0);
    const ech_batch *batch = next(loader, 0);
    const int32_t starts[T] = {0, 0, 0, 3}, none[T] = {0};
    const float weights[T] = {1, 1, 0, 1};
    assert_memory_equal(batch->starts, starts, sizeof starts);
    assert_memory_equal(batch->weights, weights, sizeof weights);
    assert_true(batch->step_tokens == 3);
    assert_int_equal(batch->lengths[0], T);
    batch = next(loader, 1); /* padding */
    assert_memory_equal(batch->starts, none, sizeof none);
    assert_int_equal(batch->lengths[0], 0);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

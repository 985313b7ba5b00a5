/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader: what a step trains on, and how many tokens of it count, does not depend on the ranks,
 * the batches, the prefetch or an interruption; every sample comes once an epoch.
 */
#include "data/scratch.h"

#include <time.h>

#include "base/random.h"
#include "data/samples.h"

/* 40 samples of 4 tokens (the last has two pairs); sample s begins with token 4 s. */
enum { T = 4, TOKENS = 159, SAMPLES = 40, BATCH = 24 };

static ech_loader_options sample_options(void)
{
    return (ech_loader_options){.sequence_length = T,
                                .global_batch_size = BATCH,
                                .micro_batch_size = 2,
                                .data_degree = 1,
                                .vocabulary = 65000,
                                .shuffle = true,
                                .seed = 7,
                                .last_position = INT64_MAX,
                                .prefetch = 2};
}

/* A text of data.train as a corpus of samples of `length` tokens. */
static ech_corpus *open_corpus(const char *sources, int64_t length, bool document_mask)
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

static ech_corpus *counting_corpus(const char *name, int64_t tokens)
{
    ech_token_file_close(counting_file(name, tokens));
    return open_corpus(in_scratch(name), T, false);
}

static ech_loader *start(const ech_corpus *corpus, ech_loader_options options, int64_t step)
{
    ech_loader *loader;
    assert_int_equal(ech_loader_create(corpus, &options, step, &loader), ECH_OK);
    return loader;
}

static const ech_batch *next(ech_loader *loader, int64_t step)
{
    const ech_batch *batch;
    assert_int_equal(ech_loader_next(loader, step, &batch), ECH_OK);
    assert_int_equal(batch->step, step);
    return batch;
}

/* A row holds sample s as the rules in data.h say. */
static void assert_sample(const ech_batch *batch, int64_t row, int64_t s)
{
    for (int64_t t = 0; t < T; t++) {
        int64_t at = row * T + t, position = s * T + t;
        bool pair = position + 1 < TOKENS;
        assert_int_equal(batch->tokens[at], position < TOKENS ? position : 0);
        assert_int_equal(batch->targets[at], pair ? position + 1 : 0);
        assert_true(batch->weights[at] == (pair ? 1.0f : 0.0f));
    }
}

static void test_samples_of_a_file(void **state)
{
    (void)state;
    const int64_t expected[][3] = {
        {0, 4, 0},        {1, 4, 0},  {2, 4, 1},    {5, 4, 1}, {6, 4, 2},
        {9, 4, 2},        {10, 4, 3}, {159, 4, 40}, {3, 1, 2}, {INT64_MAX, 1, INT64_MAX - 1},
        {2, INT64_MAX, 1}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(ech_data_samples(expected[i][0], expected[i][1]), expected[i][2]);
}

static void test_validation_in_order(void **state)
{
    (void)state;
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_loader_options options = sample_options();
    options.shuffle = false;
    options.last_position = SAMPLES;
    ech_loader *loader = start(corpus, options, 0);
    for (int64_t step = 0; step < 3; step++) {
        const ech_batch *batch = next(loader, step);
        assert_int_equal(batch->micro_batches, 12);
        for (int64_t row = 0; row < BATCH; row++) {
            int64_t s = step * BATCH + row;
            assert_sample(batch, row, s < SAMPLES ? s : 1000);
        }
    }
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

/* The samples of a step over all replicas of a stage, in the order of the global micro-batches. */
static void gather_step(const ech_corpus *corpus, int degree, int64_t micro, int64_t step,
                        int64_t samples[BATCH])
{
    int64_t all = BATCH / micro, found = 0;
    memset(samples, -1, BATCH * sizeof *samples);
    for (int rank = 0; rank < degree; rank++) {
        ech_loader_options options = sample_options();
        options.data_degree = degree;
        options.data_rank = rank;
        options.micro_batch_size = micro;
        ech_loader *loader = start(corpus, options, step);
        const ech_batch *batch = next(loader, step);
        assert_in_range(batch->micro_batches, all / degree, (all + degree - 1) / degree);
        for (int64_t row = 0; row < batch->micro_batches * micro; row++, found++) {
            int64_t s = batch->tokens[row * T] / T;
            assert_sample(batch, row, s);
            int64_t q = row / micro * degree + rank, i = q * micro + row % micro;
            assert_in_range(i, 0, BATCH - 1);
            assert_int_equal(samples[i], -1); /* no other replica has it */
            samples[i] = s;
        }
        ech_loader_destroy(loader);
    }
    assert_int_equal(found, BATCH);
}

static void test_same_samples_under_any_layout(void **state)
{
    (void)state;
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    for (int64_t step = 0; step < 5; step++) {
        for (int degree = 1; degree <= 7; degree++) {
            for (int64_t micro = 1; micro <= BATCH / degree; micro++) {
                if (BATCH % micro != 0) continue;
                int64_t samples[BATCH];
                gather_step(corpus, degree, micro, step, samples);
                for (int64_t i = 0; i < BATCH; i++) {
                    uint64_t g = (uint64_t)(step * BATCH + i);
                    uint64_t s = ech_random_permute(7, g / SAMPLES, SAMPLES, g % SAMPLES);
                    assert_int_equal(samples[i], s);
                }
            }
        }
    }
    ech_corpus_close(corpus);
}

/* Three replicas and eight micro-batches, spelled out. */
static void test_unequal_shares(void **state)
{
    (void)state;
    const int64_t share[3][3] = {{0, 3, 6}, {1, 4, 7}, {2, 5, -1}};
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    for (int rank = 0; rank < 3; rank++) {
        ech_loader_options options = sample_options();
        options.micro_batch_size = 3;
        options.data_degree = 3;
        options.data_rank = rank;
        options.shuffle = false;
        ech_loader *loader = start(corpus, options, 0);
        const ech_batch *batch = next(loader, 0);
        assert_int_equal(batch->micro_batches, rank < 2 ? 3 : 2);
        for (int64_t row = 0; row < batch->micro_batches * 3; row++)
            assert_sample(batch, row, share[rank][row / 3] * 3 + row % 3);
        ech_loader_destroy(loader);
    }
    ech_corpus_close(corpus);
}

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

static void test_tokens_of_a_step(void **state)
{
    (void)state;
    ech_corpus *ragged = counting_corpus("ragged", TOKENS);
    ech_corpus *even = counting_corpus("even", SAMPLES * T + 1);
    for (int degree = 1; degree <= 5; degree++) {
        for (int64_t micro = 1; micro <= 3; micro++) {
            ech_loader_options options = sample_options();
            options.micro_batch_size = micro;
            assert_true(check_step_tokens(ragged, options, degree) == 3 * 158);
            assert_true(check_step_tokens(even, options, degree) == 3 * 160);
            options.shuffle = false;
            options.last_position = SAMPLES; /* in the second step, behind the last sample */
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
static void test_tokens_of_samples(void **state)
{
    (void)state;
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

/* A file of sequences of 0 to 5 tokens, token i with id i; most sequences go on with a document, and
 * a third of them are prompts. What belongs to each token is written down beside it. */
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
    assert_int_equal(ech_token_file_tokens(file), tokens);
    assert_int_equal(ech_token_file_documents(file), documents);
    ech_token_file_close(file);
}

/* A row against what was written down; returns how many targets count. */
static int64_t check_marks(const marked_tokens *is, const ech_loader_options *options,
                           const ech_batch *batch, int64_t row, int64_t s)
{
    int64_t length = options->sequence_length, counted = 0;
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

static void test_documents_and_prompts(void **state)
{
    (void)state;
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
static void test_document_mask_of_the_golden_file(void **state)
{
    (void)state;
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
    assert_memory_equal(next(loader, 1)->starts, none, sizeof none); /* padding */
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

static void test_every_sample_once_an_epoch(void **state)
{
    (void)state;
    enum { STEPS = 5, EPOCHS = STEPS * BATCH / SAMPLES };
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_loader *loader = start(corpus, sample_options(), 0);
    int64_t order[STEPS * BATCH];
    for (int64_t step = 0; step < STEPS; step++) {
        const ech_batch *batch = next(loader, step);
        for (int64_t row = 0; row < BATCH; row++)
            order[step * BATCH + row] = batch->tokens[row * T] / T;
    }
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        int seen[SAMPLES] = {0}, same_place = 0, in_place = 0;
        for (int i = 0; i < SAMPLES; i++) {
            const int64_t *at = &order[epoch * SAMPLES + i];
            seen[*at]++;
            in_place += *at == i;
            same_place += epoch > 0 && *at == at[-SAMPLES];
        }
        for (int s = 0; s < SAMPLES; s++) assert_int_equal(seen[s], 1);
        assert_true(same_place < SAMPLES / 4 && in_place < SAMPLES / 4);
    }
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

static void assert_same_batch(const ech_batch *a, const ech_batch *b, int64_t rows)
{
    size_t bytes = (size_t)(rows * T) * 4;
    assert_memory_equal(a->tokens, b->tokens, bytes);
    assert_memory_equal(a->targets, b->targets, bytes);
    assert_memory_equal(a->weights, b->weights, bytes);
}

static void test_resume_at_any_step_with_any_prefetch(void **state)
{
    (void)state;
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    for (int64_t first = 0; first < 9; first++) {
        ech_loader *through = start(corpus, sample_options(), 0);
        ech_loader_options options = sample_options();
        options.prefetch = (int)first % 5 + 1;
        ech_loader *resumed = start(corpus, options, first);
        for (int64_t step = 0; step < 12; step++) {
            const ech_batch *batch = next(through, step);
            if (step >= first) assert_same_batch(batch, next(resumed, step), BATCH);
        }
        ech_loader_destroy(through);
        ech_loader_destroy(resumed);
    }
    ech_corpus_close(corpus);
}

static void test_last_step_again(void **state)
{
    (void)state;
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_loader_options options = sample_options();
    options.prefetch = 1;
    ech_loader *loader = start(corpus, options, 3);
    const ech_batch *refused = NULL;
    const int64_t too_early[] = {2, 4, -1, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(ech_loader_next(loader, too_early[i], &refused), ECH_EINTERNAL);
    int32_t tokens[BATCH * T];
    for (int64_t step = 3; step < 8; step++) {
        memcpy(tokens, next(loader, step)->tokens, sizeof tokens);
        for (int again = 0; again < 3; again++)
            assert_memory_equal(next(loader, step)->tokens, tokens, sizeof tokens);
        assert_int_equal(ech_loader_next(loader, step - 1, &refused), ECH_EINTERNAL);
        assert_int_equal(ech_loader_next(loader, step + 2, &refused), ECH_EINTERNAL);
        assert_error_has("asked for after that of step");
        assert_null(refused);
    }
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

static void pause_thread(long microseconds)
{
    struct timespec time = {.tv_nsec = microseconds * 1000};
    nanosleep(&time, NULL);
}

/* Whatever the thread is at: not begun, filling, waiting for a free slot. */
static void test_destroyed_at_any_moment(void **state)
{
    (void)state;
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    for (int round = 0; round < 60; round++) {
        ech_loader_options options = sample_options();
        options.prefetch = round % 3 + 1;
        ech_loader *loader = start(corpus, options, round);
        for (int64_t step = 0; step < round % 4; step++) next(loader, round + step);
        if (round % 2) pause_thread(50L * round);
        ech_loader_destroy(loader);
    }
    ech_loader_destroy(NULL);
    ech_corpus_close(corpus);
}

static void test_huge_batch_is_not_waited_for(void **state)
{
    (void)state;
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_loader_options options = sample_options();
    options.global_batch_size = options.micro_batch_size = 1 << 20;
    ech_loader *loader = start(corpus, options, 0);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

static void test_errors_come_out_in_their_place(void **state)
{
    (void)state;
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_loader_options options = sample_options();
    options.shuffle = false;
    options.global_batch_size = options.micro_batch_size = 8;
    options.prefetch = 8;
    options.vocabulary = 100; /* token 100 is in sample 24, the first of step 3 */
    ech_loader *loader = start(corpus, options, 0);
    for (int64_t step = 0; step < 3; step++) next(loader, step);
    for (int again = 0; again < 2; again++) {
        const ech_batch *batch = NULL;
        ech_clear_error();
        assert_int_equal(ech_loader_next(loader, 3, &batch), ECH_EINPUT);
        assert_error_has("t.bin: token 100 of the stream has id 100, but the vocabulary has 100");
        assert_null(batch);
    }
    assert_sample(next(loader, 2), 0, 16);
    ech_loader_destroy(loader);

    /* Nor does who reads no token. */
    options.counts_only = true;
    loader = start(corpus, options, 3);
    assert_true(next(loader, 3)->step_tokens == 8 * T);
    ech_loader_destroy(loader);
    options.counts_only = false;

    /* Nobody comes to the error. */
    loader = start(corpus, options, 3);
    pause_thread(1000);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

static void test_positions_end_at_2_63(void **state)
{
    (void)state;
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    int64_t last = INT64_MAX / BATCH; /* its first positions are below 2^63, its last ones not */
    ech_loader *loader = start(corpus, sample_options(), last - 1);
    next(loader, last - 1);
    const ech_batch *batch;
    assert_int_equal(ech_loader_next(loader, last, &batch), ECH_EUSAGE);
    assert_error_has("more than 2^63 samples");
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

static void test_refused(void **state)
{
    (void)state;
    const int64_t length = 100000000;
    ech_token_file_close(counting_file("t", TOKENS));
    ech_corpus *corpus = open_corpus(in_scratch("t"), length, false);
    ech_loader_options options = sample_options();
    ech_loader *loader = NULL;
    options.global_batch_size = options.micro_batch_size = 1000000000;
    options.sequence_length = length;
    options.prefetch = 64;
    assert_int_equal(ech_loader_create(corpus, &options, 0, &loader), ECH_ENOMEM);
    assert_error_has("data.prefetch");
    assert_null(loader);

    options.counts_only = true; /* takes no memory for them */
    ech_loader_destroy(start(corpus, options, 0));
    ech_corpus_close(corpus);
}

/* A file that somebody cuts off while it is read, or whose index goes: an error in its place that
 * names the file, whatever the thread is at. */
static void test_file_cut_off_meanwhile(void **state)
{
    (void)state;
    for (int64_t left = 0; left < 2 * TOKENS; left += 37) {
        ech_corpus *corpus = counting_corpus("t", TOKENS);
        ech_loader_options options = sample_options();
        options.shuffle = false;
        options.global_batch_size = options.micro_batch_size = 1;
        options.prefetch = 1;
        ech_loader *loader = start(corpus, options, 0);
        next(loader, 0);
        assert_int_equal(truncate(in_scratch("t.idx"), 0), 0);
        assert_int_equal(truncate(in_scratch("t.bin"), (off_t)left), 0);
        const ech_batch *batch;
        ech_status st = ECH_OK;
        for (int64_t step = 1; step < SAMPLES && st == ECH_OK; step++) {
            st = ech_loader_next(loader, step, &batch);
            /* Two steps may have been read before it was cut. */
            int64_t end = 2 * ((step + 1) * T + 1);
            if (st != ECH_OK || step < 3) continue;
            assert_true(end <= left || end > 2 * TOKENS);
        }
        assert_int_equal(st, ECH_EINPUT);
        assert_error_has("t.bin: ends at byte");
        ech_loader_destroy(loader);
        ech_corpus_close(corpus);
    }
}

static void test_stalls(void **state)
{
    (void)state;
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_loader *loader = start(corpus, sample_options(), 0);
    for (int64_t step = 0; step < 20; step++) next(loader, step);
    assert_in_range(ech_loader_stalls(loader), 0, 20);
    int64_t before = ech_loader_stalls(loader);
    next(loader, 19); /* asked again: never a wait */
    assert_int_equal(ech_loader_stalls(loader), before);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(test_samples_of_a_file),
        SCRATCH_TEST(test_validation_in_order),
        SCRATCH_TEST(test_same_samples_under_any_layout),
        SCRATCH_TEST(test_unequal_shares),
        SCRATCH_TEST(test_tokens_of_samples),
        SCRATCH_TEST(test_tokens_of_a_step),
        SCRATCH_TEST(test_documents_and_prompts),
        SCRATCH_TEST(test_document_mask_of_the_golden_file),
        SCRATCH_TEST(test_every_sample_once_an_epoch),
        SCRATCH_TEST(test_resume_at_any_step_with_any_prefetch),
        SCRATCH_TEST(test_last_step_again),
        SCRATCH_TEST(test_destroyed_at_any_moment),
        SCRATCH_TEST(test_huge_batch_is_not_waited_for),
        SCRATCH_TEST(test_errors_come_out_in_their_place),
        SCRATCH_TEST(test_positions_end_at_2_63),
        SCRATCH_TEST(test_refused),
        SCRATCH_TEST(test_file_cut_off_meanwhile),
        SCRATCH_TEST(test_stalls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

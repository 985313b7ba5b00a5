/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader: what a step trains on does not depend on the ranks, the batches, the prefetch or an
 * interruption; every sample comes once an epoch. (How many tokens of it count:
 * test_loader_tokens.c.)
 */
#include "data/loaders.h"

#include <time.h>

#include "base/random.h"

TEST(test_samples_of_a_file)
{
    const int64_t expected[][3] = {
        {0, 4, 0},        {1, 4, 0},  {2, 4, 1},    {5, 4, 1}, {6, 4, 2},
        {9, 4, 2},        {10, 4, 3}, {159, 4, 40}, {3, 1, 2}, {INT64_MAX, 1, INT64_MAX - 1},
        {2, INT64_MAX, 1}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(ech_data_samples(expected[i][0], expected[i][1]), expected[i][2]);
}

TEST(test_validation_in_order)
{
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

TEST(test_same_samples_under_any_layout)
{
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
TEST(test_unequal_shares)
{
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

TEST(test_every_sample_once_an_epoch)
{
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

TEST(test_resume_at_any_step_with_any_prefetch)
{
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

TEST(test_last_step_again)
{
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
        assert_error_has("was requested after step");
        assert_null(refused);
    }
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

/* Whatever the thread is at: it goes on with the step that it is told. */
TEST(test_rewound_at_any_moment)
{
    enum { STEPS = 9 };
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    int32_t tokens[STEPS][BATCH * T];
    for (int prefetch = 1; prefetch <= 4; prefetch++) {
        ech_loader_options options = sample_options();
        options.prefetch = prefetch;
        ech_loader *loader = start(corpus, options, 0);
        for (int64_t step = 0; step < STEPS; step++)
            memcpy(tokens[step], next(loader, step)->tokens, sizeof tokens[step]);
        for (int round = 0; round < 200; round++) {
            int64_t first = round % 5, steps = round % 3;
            ech_loader_rewind(loader, first);
            for (int64_t step = first; step < first + steps; step++)
                assert_memory_equal(next(loader, step)->tokens, tokens[step], sizeof tokens[step]);
            const ech_batch *batch;
            assert_int_equal(ech_loader_next(loader, first + steps + 1, &batch), ECH_EINTERNAL);
        }
        ech_loader_destroy(loader);
    }
    ech_corpus_close(corpus);
}

static void pause_thread(long microseconds)
{
    struct timespec time = {.tv_nsec = microseconds * 1000};
    nanosleep(&time, NULL);
}

/* Whatever the thread is at: not begun, filling, waiting for a free slot. */
TEST(test_destroyed_at_any_moment)
{
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

TEST(test_huge_batch_is_not_waited_for)
{
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_loader_options options = sample_options();
    options.global_batch_size = options.micro_batch_size = 1 << 20;
    ech_loader *loader = start(corpus, options, 0);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

TEST(test_errors_come_out_in_their_place)
{
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

TEST(test_positions_end_at_2_63)
{
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

TEST(test_refused)
{
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
TEST(test_file_cut_off_meanwhile)
{
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

TEST(test_waits)
{
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_loader *loader = start(corpus, sample_options(), 0);
    for (int64_t step = 0; step < 20; step++) next(loader, step);
    assert_in_range(ech_loader_waits(loader), 0, 20);
    int64_t before = ech_loader_waits(loader);
    next(loader, 19); /* asked again: never a wait */
    assert_int_equal(ech_loader_waits(loader), before);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

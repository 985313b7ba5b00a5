/* SPDX-License-Identifier: Apache-2.0
 *
 * data.shards = static: shares are disjoint, each sample of a share is read once an epoch, and a
 * step's samples do not depend on the rank that reads them.
 */
#include "data/loaders.h"

#include "comm/collective.h"

enum { SHARES = 3, STEPS = 40 };

typedef struct reading {
    int seen[SAMPLES];
    int64_t drawn[SHARES];
} reading;

/* What a data rank reads is of the shares of its micro-batches; of a share each sample comes for
 * the k-th time before one comes for the next. */
static void read_all(const ech_corpus *corpus, ech_loader_options options, reading *r)
{
    ech_loader *loader = start(corpus, options, 0);
    int64_t micro = options.micro_batch_size;
    for (int64_t step = 0; step < STEPS; step++) {
        const ech_batch *batch = next(loader, step);
        for (int64_t row = 0; row < batch->micro_batches * micro; row++) {
            int64_t q = row / micro * options.data_degree + options.data_rank;
            int64_t s = batch->tokens[row * T] / T;
            int share = (int)(q % SHARES);
            int64_t first = ech_collective_shard_first(SAMPLES, SHARES, share);
            int64_t n = ech_collective_shard_count(SAMPLES, SHARES, share);
            assert_sample(batch, row, s);
            assert_in_range(s, first, first + n - 1);
            assert_int_equal(r->seen[s]++, r->drawn[share]++ / n);
        }
    }
    ech_loader_destroy(loader);
}

TEST(test_shares_are_apart)
{
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    for (int64_t micro = 1; micro <= 4; micro *= 2)
        for (int degree = 1; degree <= SHARES; degree += 2) {
            reading r = {{0}, {0}};
            for (int rank = 0; rank < degree; rank++) {
                ech_loader_options options = sample_options();
                options.micro_batch_size = micro;
                options.data_degree = degree;
                options.data_rank = rank;
                options.shares = SHARES;
                read_all(corpus, options, &r);
            }
            for (int d = 0; d < SHARES; d++) assert_int_equal(r.drawn[d], STEPS * BATCH / SHARES);
        }
    ech_corpus_close(corpus);
}

/* How often each sample is in a step. */
static void samples_of_step(const ech_corpus *corpus, int64_t micro, int64_t step,
                            int seen[SAMPLES])
{
    ech_loader_options options = sample_options();
    options.micro_batch_size = micro;
    options.shares = SHARES;
    ech_loader *loader = start(corpus, options, step);
    const ech_batch *batch = next(loader, step);
    memset(seen, 0, SAMPLES * sizeof *seen);
    for (int64_t row = 0; row < BATCH; row++) seen[batch->tokens[row * T] / T]++;
    ech_loader_destroy(loader);
}

TEST(test_micro_batches_change_no_step)
{
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    for (int64_t step = 0; step < 5; step++) {
        int one[SAMPLES], more[SAMPLES];
        samples_of_step(corpus, 1, step, one);
        samples_of_step(corpus, 4, step, more);
        assert_memory_equal(one, more, sizeof one);
    }
    ech_corpus_close(corpus);
}

/* Shares of as many samples are not drawn in the same order. */
TEST(test_shares_have_orders_of_their_own)
{
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_loader_options options = sample_options();
    options.micro_batch_size = 1;
    options.shares = 2;
    ech_loader *loader = start(corpus, options, 0);
    const ech_batch *batch = next(loader, 0);
    int alike = 0;
    for (int64_t row = 0; row < BATCH; row += 2)
        alike += batch->tokens[row * T] / T == batch->tokens[(row + 1) * T] / T - SAMPLES / 2;
    assert_true(alike < BATCH / 4);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

TEST(test_too_many_shares)
{
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    assert_int_equal(ech_corpus_check_shares(corpus, SAMPLES), ECH_OK);
    assert_int_equal(ech_corpus_check_shares(corpus, SAMPLES + 1), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "use at most 40"));
    ech_corpus_close(corpus);
}

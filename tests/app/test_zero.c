/* SPDX-License-Identifier: Apache-2.0
 *
 * ZeRO, in plans. At stage 2, where each micro-batch's gradients are summed by themselves, only
 * shards and the gradients under way are live. Optimizers that use rows and columns or whole
 * matrices shard their states, too. One rank shards nothing. probes/bits.c tests that sharding
 * changes no bit, and probes/shards.c the bytes.
 */
#include <math.h>
#include <string.h>

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { MOST = 8 };

static void each_plan(const char *family, int ranks, const char *words, int zero,
                      fixture_on_plan use, void *context)
{
    char more[700];
    snprintf(more, sizeof more,
             "%s parallel.zero=%d training.micro_batch_size=1 data.sequence_length=8 "
             "training.check_every=0 checkpoint.background=false",
             words, zero);
    fixture_each_plan(family, ranks, more, use, context);
}

/* ---- gradients ---- */

/* Returns the most bytes of gradients that may live at the same time: those being written, those of
 * the block before, which are being scattered, and, until the block begins, those of the one before
 * that. A tied table has more: the head begins a micro-batch while the one before is scattered. */
static int64_t most_under_way(const ech_plan *plan)
{
    int64_t kept = 0, largest[3] = {0};
    for (int block = 0; block < (int)plan->model->block.n; block++) {
        int64_t each = 0;
        for (size_t b = 0; b < plan->bucket.n; b++) {
            const ech_bucket *bucket = &plan->bucket.at[b];
            int64_t item = (int64_t)ech_dtype_bytes(bucket->dtype);
            if (bucket->block != block) continue;
            if (ech_bucket_scatters_each(bucket)) each += ech_align(bucket->elements * item, 64);
            kept += ech_align(
                (ech_bucket_scatters_each(bucket) ? bucket->shard : bucket->elements) * item, 64);
        }
        for (int i = 0; i < 3; i++) {
            int64_t was = largest[i];
            if (each <= was) continue;
            largest[i] = each;
            each = was;
        }
    }
    return kept + largest[0] + largest[1] + largest[2];
}

static void take_gradients(const ech_plan *plan, void *context)
{
    ((int64_t *)context)[plan->rank] = plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_GRADIENTS];
}

static void check_gradients(const ech_plan *plan, void *context)
{
    int64_t bytes = plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_GRADIENTS];
    assert_true(bytes <= most_under_way(plan));
    assert_true(bytes < ((const int64_t *)context)[plan->rank]);
}

/* Where there are blocks enough, and a block is done with a micro-batch before it begins the
 * next. */
TEST(test_gradients_under_way)
{
    static const struct {
        const char *family;
        int ranks;
        const char *words;
    } cases[] = {
        {"gpt2", 2, "parallel.data=2 training.global_batch_size=2 model.num_hidden_layers=5"},
        {"llama", 3,
         "parallel.data=3 training.global_batch_size=3 precision.compute=bf16 "
         "parallel.bucket_bytes=1"},
        {"gpt2", 3,
         "parallel.data=3 training.global_batch_size=9 parallel.reduction=ring "
         "parallel.bucket_bytes=1 model.num_hidden_layers=6"},
        {"gpt2", 2,
         "parallel.data=2 training.global_batch_size=8 precision.compute=bf16 "
         "precision.gradients=compute model.num_hidden_layers=8"},
        {"gpt2", 4,
         "parallel.data=2 parallel.tensor=2 parallel.sequence=true training.global_batch_size=6 "
         "optimizer.name=sgd optimizer.momentum=0.9 model.num_hidden_layers=6 "
         "model.tie_word_embeddings=false"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int64_t bytes[MOST] = {0};
        each_plan(cases[c].family, cases[c].ranks, cases[c].words, 1, take_gradients, bytes);
        each_plan(cases[c].family, cases[c].ranks, cases[c].words, 2, check_gradients, bytes);
    }
}

/* ---- states ---- */

static int64_t bytes_of_states(const ech_plan *plan)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < plan->persistent.n; i++)
        if (plan->persistent.at[i].kind == ECH_MEMORY_OPTIMIZER)
            bytes += plan->persistent.at[i].bytes;
    return bytes;
}

static void take_states(const ech_plan *plan, void *context)
{
    ((int64_t *)context)[plan->rank] = bytes_of_states(plan);
}

static void check_fewer(const ech_plan *plan, void *context)
{
    assert_true(bytes_of_states(plan) < ((const int64_t *)context)[plan->rank]);
}

/* Of a matrix' states ranks have those of their own rows, and of its columns. */
TEST(test_factored_states)
{
    static const struct {
        const char *family;
        int ranks;
        const char *words;
    } cases[] = {
        {"gpt2", 3,
         "parallel.data=3 training.global_batch_size=6 optimizer.name=adafactor "
         "optimizer.momentum=0.9 model.vocab_size=257"},
        {"llama", 8,
         "parallel.data=2 parallel.tensor=4 model.num_key_value_heads=2 optimizer.name=adafactor"},
        {"llama", 4,
         "parallel.data=2 parallel.tensor=2 optimizer.name=sm3 optimizer.momentum=0.9 "
         "parallel.bucket_bytes=1"},
        {"gpt2", 4, "parallel.data=2 parallel.context=2 optimizer.name=sm3"},
        {"gpt2", 3,
         "parallel.data=3 training.global_batch_size=6 optimizer.name=muon "
         "optimizer.momentum=0.95 optimizer.nesterov=true"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int64_t bytes[MOST] = {0};
        each_plan(cases[c].family, cases[c].ranks, cases[c].words, 0, take_states, bytes);
        for (int zero = 1; zero < 3; zero++)
            each_plan(cases[c].family, cases[c].ranks, cases[c].words, zero, check_fewer, bytes);
    }
}

static void check_alone(const ech_plan *plan, void *context)
{
    assert_int_equal(bytes_of_states(plan), *(const int64_t *)context);
    assert_int_equal(ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes, 0);
}

/* With one rank nothing is shared out, and nothing is sent. */
TEST(test_alone)
{
    int64_t bytes = 0;
    each_plan("gpt2", 1, "precision.compute=bf16", 0, take_states, &bytes);
    for (int zero = 1; zero < 4; zero++)
        each_plan("gpt2", 1, "precision.compute=bf16", zero, check_alone, &bytes);
}

ALL_TESTS(fixture_setup, fixture_teardown)

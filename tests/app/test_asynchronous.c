/* SPDX-License-Identifier: Apache-2.0
 *
 * Asynchronous schedules: batches and calendars that are refused (pairs of features are
 * config/test_rules.c), and that the comparison with the serial replay can fail. The lattice
 * compares them with their replay.
 */

#include "app/runs.h"
#include "app/verify/verify.h"
#include "unit.h"

TEST(test_refused)
{
    static const char *const more[] = {
        "parallel.schedule=pipedream-2bw training.global_batch_size=2",
        "parallel.schedule=pipedream training.steps=7 parallel.flush_every=2",
        "parallel.schedule=pipedream-2bw checkpoint.every=3 parallel.flush_every=2",
        "parallel.schedule=pipedream-2bw parallel.vertical_sync=true",
        "parallel.schedule=pipedream parallel.virtual_stages=2",
    };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char words[400];
        snprintf(words, sizeof words, "parallel.pipeline=3 training.micro_batch_size=1 %s",
                 more[i]);
        assert_int_equal(runs_try("llama", "refused", 3, words), ECH_EUSAGE);
    }
    assert_int_equal(runs_try("llama", "refused", 3,
                              "parallel.stage_replicas=[2,1] parallel.schedule=pipedream "
                              "training.global_batch_size=3 training.micro_batch_size=1"),
                     ECH_EUSAGE);
    runs_remove("refused");
}

/* A tolerance of zero is not met where two replicas sum up in another order. */
TEST(test_fails_when_it_should)
{
    ech_verification v = {.steps = 4};
    assert_true(fixture_runs("gpt2",
                             "model.tie_word_embeddings=false parallel.schedule=pipedream "
                             "parallel.pipeline=2 training.micro_batch_size=1",
                             4, ech_verify_rank, &v));
    assert_false(v.passed);
    assert_true(v.replayed && v.first_bad[0] && v.worst > 0 && v.worst < ECH_TOLERANCE);
}

ALL_TESTS(fixture_setup, fixture_teardown)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Asynchronous schedules: that the delay is real; what is refused; and that the comparison with the
 * serial replay can fail. That they are their replay is the lattice's.
 */

#include "app/runs.h"
#include "app/verify/verify.h"
#include "unit.h"

/* ---- the delay is real ---- */

static const char run_words[] = "training.steps=6 parallel.flush_every=6 precision.compute=fp64 "
                                "training.global_batch_size=4 training.micro_batch_size=1";

static void train(const char *name, const char *schedule)
{
    char more[400];
    snprintf(more, sizeof more, "parallel.pipeline=3 parallel.schedule=%s %s", schedule, run_words);
    runs_train("llama", name, 3, more);
}

/* Each way of being late trains other weights than all others, by far more than rounding. */
TEST(test_weights_differ_from_synchronous)
{
    static const char *const all[] = {"1f1b", "pipedream", "pipedream parallel.vertical_sync=true",
                                      "pipedream parallel.weight_stashing=false", "pipedream-2bw"};
    static const char *const names[] = {"synchronous", "stashed", "vertical", "unstashed", "2bw"};
    for (int i = 0; i < 5; i++) train(names[i], all[i]);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++) {
            double apart = runs_apart(names[i], names[j], 6, runs_model);
            if (!(apart > 1e-4)) fail_msg("%s and %s: %g", names[i], names[j], apart);
        }
    for (int i = 0; i < 5; i++) runs_remove(names[i]);
}

/* One stage alone is never late, but with two versions of the weights. */
TEST(test_one_stage_is_not_late)
{
    char more[300];
    static const char *const schedules_[] = {"1f1b", "pipedream", "pipedream-2bw"};
    for (int i = 0; i < 3; i++) {
        snprintf(more, sizeof more, "parallel.schedule=%s %s", schedules_[i], run_words);
        runs_train("llama", schedules_[i], 1, more);
    }
    assert_true(runs_same("1f1b", "pipedream", 6));
    assert_true(runs_apart("1f1b", "pipedream-2bw", 6, runs_model) > 1e-4);
    for (int i = 0; i < 3; i++) runs_remove(schedules_[i]);
}

/* ---- refusals ---- */

TEST(test_refused)
{
    static const char *const more[] = {
        "parallel.schedule=pipedream model.tie_word_embeddings=true",
        "parallel.schedule=pipedream-2bw training.global_batch_size=2",
        "parallel.schedule=pipedream training.steps=7 parallel.flush_every=2",
        "parallel.schedule=pipedream-2bw checkpoint.every=3 parallel.flush_every=2",
        "parallel.schedule=pipedream parallel.vertical_sync=true parallel.weight_stashing=false",
        "parallel.schedule=pipedream-2bw parallel.vertical_sync=true",
        "parallel.schedule=1f1b parallel.weight_stashing=false",
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of pipelines: what was saved by one rule of late weights another goes on with. That
 * one layout goes on with what another one saved is probes/moves.c, with what it saved itself
 * probes/resumes.c.
 */

#include "app/runs.h"
#include "unit.h"

typedef struct shape {
    int ranks;
    const char *more;
} shape;

enum { HALF = 3, WHOLE = 6 };

static const char fixed[] = "training.steps=6 checkpoint.every=3 precision.compute=fp64 "
                            "training.global_batch_size=12 training.micro_batch_size=2 "
                            "model.num_hidden_layers=4 parallel.flush_every=3";

static const shape synchronous[] = {
    {1, "parallel.pipeline=1"},
    {6, "parallel.pipeline=2 parallel.data=3"},
    {2, "parallel.pipeline=2 parallel.virtual_stages=3 parallel.schedule=interleaved"},
    {3, "parallel.pipeline=3 parallel.schedule=zero-bubble"},
};

static void train(const char *architecture, const char *name, const shape *s, const char *more)
{
    char words[600];
    snprintf(words, sizeof words, "%s %s %s", fixed, s->more, more);
    runs_train(architecture, name, s->ranks, words);
}

/* Half of the run under one layout, half under the other. */
static void train_in_halves(const char *architecture, const char *name, const shape *first,
                            const shape *second, const char *more)
{
    train(architecture, name, first, more);
    runs_remove_checkpoint(name, WHOLE);
    train(architecture, name, second, more);
}

static const shape two_bw[] = {{2, "parallel.pipeline=2 parallel.schedule=pipedream-2bw"},
                               {1, "parallel.schedule=pipedream-2bw"},
                               {6, "parallel.pipeline=3 parallel.data=2 "
                                   "parallel.schedule=pipedream-2bw"}};

/* From `from` on, two layouts that train by the same rule go the same way. */
static void assert_same_way(const shape *from, const shape *to, const shape *other)
{
    train_in_halves("llama", "one", from, to, "");
    train_in_halves("llama", "two", from, other, "");
    double apart = runs_apart("one", "two", WHOLE, runs_model);
    if (!(apart < 1e-10)) fail_msg("from %s to %s: %g", from->more, to->more, apart);
    runs_remove("one");
    runs_remove("two");
}

TEST(test_moves_between_rules)
{
    assert_same_way(&two_bw[0], &synchronous[1], &synchronous[0]);
    assert_same_way(&two_bw[2], &synchronous[2], &synchronous[0]);
    assert_same_way(&synchronous[2], &two_bw[0], &two_bw[1]);
    assert_same_way(&synchronous[1], &two_bw[2], &two_bw[1]);
    assert_same_way(&two_bw[1], &two_bw[0], &two_bw[2]);
    const shape pipedream = {3, "parallel.pipeline=3 parallel.schedule=pipedream"};
    assert_same_way(&pipedream, &synchronous[3], &synchronous[0]);
}

/* Two versions of the weights are saved, and both are needed: no layout between shows. */
TEST(test_moves_both_versions)
{
    /* Without clipping, which asynchronous stages do each by its own norm. */
    const char *sgd = "optimizer.name=sgd optimizer.clip_norm=0";
    train("gpt2", "whole", &two_bw[1], sgd);
    for (int i = 0; i < 3; i++) {
        train_in_halves("gpt2", "moved", &two_bw[i], &two_bw[(i + 1) % 3], sgd);
        double apart = runs_apart("moved", "whole", WHOLE, runs_model);
        if (!(apart < 1e-10)) fail_msg("from %s: %g", two_bw[i].more, apart);
        assert_true(runs_apart("moved", "whole", WHOLE, runs_state) < 1e-10);
        runs_remove("moved");
    }
    runs_remove("whole");
}

/* The same with parallel.flush_every left to itself: it belongs to asynchronous schedules alone. */
TEST(test_moves_between_rules_by_default)
{
    const char *const schedules[] = {"1f1b", "pipedream-2bw"};
    for (int i = 0; i < 2; i++) {
        for (int half = 0; half < 2; half++) {
            char more[300];
            snprintf(more, sizeof more,
                     "parallel.pipeline=2 parallel.schedule=%s training.steps=6 "
                     "checkpoint.every=3 training.micro_batch_size=2",
                     schedules[(i + half) % 2]);
            assert_int_equal(runs_try("llama", "moved", 2, more), ECH_OK);
            if (half == 0) runs_remove_checkpoint("moved", WHOLE);
        }
        assert_true(runs_has_checkpoint("moved", WHOLE));
        runs_remove("moved");
    }
}

/* A checkpoint from within a span: refused, or gone on with to the last step, which is saved. */
TEST(test_resumes_within_a_span)
{
    const char *rest = "parallel.pipeline=2 training.micro_batch_size=2 parallel.flush_every=2";
    char more[300];
    snprintf(more, sizeof more, "%s training.steps=3", rest);
    runs_train("llama", "within", 2, more);
    snprintf(more, sizeof more, "%s training.steps=8 parallel.schedule=pipedream-2bw", rest);
    ech_status status = runs_try("llama", "within", 2, more);
    assert_true(status == ECH_EUSAGE || (status == ECH_OK && runs_has_checkpoint("within", 8)));
    runs_remove("within");
}

ALL_TESTS(fixture_setup, fixture_teardown)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of pipelines: what one layout saved another goes on with, and every layout validates
 * to the same loss. That a resumed run is the same run is probes/resumes.c.
 */

#include "app/runs.h"
#include "share.h"
#include "unit.h"

typedef struct shape {
    int ranks;
    const char *more;
} shape;

/* ---- the same layout ---- */

enum { HALF = 3, WHOLE = 6 };

/* ---- another layout ---- */

static const char fixed[] = "training.steps=6 checkpoint.every=3 precision.compute=fp64 "
                            "training.global_batch_size=12 training.micro_batch_size=2 "
                            "model.num_hidden_layers=4 parallel.flush_every=3";

static const shape synchronous[] = {
    {1, "parallel.pipeline=1"},
    {2, "parallel.pipeline=2 parallel.schedule=gpipe"},
    {6, "parallel.pipeline=2 parallel.data=3"},
    {2, "parallel.pipeline=2 parallel.virtual_stages=3 parallel.schedule=interleaved"},
    {4, "parallel.stage_replicas=[1,3] parallel.partition=[3,1]"},
    {3, "parallel.pipeline=3 parallel.schedule=zero-bubble"},
    {3, "parallel.pipeline=3 parallel.schedule=zero-bubble-v"},
    {4, "parallel.pipeline=4 parallel.schedule=naive parallel.partition=[0,1,3,0]"},
    {6, "parallel.pipeline=3 parallel.data=2 parallel.virtual_stages=2 "
        "parallel.schedule=interleaved"},
};
enum { SYNCHRONOUS = sizeof synchronous / sizeof *synchronous };

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

/* From each of them to the one `step` behind it. */
static void move_between_layouts(const char *architecture, int step, const char *more)
{
    train(architecture, "whole", &synchronous[0], more);
    for (int i = 0; i < SYNCHRONOUS; i++) {
        if (!share_takes()) continue;
        const shape *from = &synchronous[i], *to = &synchronous[(i + step) % SYNCHRONOUS];
        train_in_halves(architecture, "moved", from, to, more);
        double apart = fmax(runs_apart("moved", "whole", WHOLE, runs_model),
                            runs_apart("moved", "whole", WHOLE, runs_state));
        if (!(apart < 1e-10))
            fail_msg("%s from %s to %s: %g", architecture, from->more, to->more, apart);
        runs_remove("moved");
    }
    runs_remove("whole");
}

TEST(test_moves_between_layouts)
{
    move_between_layouts("llama", 1, "model.tie_word_embeddings=false");
    move_between_layouts("gpt2", 3, "model.tie_word_embeddings=true optimizer.eps=1e-6");
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
    assert_same_way(&two_bw[0], &synchronous[2], &synchronous[0]);
    assert_same_way(&two_bw[2], &synchronous[3], &synchronous[0]);
    assert_same_way(&synchronous[3], &two_bw[0], &two_bw[1]);
    assert_same_way(&synchronous[2], &two_bw[2], &two_bw[1]);
    assert_same_way(&two_bw[1], &two_bw[0], &two_bw[2]);
    const shape pipedream = {3, "parallel.pipeline=3 parallel.schedule=pipedream"};
    assert_same_way(&pipedream, &synchronous[5], &synchronous[0]);
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

/* ---- validation ---- */

TEST(test_validates_the_same)
{
    static const char *const sets[] = {
        "training.steps=0 data.sequence_length=37",
        "training.steps=0 training.validate_samples=50",
        "training.steps=3 model.tie_word_embeddings=true",
    };
    for (int i = 0; i < 3; i++) {
        const char *architecture = i % 2 ? "gpt2" : "llama";
        train(architecture, "valid", &synchronous[0], sets[i]);
        double expected = runs_validation_loss("valid");
        assert_true(expected > 1 && expected < 10);
        runs_remove("valid");
        for (int s = 1; s < SYNCHRONOUS + (i < 2 ? 3 : 0); s++) {
            if (!share_takes()) continue;
            const shape *l = s < SYNCHRONOUS ? &synchronous[s] : &two_bw[s - SYNCHRONOUS];
            train(architecture, "valid", l, sets[i]);
            double loss = runs_validation_loss("valid");
            if (!(fabs(loss - expected) < 1e-12))
                fail_msg("%s: %.17g, not %.17g", l->more, loss, expected);
            runs_remove("valid");
        }
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Asynchronous schedules against their serial replay, in fp64, on the local backend; that the delay
 * is real; and what is refused.
 */

#include "app/cover.h"
#include "app/runs.h"
#include "app/verify/verify.h"
#include "share.h"
#include "unit.h"

static ech_verification verify(const char *architecture, int ranks, int64_t steps, double tolerance,
                               const char *more)
{
    ech_config *config = fixture_config(architecture, more);
    ech_verification v = {.steps = steps, .tolerance = tolerance};
    ech_status status = fixture_run(config, ranks, ech_verify_rank, &v);
    if (status != ECH_OK)
        fail_msg("%s on %d ranks with %s: %s", architecture, ranks, more, ech_last_error());
    ech_config_destroy(config);
    return v;
}

/* ---- a cover ---- */

enum factor {
    ARCHITECTURE,
    SCHEDULE,
    DEPTH,
    MICRO_BATCHES,
    DATA,
    FLUSH,
    OPTIMIZER,
    CLIP,
    DROPOUT,
    LENGTH,
    BUCKET,
    ZERO,
    FACTORS
};

static const char *const architectures[] = {"gpt2", "llama", "qwen3"};
static const char *const schedules[] = {"pipedream-2bw", "pipedream",
                                        "pipedream parallel.vertical_sync=true",
                                        "pipedream parallel.weight_stashing=false"};
static const char *const optimizers[] = {"name=sgd",
                                         "name=sgd optimizer.momentum=0.9 optimizer.nesterov=true",
                                         "name=adamw", "name=adamw optimizer.eps=1e-6"};
static const char *const clips[] = {"0", "0.1"}; /* norms are about 1 */
static const char *const dropouts[] = {"0", "0.1"};
static const char *const lengths[] = {"9", "37"};
static const char *const buckets[] = {"8KiB", "1"};
static const int levels[FACTORS] = {
    [ARCHITECTURE] = 3, [SCHEDULE] = 4, [DEPTH] = 4,  [MICRO_BATCHES] = 5,
    [DATA] = 2,         [FLUSH] = 7,    [CLIP] = 2,   [OPTIMIZER] = 4,
    [DROPOUT] = 2,      [LENGTH] = 2,   [BUCKET] = 2, [ZERO] = 2};

static bool is_feasible(const cover_case *c)
{
    return c->level[SCHEDULE] > 0 || c->level[MICRO_BATCHES] >= c->level[DEPTH];
}

static void verify_case(const cover_case *c)
{
    if (!share_takes()) return;
    const int *x = c->level;
    int p = x[DEPTH] + 1, m = x[MICRO_BATCHES] + 1, data = x[DATA] + 1, flush = x[FLUSH] + 2;
    const char *architecture = architectures[x[ARCHITECTURE]];
    char more[600];
    snprintf(more, sizeof more,
             "model.tie_word_embeddings=false parallel.schedule=%s parallel.pipeline=%d "
             "parallel.flush_every=%d training.steps=%d training.check_every=0 "
             "training.micro_batch_size=1 training.global_batch_size=%d optimizer.%s "
             "optimizer.clip_norm=%s model.resid_pdrop=%s data.sequence_length=%s "
             "parallel.bucket_bytes=%s parallel.zero=%d",
             schedules[x[SCHEDULE]], p, flush, 3 * flush, m * data, optimizers[x[OPTIMIZER]],
             clips[x[CLIP]], dropouts[x[DROPOUT]], lengths[x[LENGTH]], buckets[x[BUCKET]], x[ZERO]);
    ech_verification v = verify(architecture, p * data, 2 * flush, ECH_TOLERANCE, more);
    if (!v.passed || !v.replayed || v.exact)
        fail_msg("%s with %s: %g at %s", architecture, more, v.worst, v.first_bad);
    assert_true(v.compared > 1000);
    if (data == 1 && x[CLIP] == 0 && v.worst > 0)
        fail_msg("%s with %s: not the same bits: %g at %s", architecture, more, v.worst,
                 v.worst_at);
}

TEST(test_cover)
{
    cover *c = cover_make_of_levels(FACTORS, levels, is_feasible, 90);
    for (size_t i = 0; i < c->cases.n; i++) verify_case(&c->cases.at[i]);
    cover_free(c);
}

/* ---- stages with unequal replicas ---- */

TEST(test_stage_replicas)
{
    static const struct {
        const char *list;
        int ranks, unit; /* a step's micro-batches are a multiple of it */
    } cases[] = {{"[2,1]", 3, 2}, {"[1,2]", 3, 2},   {"[2,1,2]", 5, 2},
                 {"[1,3]", 4, 3}, {"[3,1,1]", 5, 3}, {"[2,3]", 5, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int s = 1; s < 4; s++)
            for (int times = 1; times <= 2; times++) {
                if (!share_takes()) continue;
                char more[500];
                snprintf(more, sizeof more,
                         "model.tie_word_embeddings=false parallel.schedule=%s "
                         "parallel.stage_replicas=%s parallel.flush_every=4 training.steps=8 "
                         "training.micro_batch_size=1 training.global_batch_size=%d "
                         "training.check_every=0 optimizer.name=sgd model.attn_pdrop=0.1 "
                         "parallel.zero=%d",
                         schedules[s], cases[i].list, times * cases[i].unit, times - 1);
                ech_verification v =
                    verify(s % 2 ? "gpt2" : "llama", cases[i].ranks, 8, ECH_TOLERANCE, more);
                if (!v.passed) fail_msg("%s: %g at %s", more, v.worst, v.first_bad);
            }
}

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
/* A stage's norm is that of all shards of its ranks. */
TEST(test_shards_of_a_stage)
{
    static const char *const more[] = {"parallel.tensor=2", "parallel.data=2 parallel.zero=1",
                                       "parallel.context=3 data.sequence_length=12"};
    for (int i = 0; i < 3; i++) {
        char words[400];
        snprintf(words, sizeof words,
                 "model.tie_word_embeddings=false parallel.schedule=pipedream parallel.pipeline=2 "
                 "parallel.flush_every=2 training.steps=4 training.micro_batch_size=1 "
                 "training.global_batch_size=4 training.check_every=0 optimizer.name=sgd "
                 "optimizer.clip_norm=0.01 %s",
                 more[i]);
        ech_verification v = verify("llama", i < 2 ? 4 : 6, 4, ECH_TOLERANCE, words);
        if (!v.passed) fail_msg("%s: %g at %s", words, v.worst, v.first_bad);
    }
}

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

/* ---- bit by bit in fp32 ---- */

TEST(test_bits)
{
    static const char *const all[] = {"name=sgd", "name=sgd optimizer.momentum=0.9", "name=adamw"};
    for (int s = 0; s < 4; s++)
        for (int o = 0; o < 3; o++) {
            if (!share_takes()) continue;
            char more[400];
            snprintf(more, sizeof more,
                     "parallel.pipeline=2 parallel.schedule=%s optimizer.%s optimizer.clip_norm=0 "
                     "training.micro_batch_size=2 training.global_batch_size=8 "
                     "model.tie_word_embeddings=false",
                     schedules[s], all[o]);
            ech_config *config = fixture_config("llama", more);
            ech_verification v = {.steps = 8, .own_precision = true};
            assert_int_equal(fixture_run(config, 2, ech_verify_rank, &v), ECH_OK);
            if (!v.passed || !v.replayed) fail_msg("%s: %g at %s", more, v.worst, v.first_bad);
            assert_true(v.compared > 1000);
            ech_config_destroy(config);
        }
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
    ech_verification v = verify("gpt2", 4, 4, 0,
                                "model.tie_word_embeddings=false parallel.schedule=pipedream "
                                "parallel.pipeline=2 training.micro_batch_size=1");
    assert_false(v.passed);
    assert_true(v.replayed && v.first_bad[0] && v.worst > 0 && v.worst < ECH_TOLERANCE);
}

ALL_TESTS(fixture_setup, fixture_teardown)

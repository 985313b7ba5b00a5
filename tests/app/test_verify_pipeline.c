/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines against one rank, in fp64, on the local backend, that the lattice does not have: orders
 * written by hand; stages with unequal replicas; batches that wrap over a padded sample.
 */

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "share.h"
#include "unit.h"

static ech_verification verify(const char *architecture, int ranks, const char *more)
{
    ech_config *config = fixture_config(architecture, more);
    ech_verification v = {.steps = 3, .tolerance = ECH_TOLERANCE};
    ech_status status = fixture_run(config, ranks, ech_verify_rank, &v);
    if (status != ECH_OK)
        fail_msg("%s on %d ranks with %s: %s", architecture, ranks, more, ech_last_error());
    ech_config_destroy(config);
    return v;
}

/* `exact`: nothing that may change a bit differs from one rank, so none has. */
static void assert_passes(const char *architecture, int ranks, const char *more, bool exact)
{
    if (!share_takes()) return;
    ech_verification v = verify(architecture, ranks, more);
    if (!v.passed)
        fail_msg("%s on %d ranks with %s: %g at %s", architecture, ranks, more, v.worst,
                 v.first_bad);
    assert_true(v.compared > 1000);
    if (v.exact != exact)
        fail_msg("%s on %d ranks with %s: exact is %d", architecture, ranks, more, v.exact);
    if (exact && v.worst != 0)
        fail_msg("%s on %d ranks with %s: not the same bits: %g at %s", architecture, ranks, more,
                 v.worst, v.worst_at);
}

static const char *const reductions[] = {"direct", "ring", "naive"};

/* ---- orders written by hand ---- */

typedef struct by_hand {
    int stages, chunks, micro_batches;
    const char *text;
} by_hand;

/* What no generator makes: late weights, chunks in turns, stages that differ in style. */
static const by_hand orders[] = {
    {1, 1, 3, "F0.0 F0.1 B0.0 F0.2 B0.1 W0.0 B0.2 W0.1 W0.2\n"},
    {2, 1, 3,
     "# late weights, and three in flight\n"
     "F0.0 F0.1 F0.2 B0.0 W0.0 B0.1 B0.2 W0.1 W0.2\n"
     "F0.0 B0.0 F0.1 F0.2 B0.1 W0.0 W0.1 B0.2 W0.2\n"},
    {2, 1, 4,
     "F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3 # like gpipe\n"
     "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3 # like naive\n"},
    {3, 1, 2,
     "F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\n"
     "F0.0 F0.1 B0.0 B0.1 W0.0 W0.1\n"
     "F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\n"},
    {2, 2, 2,
     "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1\n"
     "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1\n"},
    {2, 2, 3,
     "F0.0 F1.0 F0.1 F1.1 F0.2 F1.2 B1.0 B0.0 B1.1 W1.0 B0.1 W0.0 B1.2 B0.2 W1.1 W0.1 W1.2 W0.2\n"
     "F0.0 F1.0 F0.1 B1.0 F1.1 F0.2 B0.0 W1.0 W0.0 B1.1 W1.1 F1.2 B0.1 B1.2 B0.2 W0.1 W0.2 W1.2\n"},
};

TEST(test_orders_by_hand)
{
    char path[300], more[700];
    snprintf(path, sizeof path, "%s/order.txt", fixture_folder);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        const by_hand *o = &orders[i];
        assert_int_equal(ech_file_write(path, o->text, strlen(o->text)), ECH_OK);
        for (int data = 1; data <= 2; data++) {
            snprintf(more, sizeof more,
                     "parallel.schedule=%s parallel.pipeline=%d parallel.virtual_stages=%d "
                     "training.micro_batch_size=2 training.global_batch_size=%d "
                     "model.tie_word_embeddings=false model.resid_pdrop=0.1",
                     path, o->stages, o->chunks, 2 * data * o->micro_batches);
            assert_passes(i % 2 ? "llama" : "gpt2", o->stages * data, more, data == 1);
        }
        snprintf(more, sizeof more,
                 "parallel.schedule=%s parallel.pipeline=%d parallel.virtual_stages=%d "
                 "training.micro_batch_size=1 training.global_batch_size=%d "
                 "model.tie_word_embeddings=true",
                 path, o->stages, o->chunks, o->micro_batches);
        ech_verification v = verify("gpt2", o->stages, more);
        assert_true(v.passed);
        assert_true(!v.exact || v.worst == 0);
    }
}

/* ---- stages with unequal replicas ---- */

TEST(test_stage_replicas)
{
    static const char *const lists[] = {"[3,1]", "[1,3]", "[1,2,1]", "[2,1,2]"};
    static const char *const tolerant[] = {"gpipe", "1f1b", "naive"};
    static const int ranks[] = {4, 4, 4, 5};
    for (int l = 0; l < 4; l++)
        for (int s = 0; s < 3; s++)
            for (int m = 3; m <= 7; m += 2) { /* odd: replicas have unequal work */
                char more[400];
                snprintf(more, sizeof more,
                         "parallel.stage_replicas=%s parallel.schedule=%s "
                         "training.micro_batch_size=2 training.global_batch_size=%d "
                         "model.tie_word_embeddings=%s model.embd_pdrop=0.1 "
                         "model.attn_pdrop=0.1 parallel.reduction=%s",
                         lists[l], tolerant[s], 2 * m, (l + m) % 4 ? "true" : "false",
                         reductions[s]);
                assert_passes(s % 2 ? "gpt2" : "llama", ranks[l], more, false);
            }
}

/* ---- the rest ---- */

/* 17 samples of 60 tokens, the last padded; 3 steps of 8 go over the end of the epoch. */
TEST(test_wraps_over_a_padded_sample)
{
    assert_int_equal(ech_data_samples(1000, 60), 17);
    static const char *const layouts[] = {
        "parallel.pipeline=2 parallel.schedule=1f1b",
        "parallel.pipeline=4 parallel.schedule=gpipe",
        "parallel.pipeline=2 parallel.virtual_stages=2 parallel.schedule=interleaved",
        "parallel.pipeline=4 parallel.schedule=zero-bubble",
        "parallel.stage_replicas=[2,1,1] parallel.schedule=1f1b",
        "parallel.pipeline=2 parallel.data=2 parallel.schedule=zero-bubble-v",
    };
    for (int i = 0; i < 6; i++) {
        char more[300];
        snprintf(more, sizeof more,
                 "%s data.sequence_length=60 training.global_batch_size=8 "
                 "training.micro_batch_size=1 model.tie_word_embeddings=%s",
                 layouts[i], i % 2 ? "true" : "false");
        assert_passes(i % 2 ? "llama" : "gpt2", i == 0 ? 2 : 4, more, i == 0);
    }
}

/* With a tolerance of zero the different order of sums must show; and it is said of whom. */
TEST(test_fails_when_it_should)
{
    ech_config *config = fixture_config(
        "gpt2", "parallel.pipeline=3 training.micro_batch_size=2 model.tie_word_embeddings=true");
    ech_verification v = {.steps = 3, .tolerance = 0};
    assert_int_equal(fixture_run(config, 3, ech_verify_rank, &v), ECH_OK);
    assert_false(v.passed || v.exact);
    assert_true(v.first_bad[0] && v.worst > 0 && v.worst < ECH_TOLERANCE);
    ech_config_destroy(config);
}

ALL_TESTS(fixture_setup, fixture_teardown)

/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline changes no bit: in bf16 and fp16 with one replica against one rank, in fp32 with two
 * replicas against two without a pipeline. In fp64 the lattice shows it for every schedule and
 * depth.
 */

#include "app/runs.h"
#include "app/verify/verify.h"
#include "share.h"
#include "unit.h"

static ech_verification verify_bits(const char *architecture, int ranks, const char *more)
{
    ech_config *config = fixture_config(architecture, more);
    ech_verification v = {.steps = 3, .own_precision = true};
    assert_int_equal(fixture_run(config, ranks, ech_verify_rank, &v), ECH_OK);
    ech_config_destroy(config);
    return v;
}

static void assert_same_bits_in(const char *precision, const char *schedule, int p, int v, int m)
{
    static int turn;
    char more[400];
    snprintf(more, sizeof more,
             "%s parallel.schedule=%s parallel.pipeline=%d parallel.virtual_stages=%d "
             "training.micro_batch_size=2 training.global_batch_size=%d "
             "model.num_hidden_layers=%d model.tie_word_embeddings=false model.resid_pdrop=0.1",
             precision, schedule, p, v, 2 * m, p * v > 4 ? p * v : 4);
    const char *architecture = turn++ % 2 ? "gpt2" : "llama";
    if (!share_takes()) return;
    ech_verification r = verify_bits(architecture, p, more);
    if (!r.passed || !r.exact)
        fail_msg("%s with %s: exact %d, %g at %s", architecture, more, r.exact, r.worst,
                 r.first_bad);
    assert_true(r.compared > 1000);
}

/* Masters, 16-bit messages and gradients, a wide stream. */
TEST(test_halves)
{
    assert_same_bits_in("precision.compute=bf16", "1f1b", 3, 1, 3);
    assert_same_bits_in("precision.compute=fp16 precision.residual=fp32", "gpipe", 2, 1, 3);
    assert_same_bits_in("precision.compute=bf16 precision.gradients=compute", "interleaved", 2, 2,
                        4);
    assert_same_bits_in("precision.compute=fp16", "zero-bubble", 4, 1, 4);
}

/* Shared tables are summed up in another order, which fp32 must show. */
TEST(test_fails_when_it_should)
{
    ech_verification r = verify_bits("gpt2", 2,
                                     "parallel.pipeline=2 training.micro_batch_size=2 "
                                     "model.tie_word_embeddings=true");
    assert_false(r.passed || r.exact);
    assert_true(r.worst > 1e-9 && r.worst < 1e-2);
}

/* ---- with replicas ---- */

TEST(test_depth_with_replicas)
{
    static const char *const layouts[] = {
        "parallel.data=2 parallel.pipeline=2",
        "parallel.data=2 parallel.pipeline=3",
        "parallel.data=2 parallel.pipeline=3 parallel.schedule=gpipe parallel.bucket_bytes=1",
        "parallel.data=2 parallel.pipeline=2 parallel.schedule=naive",
        "parallel.data=2 parallel.pipeline=3 parallel.schedule=zero-bubble",
        "parallel.data=2 parallel.pipeline=4 parallel.schedule=zero-bubble",
        "parallel.pipeline=3 parallel.schedule=interleaved parallel.virtual_stages=2",
        "parallel.stage_replicas=[2,2,2] parallel.partition=[0,1,3]",
    };
    static const int ranks[] = {4, 6, 6, 4, 6, 8, 6, 6};
    static const char rest[] = "training.steps=5 training.global_batch_size=12 "
                               "training.micro_batch_size=2 model.num_hidden_layers=4";
    for (int a = 0; a < 2; a++) {
        const char *architecture = a ? "gpt2" : "llama";
        char more[400];
        runs_train(architecture, "flat", 2, rest);
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            if (!share_takes()) continue;
            snprintf(more, sizeof more, "%s %s", layouts[i], rest);
            runs_train(architecture, "deep", ranks[i], more);
            if (!runs_same("flat", "deep", 5)) fail_msg("%s with %s", architecture, layouts[i]);
            runs_remove("deep");
        }
        /* Another number of replicas is another order of sums. */
        snprintf(more, sizeof more, "parallel.data=3 parallel.pipeline=2 %s", rest);
        runs_train(architecture, "deep", 6, more);
        assert_false(runs_same_file("flat", "deep", 5, runs_model));
        runs_remove("deep");
        runs_remove("flat");
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)

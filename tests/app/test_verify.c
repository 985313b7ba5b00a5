/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts against one rank, in fp64: data degree x micro-batches x reduction x model, all in this
 * process on the local backend; and that the comparison can fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/fixture.h"
#include "app/verify/verify.h"

static ech_verification verify(const char *architecture, int ranks, const char *more)
{
    ech_config *config = fixture_config(architecture, more);
    ech_verification v = {
        .config = config, .tokenizer = fixture_tokenizer, .steps = 3, .tolerance = 1e-10};
    assert_int_equal(ech_run_ranks("local", ranks, 60, ech_verify_rank, &v), ECH_OK);
    ech_config_destroy(config);
    return v;
}

static void assert_passes(const char *architecture, int ranks, const char *more)
{
    ech_verification v = verify(architecture, ranks, more);
    if (!v.passed)
        fail_msg("%s on %d ranks with %s: %g at %s", architecture, ranks, more, v.worst,
                 v.first_bad);
    assert_true(v.compared > 1000);
}

/* m micro-batches of 2 samples on each of 1 to 4 ranks. */
static void lattice(const char *architecture, const char *reduction)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int m = 1; m <= 3; m++) {
            char more[256];
            snprintf(
                more, sizeof more,
                "training.global_batch_size=%d training.micro_batch_size=2 parallel.reduction=%s",
                2 * ranks * m, reduction);
            assert_passes(architecture, ranks, more);
        }
    }
}

static void test_gpt2_direct(void **state)
{
    (void)state;
    lattice("gpt2", "direct");
}
static void test_gpt2_ring(void **state)
{
    (void)state;
    lattice("gpt2", "ring");
}
static void test_llama_direct(void **state)
{
    (void)state;
    lattice("llama", "direct");
}
static void test_llama_naive(void **state)
{
    (void)state;
    lattice("llama", "naive");
}

static void test_combinations(void **state)
{
    (void)state;
    const char *const more[] = {
        "model.attn_pdrop=0.1 model.resid_pdrop=0.2 training.micro_batch_size=1",
        "model.embd_pdrop=0.1 training.global_batch_size=18 training.micro_batch_size=3",
        "optimizer.name=sgd optimizer.momentum=0.9 optimizer.nesterov=true parallel.bucket_bytes=1",
        "model.tie_word_embeddings=false optimizer.clip_norm=0 optimizer.schedule=wsd",
        "model.tie_word_embeddings=true parallel.bucket_bytes=1GiB optimizer.schedule=linear",
        "data.sequence_length=60 training.global_batch_size=6 training.micro_batch_size=1",
    };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        for (int ranks = 2; ranks <= 3; ranks++) {
            assert_passes("gpt2", ranks, more[i]);
            assert_passes("llama", ranks, more[i]);
        }
    }
    assert_passes("llama", 2, "model.num_key_value_heads=2 model.rope_theta=500");
    assert_passes("llama", 3, "model.num_key_value_heads=1 model.attn_pdrop=0.3");
}

/* With a tolerance of zero the different order of sums must show. */
static void test_fails_when_it_should(void **state)
{
    (void)state;
    ech_config *config = fixture_config("gpt2", "");
    ech_verification v = {
        .config = config, .tokenizer = fixture_tokenizer, .steps = 3, .tolerance = 0};
    assert_int_equal(ech_run_ranks("local", 3, 60, ech_verify_rank, &v), ECH_OK);
    assert_false(v.passed);
    assert_true(v.first_bad[0] && v.worst > 0 && v.worst < 1e-10);
    ech_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_direct),  cmocka_unit_test(test_gpt2_ring),
        cmocka_unit_test(test_llama_direct), cmocka_unit_test(test_llama_naive),
        cmocka_unit_test(test_combinations), cmocka_unit_test(test_fails_when_it_should),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines against one rank whose orders are written by hand, which the lattice does not have.
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

ALL_TESTS(fixture_setup, fixture_teardown)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Recomputation of segments changes no bit of losses, gradients and weights (layer by layer:
 * probes/bits.c), and runs kernels as often as plans say. So does R that makes a reversible layer's
 * inputs from its outputs, but for roundings; what is kept then does not depend on the number of
 * layers.
 */

#include "app/recomputed.h"
#include "schedule/peaks.h"
#include "share.h"
#include "unit.h"

/* ---- the layouts ---- */

/* Of segments of several layers, which the lattice does not have. */
static const struct {
    const char *family, *grid;
} cases[] = {
    {"gpt2", "model.num_hidden_layers=4"},
    {"llama", "model.num_hidden_layers=4 memory.sequence_chunks=2 parallel.tensor=2"},
    {"gpt2", "model.num_hidden_layers=8 parallel.pipeline=2 parallel.partition=[4,4] "
             "parallel.schedule=zero-bubble parallel.tensor=2"},
};

static const char *const choices[] = {
    "memory.recompute=full memory.recompute_blocks=2",
    "memory.recompute=full memory.recompute_blocks=3",
    "memory.recompute=full memory.recompute_blocks=4",
};

enum { CHOICES = sizeof choices / sizeof *choices };

static void check_same(const left *none, const left *some, const char *family, const char *grid,
                       const char *choice)
{
    for (int r = 0; r < RANKS; r++)
        if (none->bytes[r].n != some->bytes[r].n ||
            (none->bytes[r].n && memcmp(none->bytes[r].at, some->bytes[r].at, none->bytes[r].n)))
            fail_msg("%s with %s: %s changes what rank %d computes", family, grid, choice, r);
    assert_true(none->steps_again == 0 && some->steps_again > 0);
    assert_int_equal(none->cheap, none->planned_cheap);
    assert_int_equal(some->cheap, some->planned_cheap);
    /* Each attention of the forward once more. */
    assert_int_equal(none->attentions, none->planned);
    assert_int_equal(some->attentions, some->planned + some->planned_again);
    assert_int_equal(some->planned_again, none->planned);
}

TEST(test_same_bits)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!share_takes()) continue;
        left none = run_with(cases[i].family, cases[i].grid, "");
        for (size_t k = 0; k < CHOICES; k++) {
            left some = run_with(cases[i].family, cases[i].grid, choices[k]);
            check_same(&none, &some, cases[i].family, cases[i].grid, choices[k]);
            free_left(&some);
        }
        free_left(&none);
    }
}

/* ---- reversible models ---- */

static const struct {
    const char *family, *grid, *more; /* more: with inverses alone */
} reversible[] = {
    {"gpt2", "", ""},
    {"llama", "parallel.tensor=2 parallel.sequence=true", "memory.recompute_blocks=3"},
    {"gpt2", "memory.sequence_chunks=3 parallel.pipeline=2 parallel.partition=[2,2]", ""},
    {"llama", "parallel.pipeline=2 parallel.schedule=zero-bubble-v parallel.partition=[1,1,1,1]",
     ""},
};

/* That they compute what is computed from inputs that are kept is verify's: one rank keeps them. */
TEST(test_inverted)
{
    for (size_t i = 0; i < sizeof reversible / sizeof *reversible; i++) {
        if (!share_takes()) continue;
        char grid[200];
        snprintf(grid, sizeof grid, "%s model.reversible=true model.num_hidden_layers=4",
                 reversible[i].grid);
        left stored = run_with(reversible[i].family, grid, "memory.invert=false");
        left inverted = run_with(reversible[i].family, grid, reversible[i].more);
        assert_true(stored.steps_again == 0 && inverted.steps_again > 0);
        assert_int_equal(inverted.attentions, inverted.planned + inverted.planned_again);
        assert_int_equal(inverted.planned_again, inverted.planned);
        assert_true(inverted.products < 2 * stored.products);
        assert_int_equal(inverted.cheap, inverted.planned_cheap);
        assert_true(inverted.peak[ECH_MEMORY_ACTIVATIONS] < stored.peak[ECH_MEMORY_ACTIVATIONS]);
        free_left(&stored);
        free_left(&inverted);
    }
}

static int64_t planned_activations(const char *more, int layers)
{
    int64_t peak[ECH_MEMORY_KINDS], most = 0;
    char words[200];
    snprintf(words, sizeof words, "model.reversible=true model.num_hidden_layers=%d %s", layers,
             more);
    grid_plans g = grid_plan("llama", words);
    for (int rank = 0; rank < g.ranks; rank++) {
        ech_plan_peaks(g.plan[rank], peak);
        if (peak[ECH_MEMORY_ACTIVATIONS] > most) most = peak[ECH_MEMORY_ACTIVATIONS];
    }
    grid_plans_free(&g);
    return most;
}

/* What is kept does not grow with the depth: it is a stage's last outputs. */
TEST(test_depth)
{
    static const char *const grids[] = {"", "training.micro_batch_size=1 parallel.pipeline=2",
                                        "parallel.tensor=2 parallel.sequence=true",
                                        "parallel.context=2"};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        char stored[200];
        snprintf(stored, sizeof stored, "%s memory.invert=false", grids[i]);
        assert_int_equal(planned_activations(grids[i], 4), planned_activations(grids[i], 64));
        assert_true(planned_activations(stored, 64) > 8 * planned_activations(stored, 4));
    }
}

ALL_TESTS(grid_setup, fixture_teardown)

/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.delay: a rank that is slowed changes no bit of what is trained; synchronous ranks wait
 * for it in each step, as the simulation says; what names no rank is an error.
 */

#include "app/runs.h"
#include "app/simulated.h"
#include "base/clock.h"
#include "unit.h"

enum { RANKS = 3, STEPS = 3 };
static const double DELAY = 0.1; /* seconds */

TEST(bits_stay)
{
    runs_train("gpt2", "even", 2, "training.steps=4 parallel.data=2");
    runs_train("gpt2", "slow", 2, "training.steps=4 parallel.data=2 parallel.delay=1:0.01");
    assert_true(runs_same("even", "slow", 4));
    runs_remove("even");
    runs_remove("slow");
}

/* Seconds of the training steps. */
static double took[RANKS];

static ech_status measure(void *context, int rank, ech_compared_run *run)
{
    (void)context;
    double start = ech_clock_now();
    for (int step = 0; step < STEPS; step++)
        ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, step));
    took[rank] = ech_clock_now() - start;
    return ECH_OK;
}

TEST(all_wait_for_the_slowest)
{
    static const char *const words[] = {
        "parallel.data=3 training.global_batch_size=6 parallel.delay=2:0.1",
        "parallel.data=2 parallel.strategy=parameter_server parallel.delay=2:0.1"};
    for (int i = 0; i < 2; i++) {
        grid_run("gpt2", words[i], measure, NULL);
        for (int r = 0; r < RANKS; r++) assert_true(took[r] >= 0.9 * STEPS * DELAY);
    }
}

/* When each rank has pushed for the last time, or done what comes last. */
static double ends[RANKS];

static void take_ends(const ech_simulation *simulation, const grid_plans *g)
{
    for (int r = 0; r < g->ranks; r++) {
        const ech_list *list = &g->plan[r]->list[ECH_LIST_TRAIN];
        ends[r] = 0;
        for (size_t s = 0; s < list->step.n; s++) {
            bool counts = list->step.at[s].kind == ECH_STEP_ANNOUNCE ||
                          g->design.layout->sums != ECH_SUMS_SERVERS;
            if (counts && simulation->finish[r][s] > ends[r]) ends[r] = simulation->finish[r][s];
        }
    }
}

TEST(simulations_wait_too)
{
    double even = simulated("parallel.data=2", take_ends);
    double slow = simulated("parallel.data=2 parallel.delay=1:0.5", take_ends);
    assert_true(even > 0 && fabs(slow - even - 0.5) < 1e-9);
}

/* Eight steps of two workers, of which one takes a second more for each. Under asp the other one
 * takes nearly all pushes: the span ends when the slow one's has come. Under ssp each has its
 * eight, and the fast one waits for all but the bound; under synchronous updates in each step. */
TEST(workers_that_push_do_not_wait)
{
#define SLOW "parallel.data=2 training.steps=8 parallel.delay=1:1 parallel.strategy="
    enum { STALENESS = 2, SPAN = 8 };
    double shared = simulated(SLOW "asp", take_ends);
    assert_true(ends[0] < 1 && shared >= 1 && shared < 2.5);
    double bounded = simulated(SLOW "ssp parallel.staleness=2", take_ends);
    assert_true(fabs(ends[0] - (SPAN - STALENESS)) < 0.5);
    assert_true(ends[1] >= SPAN && bounded < SPAN + 1);
    simulated(SLOW "parameter_server", take_ends);
    assert_true(fabs(ends[0] - ends[1]) < 0.1);
#undef SLOW
}

TEST(others_are_errors)
{
    static const runs_refusal refused[] = {
        {"parallel.delay=x", "\"x\" is no RANK:SECONDS"},
        {"parallel.delay=1:", "is no RANK:SECONDS"},
        {"parallel.delay=1:-1", "is no RANK:SECONDS"},
        {"parallel.delay=1:nan", "is no RANK:SECONDS"},
        {"parallel.delay=2:1", "there is no rank 2, but 0 to 1"},
        {"parallel.delay=-1:1", "there is no rank -1"},
        {"parallel.delay=1:700", "use fewer, or a longer deadline"},
    };
    RUNS_REFUSE(2, "parallel.data=2", refused);
}

ALL_TESTS(grid_setup, fixture_teardown)

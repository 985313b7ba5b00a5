/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.delay: a rank that is slowed changes no bit of what is trained; synchronous ranks wait for it in each step, as the
 * simulation says; what names no rank is an error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/grid_run.h"
#include "app/made_up_profile.h"
#include "app/runs.h"
#include "base/clock.h"
#include "simulate/simulate.h"

enum { RANKS = 3, STEPS = 3 };
static const double DELAY = 0.1; /* seconds */

static void bits_stay(void **state)
{
    (void)state;
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

static void all_wait_for_the_slowest(void **state)
{
    (void)state;
    static const char *const words[] = {
        "parallel.data=3 training.global_batch_size=6 parallel.delay=2:0.1",
        "parallel.data=2 parallel.strategy=parameter_server parallel.delay=2:0.1"};
    for (int i = 0; i < 2; i++) {
        grid_run("gpt2", words[i], measure, NULL);
        for (int r = 0; r < RANKS; r++) assert_true(took[r] >= 0.9 * STEPS * DELAY);
    }
}

static double simulated(const char *delay)
{
    char words[300], path[300];
    ech_design design;
    ech_profile *profile;
    ech_plan *plans[2];
    ech_simulation simulation;
    snprintf(words, sizeof words, "parallel.data=2 %s", delay);
    snprintf(path, sizeof path, "%s/profile", fixture_folder);
    ech_config *config = grid_config("gpt2", words);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 2, 2, &design), ECH_OK);
    made_up_profile_write(&design, path);
    assert_int_equal(ech_profile_read(path, &profile), ECH_OK);
    for (int r = 0; r < 2; r++)
        assert_int_equal(ech_design_plan(&design, r, false, &plans[r]), ECH_OK);
    ech_costs costs = ech_costs_of(config, profile);
    assert_int_equal(
        ech_simulate((const ech_plan *const *)plans, 2, ECH_LIST_TRAIN, &costs, &simulation),
        ECH_OK);
    double end = simulation.end;
    ech_simulation_free(&simulation);
    for (int r = 0; r < 2; r++) ech_plan_destroy(plans[r]);
    ech_profile_destroy(profile);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return end;
}

static void simulations_wait_too(void **state)
{
    (void)state;
    double even = simulated(""), slow = simulated("parallel.delay=1:0.5");
    assert_true(even > 0 && fabs(slow - even - 0.5) < 1e-9);
}

static void others_are_errors(void **state)
{
    (void)state;
    static const struct {
        const char *words, *said;
    } refused[] = {
        {"parallel.delay=x", "\"x\" is no RANK:SECONDS"},
        {"parallel.delay=1:", "is no RANK:SECONDS"},
        {"parallel.delay=1:-1", "is no RANK:SECONDS"},
        {"parallel.delay=1:nan", "is no RANK:SECONDS"},
        {"parallel.delay=2:1", "there is no rank 2, but 0 to 1"},
        {"parallel.delay=-1:1", "there is no rank -1"},
        {"parallel.delay=1:700", "use fewer, or a longer deadline"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char words[300];
        snprintf(words, sizeof words, "parallel.data=2 %s", refused[i].words);
        assert_int_equal(runs_try("gpt2", "refused", 2, words), ECH_EUSAGE);
        if (!strstr(ech_last_error(), refused[i].said))
            fail_msg("%s: %s", refused[i].words, ech_last_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_stay),
        cmocka_unit_test(all_wait_for_the_slowest),
        cmocka_unit_test(simulations_wait_too),
        cmocka_unit_test(others_are_errors),
    };
    return cmocka_run_group_tests(tests, grid_setup, fixture_teardown);
}

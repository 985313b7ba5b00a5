/* SPDX-License-Identifier: Apache-2.0
 *
 * The costs of blocks, from given times of steps. The cost of a block's phase is the sum of its
 * steps. The simulation of a rank takes as long as the rank did. Times that vary widely are
 * reported as those of a busy machine.
 */

#include <math.h>
#include <pthread.h>

#include "app/block_times.h"
#include "app/fixture.h"
#include "simulate/simulate.h"
#include "unit.h"

static void assert_near(double a, double b, double within)
{
    if (!(fabs(a - b) <= within)) fail_msg("%.12g is not %.12g", a, b);
}

/* ---- a plan of one rank, and times of its train list ---- */

typedef struct timed {
    ech_config *config;
    ech_design design;
    ech_plan *plan;
    double *begin, *end, wall;
} timed;

static timed timed_create(const char *architecture, const char *more)
{
    timed t = {.config = fixture_config(architecture, more)};
    assert_int_equal(ech_design_create(t.config, fixture_tokenizer, 1, 1, &t.design), ECH_OK);
    assert_int_equal(ech_design_plan(&t.design, 0, false, &t.plan), ECH_OK);
    t.begin = ech_calloc(t.plan->list[ECH_LIST_TRAIN].step.n, sizeof *t.begin);
    t.end = ech_calloc(t.plan->list[ECH_LIST_TRAIN].step.n, sizeof *t.end);
    return t;
}

static void timed_destroy(timed *t)
{
    free(t->begin);
    free(t->end);
    ech_plan_destroy(t->plan);
    ech_design_destroy(&t->design);
    ech_config_destroy(t->config);
}

/* Seconds of a step: of every part of a block another number, of every micro-batch `slower`
 * more. */
static double seconds_of(const ech_step *step, double slower)
{
    double seconds = 1e-3 * (1 + step->kind);
    if (ech_step_kind_phase(step->kind) >= 0)
        seconds += 1e-4 * step->block + 1e-5 * step->first_call;
    return seconds * (1 + slower * (step->micro > 0 ? step->micro : 0));
}

/* Runs one step after the other. */
static void set_times(timed *t, double slower)
{
    const ech_list *list = &t->plan->list[ECH_LIST_TRAIN];
    double clock = 100;
    for (size_t s = 0; s < list->step.n; s++) {
        t->begin[s] = clock;
        t->end[s] = clock += seconds_of(&list->step.at[s], slower);
    }
    t->wall = clock - 100;
}

static ech_profile *profile_of(const timed *t)
{
    ech_measured_times times;
    ech_measured_times_create(t->plan->model, &times);
    ech_measured_times_add(&times, t->plan, t->begin, t->end);
    ech_profile *profile = ech_measured_times_profile(&times, 1);
    ech_measured_times_free(&times);
    return profile;
}

/* All steps of a phase of a block and a micro-batch; `parts`: how many these are. */
static double sum_of(const timed *t, int block, int phase, int micro, int *parts)
{
    const ech_list *list = &t->plan->list[ECH_LIST_TRAIN];
    double sum = 0;
    *parts = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (ech_step_kind_phase(step->kind) != phase || step->block != block ||
            step->micro != micro)
            continue;
        sum += t->end[s] - t->begin[s];
        ++*parts;
    }
    return sum;
}

/* ---- the tests ---- */

static const struct {
    const char *architecture, *keys;
} runs[] = {{"gpt2", "training.micro_batch_size=4"},
            {"llama", "training.micro_batch_size=4"},
            {"gpt2", "training.micro_batch_size=4 model.tie_word_embeddings=false "
                     "model.resid_pdrop=0.1"},
            {"gpt2", "training.micro_batch_size=4 memory.recompute=selective"},
            {"gpt2", "training.micro_batch_size=4 memory.recompute=full"},
            {"llama", "training.micro_batch_size=4 model.reversible=true"}};

/* Of three micro-batches the middle one is the median, and the quartiles are it and its
 * neighbours. */
TEST(test_sums)
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        timed t = timed_create(runs[i].architecture, runs[i].keys);
        int most = 0, parts;
        set_times(&t, 0.5);
        ech_profile *profile = profile_of(&t);
        for (int b = 0; b < profile->blocks; b++)
            for (int p = 0; p < ECH_PHASES; p++) {
                const ech_profile_block *cost = &profile->block[b];
                int phase = ech_profile_phase((ech_phase)p, &t.plan->model->options);
                double ratio = p == ECH_RECOMPUTE ? ech_costs_recomputed(t.plan, b) : 1;
                assert_near(cost->low[phase] * ratio, sum_of(&t, b, p, 0, &parts), 1e-12);
                assert_near(cost->seconds[phase] * ratio, sum_of(&t, b, p, 1, &parts), 1e-12);
                assert_near(cost->high[phase] * ratio, sum_of(&t, b, p, 2, &parts), 1e-12);
                if (parts > most) most = parts;
            }
        assert_true(most > 1); /* B and W take turns */
        ech_profile_destroy(profile);
        timed_destroy(&t);
    }
}

/* The rank's own list, with what it has cost: nothing that takes time has been left out. */
TEST(test_prediction)
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        timed t = timed_create(runs[i].architecture, runs[i].keys);
        set_times(&t, 0);
        ech_profile *profile = profile_of(&t);
        const ech_costs costs = ech_costs_of(NULL, profile, NULL);
        const ech_plan *plan = t.plan;
        ech_simulation simulation;
        assert_int_equal(ech_simulate(&plan, 1, ECH_LIST_TRAIN, &costs, &simulation), ECH_OK);
        assert_near(simulation.end, t.wall, 1e-9);
        ech_simulation_free(&simulation);
        ech_profile_destroy(profile);
        timed_destroy(&t);
    }
}

TEST(test_busy)
{
    timed t = timed_create("gpt2", "training.micro_batch_size=4");
    const struct {
        double slower, share, spread;
        bool busy;
    } cases[] = {{0, 1, 0, false},
                 {0, 0.96, 0, false},
                 {0, 0.9, 0, true},
                 {0.04, 1, 0.08 / 1.04, false},
                 {0.06, 1, 0.12 / 1.06, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_times(&t, cases[i].slower);
        ech_profile *profile = profile_of(&t);
        assert_near(profile->spread, cases[i].spread, 1e-9);
        assert_near(profile->processor_share, 1, 0);
        profile->processor_share = cases[i].share;
        ech_measured_judge(profile);
        assert_int_equal(profile->busy, cases[i].busy);
        ech_profile_destroy(profile);
    }
    timed_destroy(&t);
}

/* ---- measured: how much nobody can tell, but what of ---- */

static ech_comm *endpoints[2];
static const char *measured_keys;

static void *measure_rank(void *argument)
{
    ech_comm *comm = argument;
    ech_profile *profile = NULL;
    ech_config *config = fixture_config("gpt2", measured_keys);
    ech_design design;
    ECH_ASSERT(ech_design_create(config, fixture_tokenizer, 2, 2, &design) == ECH_OK);
    ECH_ASSERT(ech_measure_blocks(&design, comm, 2, &profile) == ECH_OK);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return profile;
}

static void measure(bool reversible)
{
    pthread_t thread;
    void *profiles[2];
    assert_int_equal(ech_comm_open(ech_comm_find("local"), 2, 60, endpoints), ECH_OK);
    assert_int_equal(pthread_create(&thread, NULL, measure_rank, endpoints[1]), 0);
    profiles[0] = measure_rank(endpoints[0]);
    assert_int_equal(pthread_join(thread, &profiles[1]), 0);
    ech_profile *first = profiles[0], *second = profiles[1];
    assert_int_equal(first->blocks, 4);
    for (int b = 0; b < first->blocks; b++)
        for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++) {
            const ech_profile_block *cost = &first->block[b];
            /* The embedding's B adds two streams' gradients, or is none, and the head's does
             * all. */
            bool computes = !(b == 0 && phase == ECH_BACKWARD_INPUT && !reversible) &&
                            !(b == 3 && phase == ECH_BACKWARD_WEIGHT);
            if (phase >= ECH_RECOMPUTE)
                computes = b > 0 && b < 3 && (phase != ECH_PROFILE_INVERT || reversible);
            assert_int_equal(cost->seconds[phase] > 0, computes);
            assert_true(cost->low[phase] <= cost->seconds[phase]);
            assert_true(cost->seconds[phase] <= cost->high[phase]);
            assert_true(cost->high[phase] < 60);
        }
    assert_true(first->update_seconds > 0 && first->other_seconds > 0 && first->latency > 0);
    assert_true(first->processor_share > 0 && first->processor_share <= 1);
    assert_true(first->spread == second->spread);
    assert_true(first->processor_share == second->processor_share);
    assert_int_equal(first->busy, second->busy);
    for (int r = 0; r < 2; r++) {
        ech_profile_destroy(profiles[r]);
        ech_comm_close(endpoints[r]);
    }
}

TEST(test_measured)
{
    measured_keys = "training.micro_batch_size=2";
    measure(false);
    measured_keys = "training.micro_batch_size=2 model.reversible=true";
    measure(true);
}

ALL_TESTS(fixture_setup, fixture_teardown)

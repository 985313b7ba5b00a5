/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of layers that are cut over ranks: collectives run beside what does not need them; what
 * they touch lives as long as they may run. That the checkers accept the lists of every grid,
 * schedule and number of pieces is the lattice's (app/test_lattice.c).
 */

#include "check/check.h"
#include "schedule/fixture.h"
#include "schedule/near.h"
#include "simulate/simulate.h"
#include "unit.h"

typedef struct grid {
    int tensor, context;
    const char *more;
} grid;

static const grid grids[] = {
    {2, 1, ""},
    {4, 1, ""},
    {2, 1, "parallel.sequence=true"},
    {4, 1, "parallel.sequence=keep"},
    {1, 2, ""},
    {1, 4, ""},
    {1, 2, "parallel.context_method=ulysses"},
    {2, 2, ""},
    {2, 2, "parallel.sequence=true"},
    {2, 2, "parallel.sequence=keep parallel.context_method=ulysses"},
    {1, 1, "memory.sequence_chunks=4"},
    {2, 1, "memory.sequence_chunks=2"},
    {2, 1, "memory.sequence_chunks=4 parallel.sequence=true"},
};
enum { GRIDS = sizeof grids / sizeof *grids };

/* ---- the order of steps ---- */

static fixture one_stage(const char *schedule, const char *architecture, int tensor, int context,
                         int micro_batches, const char *more)
{
    return fixture_pipeline((fixture_shape){.schedule = schedule,
                                            .architecture = architecture,
                                            .stages = 1,
                                            .tensor = tensor,
                                            .context = context,
                                            .micro_batches = micro_batches,
                                            .layers = 2,
                                            .more = more});
}

enum { LAYER = 1 };

/* The steps of a layer's first micro-batch, forward or backward: a letter each. Collectives are c;
 * those that fetch something again for B are b, for W w. */
static void letters_of(const fixture *f, bool forward, char *out)
{
    const ech_list *list = fixture_list(f, 0);
    const ech_block *block = f->of.model->block.at[LAYER];
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool works = ech_step_kind_phase(step->kind) >= 0, is_f = step->phase == ECH_FORWARD;
        if (step->block != LAYER || step->micro != 0 || is_f != forward) continue;
        if (works) *out++ = "FBW"[step->phase];
        if (step->kind != ECH_STEP_COLLECTIVE) continue;
        bool recompute = block->program[step->phase].at[step->first_call].recompute;
        *out++ = !recompute ? 'c' : step->phase == ECH_BACKWARD_INPUT ? 'b' : 'w';
    }
    *out = 0;
}

static void expect_order(const fixture *f, const char *forward, const char *backward)
{
    char letters[128];
    letters_of(f, true, letters);
    assert_string_equal(letters, forward);
    letters_of(f, false, letters);
    assert_string_equal(letters, backward);
}

static void expect_joined(int tensor, int context, const char *more, const char *forward,
                          const char *backward)
{
    fixture f = one_stage("gpipe", "gpt2", tensor, context, 2, more);
    expect_order(&f, forward, backward);
    fixture_free(&f);
}

/* Compares the order when all W run after all B. */
static void expect_apart(const char *more, const char *forward, const char *backward)
{
    char *path = fixture_write("F0.0 F0.1 B0.0 B0.1 W0.0 W0.1\n");
    fixture f = one_stage(path, "gpt2", 2, 1, 2, more);
    expect_order(&f, forward, backward);
    fixture_free(&f);
    assert_int_equal(unlink(path), 0);
    free(path);
}

/* After each collective of B come the parts of W that can run during it, and then the part of B
 * that needs its result. A collective that only W needs starts before the preceding part of B, and
 * only the part of W that reads its result waits for it. */
TEST(test_order)
{
    expect_joined(2, 1, NULL, "FcFcF", "BcWBcWB");
    expect_joined(2, 1, "parallel.sequence=keep", "FcFcFcFcF", "cBcWBcBcWB");
    expect_joined(2, 1, "parallel.sequence=true", "FcFcFcFcF", "cWwBcWWBcWwBcWWB");
    expect_joined(1, 2, NULL, "FcFF", "BbBBcWBBW");
    expect_joined(1, 4, NULL, "FcFcFcFF", "BbBbBcWbBBcBBcBBW");
    expect_apart(NULL, "FcFcF", "BcBcBW");
    expect_apart("parallel.sequence=true", "FcFcFcFcF", "cBcBcBcBWwWWwWW");
}

/* ---- time ---- */

/* Blocks cost `work` a phase, every collective and message 1. */
typedef struct timing {
    double end;        /* of all */
    double computing;  /* what rank 0 computes, and the fold of scalars that all wait for */
    double collective; /* of its collectives inside of blocks */
} timing;

static timing time_of(const fixture *f, double work)
{
    ech_profile_block cost[8];
    memset(cost, 0, sizeof cost);
    for (int b = 0; b < 8; b++)
        for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++) cost[b].seconds[phase] = work;
    ech_profile profile = {.blocks = (int)f->of.model->block.n, .block = cost, .latency = 1};
    const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    ech_simulation s;
    assert_in_range(f->of.model->block.n, 1, 8);
    assert_int_equal(ech_simulate(fixture_plans(f), f->ranks, ECH_LIST_TRAIN, &costs, &s), ECH_OK);
    const ech_list *list = fixture_list(f, 0);
    timing t = {.end = s.end};
    for (size_t i = 0; i < list->step.n; i++) {
        double took = s.finish[0][i] - s.begin[0][i];
        const ech_step *step = &list->step.at[i];
        if (step->kind == ECH_STEP_COLLECTIVE) t.collective += took;
        if (step->lane == ECH_LANE_COMPUTE || step->kind == ECH_STEP_REDUCE) t.computing += took;
    }
    ech_simulation_free(&s);
    return t;
}

/* Two tensor ranks, two layers, two micro-batches: of all collectives those of a layer's B run
 * while its W does, and what is gathered again arrives while B runs. With shared rows gradients are
 * gathered while norms make their outputs again, and the positions' W hides the gather that the
 * embedding's waits for. What is gathered for the loss is waited for. */
TEST(test_tensor_overlap)
{
    static const struct {
        const char *more;
        int layer, layer_hidden, others, others_hidden; /* of a micro-batch */
    } cases[] = {{NULL, 4, 2, 3, 0},
                 {"parallel.sequence=keep", 8, 2, 5, 1},
                 {"parallel.sequence=true", 10, 6, 5, 1}};
    for (int i = 0; i < 3; i++) {
        fixture f = one_stage("gpipe", "gpt2", 2, 1, 2, cases[i].more);
        timing t = time_of(&f, 100);
        assert_near(t.collective, 2 * (2 * cases[i].layer + cases[i].others), 1e-9);
        double hidden = 2 * (2 * cases[i].layer_hidden + cases[i].others_hidden);
        assert_near(t.end, t.computing + t.collective - hidden, 1e-9);
        fixture_free(&f);
    }
}

/* All that goes around a ring does so while something is computed. Only the last bucket of
 * gradients, which context ranks sum, is waited for. */
TEST(test_ring_overlap)
{
    static const char *const architectures[] = {"gpt2", "llama", "qwen3"};
    for (int i = 0; i < 3; i++)
        for (int c = 2; c <= 4; c++) {
            fixture f = one_stage("gpipe", architectures[i], 1, c, 2,
                                  c == 3 ? "data.sequence_length=12" : NULL);
            timing t = time_of(&f, 1000);
            int rounds = c == 2 ? 1 : 2; /* that the rehearsal counts for so many ranks */
            assert_near(t.collective, 2 * 2 * 3 * (c - 1) * rounds, 1e-9);
            assert_near(t.end, t.computing + 1, 1e-9);
            fixture_free(&f);
        }
}

/* If shifts take longer than attention, a ring takes the time of its shifts and of the compute
 * before the first and after the last shift. */
TEST(test_slow_ring)
{
    fixture f = one_stage("gpipe", "gpt2", 1, 4, 1, NULL);
    timing t = time_of(&f, 16);
    assert_true(t.end < t.computing + t.collective);
    assert_true(t.end > t.collective && t.end > t.computing);
    fixture_free(&f);
}

/* ---- lifetimes ---- */

/* When what a collective touches must live: from the end of the compute steps that it waits for
 * until one begins that waits for it, or for a later one of its lane. */
static void find_interval(const ech_list *list, int s, int *first, int *last)
{
    const ech_step *step = &list->step.at[s];
    *first = 0;
    *last = list->ticks - 1;
    for (int i = 0; i < step->afters; i++) {
        const ech_step *after = &list->step.at[list->after.at[step->first_after + i]];
        int end = after->tick + ech_step_ticks(after);
        if (after->lane == ECH_LANE_COMPUTE && end > *first) *first = end;
    }
    for (int w = (int)list->step.n - 1; w > s; w--) {
        const ech_step *waiter = &list->step.at[w];
        if (waiter->lane != ECH_LANE_COMPUTE) continue;
        for (int i = 0; i < waiter->afters; i++) {
            int after = list->after.at[waiter->first_after + i];
            if (after >= s && list->step.at[after].lane == ECH_LANE_COLLECTIVE)
                *last = waiter->tick;
        }
    }
}

/* Returns how many values die where their last collective is known to have ended. */
static int check_lives(const fixture *f, int rank)
{
    ech_plan *plan = f->plan[rank];
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int tight = 0;
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        int first, last;
        if (step->kind != ECH_STEP_COLLECTIVE) continue;
        find_interval(list, s, &first, &last);
        assert_true(step->accesses > 0);
        for (int i = 0; i < step->accesses; i++) {
            int value = list->access.at[step->first_access + i].value - (int)plan->persistent.n;
            ech_value *v = &list->value.at[value];
            assert_true(v->born <= first && ech_value_last(v) >= last);
            if (v->dies != last || tight++ % 8) continue;
            v->dies--;
            assert_int_not_equal(ech_check_list(plan, list), ECH_OK);
            assert_non_null(strstr(ech_last_error(), "runs in ticks"));
            v->dies++;
        }
    }
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    return tight;
}

TEST(test_lives)
{
    for (int g = 0; g < GRIDS; g++) {
        if (grids[g].tensor * grids[g].context == 1) continue;
        for (int stages = 1; stages <= 2; stages++) {
            fixture f = fixture_pipeline((fixture_shape){.schedule = "1f1b",
                                                         .stages = stages,
                                                         .tensor = grids[g].tensor,
                                                         .context = grids[g].context,
                                                         .micro_batches = 2,
                                                         .layers = 2,
                                                         .more = grids[g].more});
            assert_true(check_lives(&f, f.ranks - 1) > 0);
            fixture_free(&f);
        }
    }
}

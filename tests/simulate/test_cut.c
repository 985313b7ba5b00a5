/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator where blocks are cut over tensor and context ranks: parts make up the whole,
 * collectives take what they take, and compute waits for some of them.
 */

#include "schedule/fixture.h"
#include "schedule/near.h"
#include "simulate/rehearsal.h"
#include "simulate/simulate.h"
#include "unit.h"

static fixture plan(int ranks, const char *more)
{
    ech_config *config = sample_config("llama");
    sample_set(config, "data.sequence_length=16 training.global_batch_size=8 "
                       "model.tie_word_embeddings=false training.check_every=0");
    sample_set(config, more);
    return fixture_plan(config, ranks);
}

static ech_simulation simulate(const fixture *f, const ech_costs *costs, ech_timeline *timeline)
{
    ech_simulation simulation;
    const ech_plan *const *plans = fixture_plans(f);
    assert_int_equal(ech_simulate(plans, f->ranks, ECH_LIST_TRAIN, costs, &simulation), ECH_OK);
    ech_simulation_timeline(&simulation, plans, ECH_LIST_TRAIN, timeline);
    ech_timeline_finish(timeline);
    return simulation;
}

static const struct {
    const char *keys;
    int ways;
} cuts[] = {
    {"parallel.tensor=2", 2},
    {"parallel.tensor=2 parallel.sequence=true", 2},
    {"parallel.tensor=4 parallel.sequence=keep", 4},
    {"parallel.context=2", 2},
    {"parallel.context=2 parallel.context_method=ulysses", 2},
    {"parallel.tensor=2 parallel.context=2 parallel.sequence=true", 4},
};
enum { CUTS = sizeof cuts / sizeof *cuts };

static const char *const pipelines[] = {
    "parallel.schedule=1f1b",
    "parallel.pipeline=2 parallel.schedule=1f1b",
    "parallel.pipeline=2 parallel.schedule=gpipe",
    "parallel.pipeline=2 parallel.schedule=zero-bubble",
    "parallel.pipeline=2 parallel.virtual_stages=2 parallel.schedule=interleaved",
    "parallel.pipeline=2 parallel.virtual_stages=2 parallel.schedule=zero-bubble-v",
};
enum { PIPELINES = sizeof pipelines / sizeof *pipelines };

static int stages_of(int pipeline)
{
    return pipeline ? 2 : 1;
}

/* In units collectives cost nothing and a block is shared out evenly: the bubble is the uncut
 * pipeline's, and the picture that of each of its ranks. */
TEST(test_units)
{
    const ech_costs unit = {0};
    for (int p = 0; p < PIPELINES; p++) {
        fixture whole = plan(stages_of(p), pipelines[p]);
        ech_timeline of_whole, timeline;
        ech_simulation wanted = simulate(&whole, &unit, &of_whole);
        for (int c = 0; c < CUTS; c++) {
            char keys[300];
            snprintf(keys, sizeof keys, "%s %s", pipelines[p], cuts[c].keys);
            fixture f = plan(stages_of(p) * cuts[c].ways, keys);
            ech_simulation got = simulate(&f, &unit, &timeline);
            assert_near(got.bubble, wanted.bubble, 1e-9);
            assert_near(got.end * cuts[c].ways, wanted.end, 1e-9);
            assert_near(timeline.bubble, got.bubble, 1e-9);
            assert_near(timeline.waits, 0, 0);
            assert_near(timeline.collective, 0, 0);
            /* What is made again to be gathered again is a bar of its own, before its B's. */
            size_t bars = of_whole.bar.n * (size_t)cuts[c].ways;
            bool again = strstr(cuts[c].keys, "sequence=true") != NULL;
            assert_in_range(timeline.bar.n, bars, again ? 3 * bars / 2 : bars);
            for (int rank = 0; rank < f.ranks; rank++)
                assert_int_equal(got.in_flight[rank], wanted.in_flight[rank / cuts[c].ways]);
            ech_timeline_free(&timeline);
            ech_simulation_free(&got);
            fixture_free(&f);
        }
        ech_timeline_free(&of_whole);
        ech_simulation_free(&wanted);
        fixture_free(&whole);
    }
}

/* ---- seconds ---- */

static ech_profile make_profile(const fixture *f, ech_profile_block *cost)
{
    int blocks = (int)f->of.model->block.n;
    for (int b = 0; b < blocks; b++)
        cost[b] =
            (ech_profile_block){.seconds = {1e-3 + 1e-4 * b, 2e-3 + 1e-4 * b, 15e-4 + 1e-5 * b}};
    return (ech_profile){
        .blocks = blocks, .block = cost, .latency = 1e-5, .bandwidth = 1e8, .update_seconds = 1e-9};
}

/* The parts of a block's phase together take the rank's share of it. */
TEST(test_parts_make_up_blocks)
{
    for (int c = 0; c < CUTS; c++) {
        fixture f = plan(cuts[c].ways, cuts[c].keys);
        ech_profile_block cost[8];
        ech_profile profile = make_profile(&f, cost);
        const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
        const ech_list *list = fixture_list(&f, 0);
        double sum[8][ECH_PROFILE_PHASES] = {{0}};
        int parts = 0;
        for (size_t s = 0; s < list->step.n; s++) {
            const ech_step *step = &list->step.at[s];
            if (ech_step_kind_phase(step->kind) < 0 || step->micro != 1) continue;
            double took = ech_costs_of_step(&costs, f.plan[0], step, (ech_participants){1, 0, 0});
            assert_true(took > 0);
            sum[step->block][step->phase] += took;
            parts += step->is_part;
        }
        assert_true(parts > 0);
        for (int b = 0; b < profile.blocks; b++)
            for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++)
                if (sum[b][phase] > 0)
                    assert_near(sum[b][phase], cost[b].seconds[phase] / cuts[c].ways, 1e-15);
        fixture_free(&f);
    }
}

/* What products take outweighs what norms take, however many calls there are of each: of a layer's
 * forward the part with queries, keys, values and attention and the part with the feed-forward
 * products. */
TEST(test_products_outweigh)
{
    fixture f = plan(2, "parallel.tensor=2 parallel.sequence=true model.hidden_size=512");
    ech_profile_block cost[8];
    ech_profile profile = make_profile(&f, cost);
    const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    const ech_list *list = fixture_list(&f, 0);
    double norms = 0, products = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_FORWARD || step->micro != 0 || step->block != 1) continue;
        const ech_block *block = f.of.model->block.at[1];
        bool multiplies = false;
        for (int i = step->first_call; i < step->first_call + step->calls; i++)
            multiplies |=
                block->node.at[block->program[ECH_FORWARD].at[i].node].layer->products != NULL;
        *(multiplies ? &products : &norms) +=
            ech_costs_of_step(&costs, f.plan[0], step, (ech_participants){1, 0, 0});
    }
    assert_true(norms > 0);
    assert_true(products > 20 * norms);
    fixture_free(&f);
}

/* The picture's bubble is the simulation's: F, B and W in parts, without the waits between them. */
TEST(test_waits)
{
    for (int p = 0; p < PIPELINES; p++)
        for (int c = 0; c < CUTS; c++) {
            char keys[300];
            snprintf(keys, sizeof keys, "%s %s", pipelines[p], cuts[c].keys);
            fixture f = plan(stages_of(p) * cuts[c].ways, keys);
            ech_profile_block cost[8];
            ech_profile profile = make_profile(&f, cost);
            const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
            ech_timeline timeline;
            ech_simulation simulation = simulate(&f, &costs, &timeline);
            double collective = 0;
            bool waits = false; /* a ring's shifts overlap attention */
            for (int rank = 0; rank < f.ranks; rank++) {
                const ech_list *list = fixture_list(&f, rank);
                for (size_t s = 0; s < list->step.n; s++)
                    if (list->step.at[s].lane == ECH_LANE_COLLECTIVE) {
                        waits |= list->step.at[s].collective != ECH_COLLECTIVE_SHIFT;
                        collective += simulation.finish[rank][s] - simulation.begin[rank][s];
                    }
            }
            assert_near(timeline.bubble, simulation.bubble, 1e-9);
            assert_near(timeline.collective, collective, 1e-9);
            assert_int_equal(timeline.waits > 0, waits);
            assert_true(timeline.waits < timeline.bubble + 1e-12);
            assert_true(timeline.waits * f.ranks * timeline.end <= timeline.collective + 1e-9);
            ech_timeline_free(&timeline);
            ech_simulation_free(&simulation);
            fixture_free(&f);
        }
}

/* Two tensor ranks alone: every collective takes the latency, and those of the forward and of the
 * loss are all waited for, as are the backward's but for what W hides. */
TEST(test_by_hand)
{
    enum { M = 4, L = 3 };
    fixture f = plan(2, "parallel.tensor=2 training.micro_batch_size=2");
    ech_profile_block cost[8];
    ech_profile profile = {.blocks = L + 2, .block = cost, .latency = 1};
    const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    ech_timeline timeline;
    for (int seconds = 0; seconds < 2; seconds++) {
        for (int b = 0; b < L + 2; b++) /* a W far longer than a collective */
            cost[b] = (ech_profile_block){.seconds = {0, 0, 100.0 * seconds}};
        ech_simulation simulation = simulate(&f, &costs, &timeline);
        double calls = M * (4 * L + 3), waited = timeline.waits * timeline.end;
        assert_near(timeline.collective / 2, calls, 1e-9);
        if (seconds == 0)
            assert_near(waited, calls, 1e-9);
        else
            assert_true(waited < calls - M * L && waited > M * (2 * L + 2) - 1e-9);
        ech_timeline_free(&timeline);
        ech_simulation_free(&simulation);
    }
    fixture_free(&f);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: a run that was never trained but simulated, and its traces, written as a run writes them.
 */
#ifndef ECH_TESTS_APP_RECORDED_H
#define ECH_TESTS_APP_RECORDED_H

#include <stdarg.h>

#include "app/fixture.h"
#include "app/trace/recording.h"
#include "schedule/simulate/simulate.h"

typedef struct recorded {
    ech_config *config;
    ech_design design;
    ech_plan **plan; /* [ranks] */
    ech_profile profile;
    ech_simulation simulation;
    ech_timeline timeline; /* as simulated */
    char *folder;
} recorded;

static inline const ech_plan *const *recorded_plans(const recorded *run)
{
    return (const ech_plan *const *)run->plan;
}

/* Every phase of every block has a cost of its own, in whole microseconds. Messages and collectives are
 * free, but where layers are cut. */
static inline void recorded_costs(recorded *run)
{
    run->profile.blocks = (int)run->design.model->block.n;
    run->profile.block = ech_calloc((size_t)run->profile.blocks, sizeof *run->profile.block);
    run->profile.update_seconds = 3e-8;
    run->profile.other_seconds = 25e-5;
    if (run->design.layout->tensor * run->design.layout->context > 1) {
        run->profile.latency = 4e-6;
        run->profile.bandwidth = 1e9;
    }
    for (int b = 0; b < run->profile.blocks; b++) {
        double *seconds = run->profile.block[b].seconds;
        seconds[ECH_FORWARD] = 1e-3 + 7e-6 * b;
        seconds[ECH_BACKWARD_INPUT] = 2e-3 + 11e-6 * b;
        seconds[ECH_BACKWARD_WEIGHT] = 15e-4 + 13e-6 * b;
    }
}

static inline recorded recorded_create(const char *more, int ranks)
{
    recorded run = {.config = fixture_config("gpt2", more)};
    ECH_ASSERT(ech_setup_resolve(run.config, fixture_tokenizer, ranks, ranks) == ECH_OK);
    ECH_ASSERT(ech_design_create(run.config, fixture_tokenizer, ranks, &run.design) == ECH_OK);
    run.plan = ech_calloc((size_t)ranks, sizeof(ech_plan *));
    for (int rank = 0; rank < ranks; rank++)
        ECH_ASSERT(ech_design_outline(&run.design, rank, &run.plan[rank]) == ECH_OK);
    recorded_costs(&run);
    const ech_costs costs = ech_costs_of(NULL, &run.profile);
    ECH_ASSERT(ech_simulate(recorded_plans(&run), ranks, ECH_LIST_TRAIN, &costs, &run.simulation) ==
               ECH_OK);
    ech_simulation_timeline(&run.simulation, recorded_plans(&run), ECH_LIST_TRAIN, &run.timeline);
    ech_timeline_finish(&run.timeline);
    run.folder = ech_file_join(fixture_folder, "traces");
    ECH_ASSERT(ech_file_make_folder(run.folder) == ECH_OK);
    return run;
}

static inline void recorded_destroy(recorded *run)
{
    ECH_ASSERT(ech_file_remove_all(run->folder) == ECH_OK);
    free(run->folder);
    ech_timeline_free(&run->timeline);
    ech_simulation_free(&run->simulation);
    free(run->profile.block);
    for (int rank = 0; rank < run->design.world; rank++) ech_plan_destroy(run->plan[rank]);
    free(run->plan);
    ech_design_destroy(&run->design);
    ech_config_destroy(run->config);
}

static inline char *recorded_path(const recorded *run, int rank)
{
    char name[32];
    snprintf(name, sizeof name, "rank-%05d.jsonl", rank);
    return ech_file_join(run->folder, name);
}

/* Seconds by which rank 0's clock is ahead of this rank's: every rank has a clock of its own. */
static inline double recorded_offset(int rank)
{
    return rank % 2 ? 100.5 * rank : -17.25 * rank;
}

static inline void recorded_step(const recorded *run, int rank, size_t s, int64_t list,
                                 double start, ech_text *out)
{
    const ech_step *step = &run->plan[rank]->list[ECH_LIST_TRAIN].step.at[s];
    ech_text_append(out, "{\"list\":%lld,\"step\":%lld,\"lane\":\"%s\",\"kind\":\"%s\",\"name\":\"",
                    (long long)list, (long long)list + step->turn, ech_lane_name(step->lane),
                    ech_step_name(step->kind));
    ech_step_print(step, out);
    ech_text_append(out, "\"");
    if (step->block >= 0)
        ech_text_append(out, ",\"chunk\":%d,\"micro\":%d,\"block\":%d", step->chunk, step->micro,
                        step->block);
    if (step->peer >= 0) ech_text_append(out, ",\"peer\":%d", step->peer);
    start -= recorded_offset(rank);
    ech_text_append(out, ",\"begin\":%.9f,\"end\":%.9f}\n", start + run->simulation.begin[rank][s],
                    start + run->simulation.finish[rank][s]);
}

/* A rank's file of so many lists from `first_step` on, the first of which began at `start` seconds; the
 * last one ends behind `steps` of its steps, if that is not negative. */
static inline void recorded_write(const recorded *run, int rank, int64_t first_step, int lists,
                                  int steps, double start)
{
    const ech_list *train = &run->plan[rank]->list[ECH_LIST_TRAIN];
    const ech_place *place = &run->design.layout->place[rank];
    ech_text text = {0};
    ech_text_append(&text,
                    "{\"version\":3,\"rank\":%d,\"world\":%d,\"stage\":%d,\"data\":%d,"
                    "\"context\":%d,\"tensor\":%d,\"first_step\":%lld,"
                    "\"clock_offset\":%.9f,\"clock_error\":0.001}\n",
                    rank, run->design.world, place->stage, place->data, place->context,
                    place->tensor, (long long)first_step, recorded_offset(rank));
    for (int l = 0; l < lists; l++) {
        size_t n = steps >= 0 && l == lists - 1 ? (size_t)steps : train->step.n;
        for (size_t s = 0; s < n; s++)
            recorded_step(run, rank, s, first_step + l * train->turns,
                          start + l * 2 * run->simulation.end, &text);
    }
    char *path = recorded_path(run, rank);
    ECH_ASSERT(ech_file_write(path, text.at, text.n) == ECH_OK);
    free(path);
    ech_text_free(&text);
}

static inline void recorded_write_all(const recorded *run, int64_t first_step, int lists)
{
    for (int rank = 0; rank < run->design.world; rank++)
        recorded_write(run, rank, first_step, lists, -1, 4000);
}

#endif

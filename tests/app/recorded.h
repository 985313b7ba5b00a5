/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: a run that was never trained but simulated, and its traces, written as a run writes
 * them.
 */
#ifndef ECH_TESTS_APP_RECORDED_H
#define ECH_TESTS_APP_RECORDED_H

#include <stdarg.h>

#include "app/fixture.h"
#include "app/trace/trace.h"
#include "app/trace/recording.h"
#include "simulate/simulate.h"

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

/* Every phase of every block has a cost of its own, in whole microseconds. Messages and collectives
 * are free, but where layers are cut. */
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
    ECH_ASSERT(ech_design_create(run.config, fixture_tokenizer, ranks, ranks, &run.design) ==
               ECH_OK);
    run.plan = ech_calloc((size_t)ranks, sizeof(ech_plan *));
    for (int rank = 0; rank < ranks; rank++)
        ECH_ASSERT(ech_design_outline(&run.design, rank, false, &run.plan[rank]) == ECH_OK);
    recorded_costs(&run);
    const ech_costs costs = ech_costs_of(NULL, &run.profile, NULL);
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

/* Seconds by which rank 0's clock is ahead of this rank's: every rank has a clock of its own. */
static inline double recorded_offset(int rank)
{
    return rank % 2 ? 100.5 * rank : -17.25 * rank;
}

/* Appends list `l` of a rank's file, which began at `start` seconds on rank 0's clock. It ends
 * after `steps` of its steps, if that is not negative. */
static inline void recorded_list(const recorded *run, int rank, int64_t step, int steps,
                                 double start, ech_trace_events *events, ech_text *text)
{
    static const char event[] = "\"ph\":\"X\"";
    size_t n = run->plan[rank]->list[ECH_LIST_TRAIN].step.n, from = text->n;
    double *at = ech_calloc(2 * n, sizeof *at);
    for (size_t s = 0; s < n; s++) {
        at[s] = start - recorded_offset(rank) + run->simulation.begin[rank][s];
        at[n + s] = start - recorded_offset(rank) + run->simulation.finish[rank][s];
    }
    ech_trace_events_list(events, step, at, at + n, text);
    const char *cut = text->at + from;
    for (int s = 0; s < steps; s++) cut = strstr(cut, event) + 1;
    if (steps >= 0) text->n = (size_t)(strchr(cut, '\n') + 1 - text->at);
    free(at);
}

/* Returns a rank's file of `lists` lists from `first_step` on. The first list began at `start`
 * seconds, and the last one ends after `steps` of its steps, if that is not negative. */
static inline ech_text recorded_text(const recorded *run, int rank, int64_t first_step, int lists,
                                     int steps, double start)
{
    const ech_comm_clock_offset clock = {.seconds = recorded_offset(rank), .error = 0.001};
    ech_trace_events *events = ech_trace_events_create(run->plan[rank], clock);
    ech_text text = {0};
    ech_trace_events_head(events, first_step, &text);
    for (int l = 0; l < lists; l++)
        recorded_list(run, rank, first_step + l * run->design.schedule->turns,
                      l == lists - 1 ? steps : -1, start + l * 2 * run->simulation.end, events,
                      &text);
    ech_trace_events_destroy(events);
    return text;
}

static inline void recorded_write(const recorded *run, int rank, int64_t first_step, int lists,
                                  int steps, double start)
{
    ech_text text = recorded_text(run, rank, first_step, lists, steps, start);
    char *path = ech_trace_path(run->folder, rank);
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

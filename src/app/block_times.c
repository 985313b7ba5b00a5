/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of blocks from the times of their steps.
 */
#include "app/block_times.h"

#include <stdlib.h>

#include "schedule/costs.h"

/* On an idle machine quartiles are 1 to 4% apart, and a thread that computes always has a core. */
static const double widest_spread = 0.1, smallest_share = 0.95;

void ech_block_times_create(const ech_model *model, ech_block_times *out)
{
    size_t slots = model->block.n * ECH_PHASES;
    *out = (ech_block_times){.blocks = (int)model->block.n,
                             .phase = ech_calloc(slots, sizeof *out->phase),
                             .open = ech_calloc(slots, sizeof *out->open),
                             .micro = ech_calloc(slots, sizeof *out->micro)};
    for (size_t i = 0; i < slots; i++) out->micro[i] = -1;
}

void ech_block_times_free(ech_block_times *times)
{
    for (int i = 0; i < times->blocks * ECH_PHASES; i++) free(times->phase[i].at);
    free(times->phase);
    free(times->open);
    free(times->micro);
    free(times->update.at);
    free(times->other.at);
    *times = (ech_block_times){0};
}

/* Bytes of parameters that simulations count for the step at the rate that a profile gives for norm and update
 * together; 0: it is none of these. */
static double updated_bytes(const ech_plan *plan, const ech_step *step)
{
    const ech_costs costs = {.seconds = true, .rates = {.update_seconds = 1}};
    return ech_costs_of_step(&costs, plan, step, (ech_participants){1, plan->rank, plan->rank});
}

static void close_phase(ech_block_times *times, int slot)
{
    if (times->micro[slot] >= 0) ECH_PUSH(times->phase[slot], times->open[slot]);
    times->micro[slot] = -1;
    times->open[slot] = 0;
}

static void add_to_phase(ech_block_times *times, int slot, int micro, double took)
{
    if (times->micro[slot] != micro) close_phase(times, slot);
    times->micro[slot] = micro;
    times->open[slot] += took;
}

void ech_block_times_add(ech_block_times *times, const ech_plan *plan, const double *begin,
                         const double *end)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    double update = 0, bytes = 0, other = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        double took = end[s] - begin[s];
        int phase = ech_step_kind_phase(step->kind);
        if (step->lane != ECH_LANE_COMPUTE) continue;
        if (phase >= 0) {
            add_to_phase(times, step->block * ECH_PHASES + phase, step->micro, took);
            continue;
        }
        double updated = updated_bytes(plan, step);
        bytes += updated;
        *(updated > 0 ? &update : &other) += took;
    }
    for (int i = 0; i < times->blocks * ECH_PHASES; i++) close_phase(times, i);
    if (bytes > 0) ECH_PUSH(times->update, update / bytes);
    ECH_PUSH(times->other, other / list->turns);
}

/* The interquartile ranges of all blocks' times together, over the sum of their medians. */
static double spread_of(const ech_profile *profile)
{
    double apart = 0, sum = 0;
    for (int b = 0; b < profile->blocks; b++)
        for (int phase = 0; phase < ECH_PHASES; phase++) {
            const ech_profile_block *cost = &profile->block[b];
            apart += cost->high[phase] - cost->low[phase];
            sum += cost->seconds[phase];
        }
    return sum > 0 ? apart / sum : 0;
}

ech_profile *ech_block_times_profile(ech_block_times *times, int ways)
{
    ech_profile *profile = ech_calloc(1, sizeof *profile);
    profile->blocks = times->blocks;
    profile->block = ech_calloc((size_t)times->blocks, sizeof *profile->block);
    for (int i = 0; i < times->blocks * ECH_PHASES; i++) {
        ech_profile_block *cost = &profile->block[i / ECH_PHASES];
        int phase = i % ECH_PHASES;
        cost->low[phase] = ech_quartile(&times->phase[i], 1) * ways;
        cost->seconds[phase] = ech_quartile(&times->phase[i], 2) * ways;
        cost->high[phase] = ech_quartile(&times->phase[i], 3) * ways;
    }
    profile->update_seconds = ech_median(&times->update);
    profile->other_seconds = ech_median(&times->other);
    profile->spread = spread_of(profile);
    profile->processor_share = 1;
    return profile;
}

void ech_profile_judge(ech_profile *profile)
{
    profile->busy = profile->spread > widest_spread || profile->processor_share < smallest_share;
}

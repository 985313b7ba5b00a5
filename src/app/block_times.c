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
    int slots = (int)model->block.n * ECH_PHASES;
    *out = (ech_block_times){.slots = slots, .slot = ech_calloc((size_t)slots, sizeof *out->slot)};
    for (int i = 0; i < slots; i++) out->slot[i].micro = -1;
}

void ech_block_times_free(ech_block_times *times)
{
    for (int i = 0; i < times->slots; i++) free(times->slot[i].seconds.at);
    free(times->slot);
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

/* Begins the sum of another micro-batch. */
static void begin_micro(ech_block_phase *slot, int micro)
{
    if (slot->micro >= 0) ECH_PUSH(slot->seconds, slot->sum);
    slot->micro = micro;
    slot->sum = 0;
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
            ech_block_phase *slot = &times->slot[step->block * ECH_PHASES + phase];
            if (slot->micro != step->micro) begin_micro(slot, step->micro);
            slot->sum += took;
            continue;
        }
        double updated = updated_bytes(plan, step);
        bytes += updated;
        *(updated > 0 ? &update : &other) += took;
    }
    for (int i = 0; i < times->slots; i++) begin_micro(&times->slot[i], -1);
    if (bytes > 0) ECH_PUSH(times->update, update / bytes);
    ECH_PUSH(times->other, other / list->turns);
}

double ech_block_times_spread(const ech_profile_block *block, int n)
{
    double apart = 0, sum = 0;
    for (int i = 0; i < n * ECH_PHASES; i++) {
        const ech_profile_block *cost = &block[i / ECH_PHASES];
        int phase = i % ECH_PHASES;
        apart += cost->high[phase] - cost->low[phase];
        sum += cost->seconds[phase];
    }
    return sum > 0 ? apart / sum : 0;
}

ech_profile *ech_block_times_profile(ech_block_times *times, int ways)
{
    ech_profile *profile = ech_calloc(1, sizeof *profile);
    profile->blocks = times->slots / ECH_PHASES;
    profile->block = ech_calloc((size_t)profile->blocks, sizeof *profile->block);
    for (int i = 0; i < times->slots; i++) {
        ech_profile_block *cost = &profile->block[i / ECH_PHASES];
        int phase = i % ECH_PHASES;
        cost->low[phase] = ech_quartile(&times->slot[i].seconds, 1) * ways;
        cost->seconds[phase] = ech_quartile(&times->slot[i].seconds, 2) * ways;
        cost->high[phase] = ech_quartile(&times->slot[i].seconds, 3) * ways;
    }
    profile->update_seconds = ech_median(&times->update);
    profile->other_seconds = ech_median(&times->other);
    profile->spread = ech_block_times_spread(profile->block, profile->blocks);
    profile->processor_share = 1;
    return profile;
}

void ech_profile_judge(ech_profile *profile)
{
    profile->busy = profile->spread > widest_spread || profile->processor_share < smallest_share;
}

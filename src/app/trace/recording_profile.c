/* SPDX-License-Identifier: Apache-2.0
 *
 * What blocks cost, from recorded lists.
 */
#include <stdlib.h>

#include "app/median.h"
#include "app/trace/recording.h"

typedef struct costing {
    ech_numbers *phase; /* [blocks * ECH_PHASES] seconds */
    double *open;       /* likewise: of the micro-batch whose steps are being added up */
    int *micro;         /* likewise: which that is, or -1 */
    ech_numbers update; /* seconds per byte, of a list of a rank */
} costing;

/* How simulations share out what a profile says of norm and update together (schedule/simulate/costs.c). */
static double share_of(ech_step_kind kind)
{
    switch (kind) {
    case ECH_STEP_NORM:
    case ECH_STEP_STASH:
        return 1.0 / 3;
    case ECH_STEP_UPDATE:
        return 2.0 / 3;
    default:
        return 0;
    }
}

static void close_phase(costing *costs, int slot)
{
    if (costs->micro[slot] >= 0) ECH_PUSH(costs->phase[slot], costs->open[slot]);
    costs->micro[slot] = -1;
    costs->open[slot] = 0;
}

/* A phase may be several steps, with collectives between them. */
static void note_phase(costing *costs, int slot, int micro, double took)
{
    if (costs->micro[slot] != micro) close_phase(costs, slot);
    costs->micro[slot] = micro;
    costs->open[slot] += took;
}

static void note_list(const ech_rank_trace *trace, const ech_traced_list *list,
                      const ech_plan *plan, costing *costs)
{
    double seconds = 0, bytes = 0;
    for (size_t s = 0; s < list->n; s++) {
        const ech_traced_step *traced = &trace->step.at[list->first + s];
        const ech_step *step = &plan->list[ECH_LIST_TRAIN].step.at[s];
        double took = traced->end - traced->begin, share = share_of(step->kind);
        int phase = ech_step_kind_phase(step->kind);
        if (phase >= 0) note_phase(costs, step->block * ECH_PHASES + phase, step->micro, took);
        if (share > 0) {
            seconds += took;
            bytes += share * (double)plan->bucket.at[step->index].elements *
                     (double)ech_dtype_bytes(plan->real);
        }
    }
    for (int i = 0; i < (int)plan->model->block.n * ECH_PHASES; i++) close_phase(costs, i);
    if (bytes > 0) ECH_PUSH(costs->update, seconds / bytes);
}

ech_profile *ech_recording_profile(const ech_recording *recording, const ech_plan *const *plans)
{
    int lists = ech_recording_lists(recording, plans), blocks = (int)plans[0]->model->block.n;
    ech_profile *profile = ech_calloc(1, sizeof *profile);
    size_t slots = (size_t)blocks * ECH_PHASES;
    costing costs = {.phase = ech_calloc(slots, sizeof *costs.phase),
                     .open = ech_calloc(slots, sizeof *costs.open),
                     .micro = ech_calloc(slots, sizeof *costs.micro)};
    for (size_t i = 0; i < slots; i++) costs.micro[i] = -1;
    for (int rank = 0; rank < recording->ranks; rank++)
        for (int l = 0; l < lists; l++)
            note_list(&recording->trace[rank], &recording->trace[rank].list.at[l], plans[rank],
                      &costs);
    profile->blocks = blocks;
    profile->block = ech_calloc((size_t)blocks, sizeof *profile->block);
    for (int i = 0; i < blocks * ECH_PHASES; i++) {
        profile->block[i / ECH_PHASES].seconds[i % ECH_PHASES] =
            ech_median(&costs.phase[i]) * ech_plan_ways(plans[0]);
        free(costs.phase[i].at);
    }
    profile->update_seconds = ech_median(&costs.update);
    free(costs.update.at);
    free(costs.phase);
    free(costs.open);
    free(costs.micro);
    return profile;
}

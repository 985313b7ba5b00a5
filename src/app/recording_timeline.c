/* SPDX-License-Identifier: Apache-2.0
 *
 * A recorded list as a timeline.
 */
#include <math.h>

#include "app/recording.h"
#include "schedule/simulate.h"

/* As schedule/simulate.c draws its steps. */
/* Blocks of a chunk and micro-batch follow each other without a wait; what is between two of them is the
 * interpreter at work. Of all else nothing is known. */
static bool continues(const ech_bar *last, const ech_bar *bar)
{
    bool same = last->rank == bar->rank && last->chunk == bar->chunk && last->micro == bar->micro;
    bool backward = last->kind == ECH_BAR_BACKWARD && bar->kind == ECH_BAR_WEIGHT;
    return same && bar->micro >= 0 && (last->kind == bar->kind || backward);
}

static void add_bar(ech_timeline *timeline, ech_bar bar)
{
    ech_bar *last = timeline->bar.n ? &timeline->bar.at[timeline->bar.n - 1] : NULL;
    if (last && continues(last, &bar))
        last->end = bar.end;
    else
        ECH_PUSH(timeline->bar, bar);
}

static double first_begin(const ech_recording *recording, int list)
{
    double begin = INFINITY;
    for (int rank = 0; rank < recording->ranks; rank++) {
        const ech_rank_trace *trace = &recording->trace[rank];
        const ech_traced_list *traced = &trace->list.at[list];
        for (size_t s = traced->first; s < traced->first + traced->n; s++)
            if (trace->step.at[s].lane == ECH_LANE_COMPUTE)
                begin = fmin(begin, trace->step.at[s].begin);
    }
    return begin;
}

void ech_recording_timeline(const ech_recording *recording, const ech_plan *const *plans,
                            ech_timeline *out)
{
    int last = ech_recording_lists(recording, plans) - 1;
    ECH_ASSERT(last >= 0);
    double start = first_begin(recording, last);
    ech_timeline timeline = {
        .ranks = recording->ranks, .chunks = plans[0]->layout->chunks, .seconds = true};
    for (int rank = 0; rank < recording->ranks; rank++) {
        const ech_rank_trace *trace = &recording->trace[rank];
        const ech_traced_list *list = &trace->list.at[last];
        for (size_t s = list->first; s < list->first + list->n; s++) {
            const ech_traced_step *step = &trace->step.at[s];
            ech_bar bar = {.rank = rank,
                           .kind = ech_step_kind_bar(step->kind),
                           .chunk = step->chunk,
                           .micro = step->micro,
                           .begin = step->begin - start,
                           .end = step->end - start};
            if (step->lane == ECH_LANE_COMPUTE) add_bar(&timeline, bar);
        }
    }
    ech_timeline_finish(&timeline);
    *out = timeline;
}

void ech_recording_number(const ech_layout *layout, ech_timeline *timeline)
{
    if (layout->uniform) return;
    for (size_t i = 0; i < timeline->bar.n; i++) {
        ech_bar *bar = &timeline->bar.at[i];
        int own = ech_layout_micro_batches(layout, bar->rank);
        if (bar->micro < 0) continue;
        bar->micro = (int)(bar->micro / own * layout->micro_batches +
                           ech_layout_global_micro(layout, bar->rank, bar->micro % own));
    }
}

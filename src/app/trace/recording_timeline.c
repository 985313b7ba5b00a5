/* SPDX-License-Identifier: Apache-2.0
 *
 * A recorded list as a timeline.
 */
#include <math.h>
#include <stdlib.h>

#include "app/trace/recording.h"
#include "schedule/simulate/simulate.h"

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

static void add_rank(const ech_rank_trace *trace, int list, double start, const ech_list *steps,
                     ech_timeline *timeline)
{
    const ech_traced_list *traced = &trace->list.at[list];
    double *begin = ech_calloc(traced->n, sizeof *begin), *end = ech_calloc(traced->n, sizeof *end);
    for (size_t s = 0; s < traced->n; s++) {
        begin[s] = trace->step.at[traced->first + s].begin - start;
        end[s] = trace->step.at[traced->first + s].end - start;
    }
    ech_timeline_add_list(timeline, trace->rank, steps, begin, end);
    free(begin);
    free(end);
}

void ech_recording_timeline(const ech_recording *recording, const ech_plan *const *plans,
                            ech_timeline *out)
{
    int last = ech_recording_lists(recording, plans) - 1;
    ECH_ASSERT(last >= 0);
    double start = first_begin(recording, last);
    ech_timeline timeline = {.ranks = recording->ranks,
                             .chunks = plans[0]->layout->chunks,
                             .sequence_chunks =
                                 plans[0]->list[ECH_LIST_TRAIN].numbering.sequence_chunks,
                             .seconds = true};
    for (int rank = 0; rank < recording->ranks; rank++)
        add_rank(&recording->trace[rank], last, start, &plans[rank]->list[ECH_LIST_TRAIN],
                 &timeline);
    ech_timeline_finish(&timeline);
    *out = timeline;
}

void ech_recording_number(const ech_layout *layout, ech_timeline *timeline)
{
    int chunks = timeline->sequence_chunks > 1 ? timeline->sequence_chunks : 1;
    ech_numbering all = {(int)layout->micro_batches, chunks};
    if (layout->uniform) return;
    for (size_t i = 0; i < timeline->bar.n; i++) {
        ech_bar *bar = &timeline->bar.at[i];
        if (bar->micro < 0) continue;
        ech_numbering own = {ech_layout_micro_batches(layout, bar->rank), chunks};
        ech_micro at = ech_micro_at(own, bar->micro);
        at.micro_batch = (int)ech_layout_global_micro(layout, bar->rank, at.micro_batch);
        bar->micro = ech_micro_number(all, at);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What blocks cost, from recorded lists.
 */
#include <stdlib.h>

#include "app/block_times.h"
#include "app/trace/recording.h"

static void add_list(ech_block_times *times, const ech_plan *plan, const ech_rank_trace *trace,
                     const ech_traced_list *list)
{
    double *begin = ech_calloc(list->n, sizeof *begin), *end = ech_calloc(list->n, sizeof *end);
    for (size_t s = 0; s < list->n; s++) {
        begin[s] = trace->step.at[list->first + s].begin;
        end[s] = trace->step.at[list->first + s].end;
    }
    ech_block_times_add(times, plan, begin, end);
    free(begin);
    free(end);
}

ech_profile *ech_recording_profile(const ech_recording *recording, const ech_plan *const *plans)
{
    int lists = ech_recording_lists(recording, plans);
    ech_block_times times;
    ech_block_times_create(plans[0]->model, &times);
    for (int rank = 0; rank < recording->ranks; rank++)
        for (int l = 0; l < lists; l++)
            add_list(&times, plans[rank], &recording->trace[rank],
                     &recording->trace[rank].list.at[l]);
    ech_profile *profile = ech_block_times_profile(&times, ech_plan_ways(plans[0]));
    ech_block_times_free(&times);
    return profile;
}

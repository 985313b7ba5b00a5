/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of all ranks: read, and compared with each other and with plans.
 */
#include "app/trace/recording.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

/* ---- reading ---- */

static char *path_of(const char *folder, int rank)
{
    char name[32];
    snprintf(name, sizeof name, "rank-%05d.jsonl", rank);
    return ech_file_join(folder, name);
}

/* Whether the trace is rank's, of the start that rank 0's is of. */
static bool belongs(const ech_rank_trace *trace, int rank, const ech_rank_trace *first)
{
    return trace->rank == rank && trace->world == first->world &&
           trace->first_step == first->first_step;
}

/* *usable: the file is there and says something that belongs to the others. */
static ech_status read_rank(const char *folder, int rank, ech_rank_trace *traces, ech_text *why,
                            bool *usable)
{
    static const char again[] = "run again with log.trace=true to record all ranks";
    char *path = path_of(folder, rank);
    ech_status status = ECH_OK;
    *usable = false;
    if (!ech_file_exists(path))
        ech_text_append(why, "%s is not there; %s", path, again);
    else
        status = ech_rank_trace_read(path, &traces[rank]);
    if (status == ECH_OK && why->n == 0) {
        if (traces[rank].world == 0)
            ech_text_append(why, "%s is empty: no step was recorded yet", path);
        else if (!belongs(&traces[rank], rank, &traces[0]))
            ech_text_append(why, "%s is of another run than %s/rank-00000.jsonl; %s", path, folder,
                            again);
        else
            *usable = true;
    }
    free(path);
    return status;
}

ech_status ech_recording_read(const char *folder, ech_recording *out, ech_text *why)
{
    ech_recording recording = {.ranks = 1, .trace = ech_calloc(1, sizeof *recording.trace)};
    bool usable = false;
    ech_status status = read_rank(folder, 0, recording.trace, why, &usable);
    if (status == ECH_OK && usable) {
        size_t room = 1;
        recording.ranks = recording.trace[0].world;
        recording.trace =
            ech_grow(recording.trace, &room, (size_t)recording.ranks, sizeof *recording.trace);
    }
    for (int rank = 1; rank < recording.ranks && status == ECH_OK && usable; rank++)
        status = read_rank(folder, rank, recording.trace, why, &usable);
    if (status != ECH_OK || !usable) ech_recording_free(&recording);
    if (status == ECH_OK) *out = recording;
    return status;
}

void ech_recording_free(ech_recording *recording)
{
    for (int rank = 0; rank < recording->ranks; rank++)
        ech_rank_trace_free(&recording->trace[rank]);
    free(recording->trace);
    *recording = (ech_recording){0};
}

/* ---- comparing ---- */

static bool is_same(const ech_traced_step *traced, const ech_step *step, int64_t list)
{
    bool of_block = step->block >= 0;
    return traced->kind == step->kind && traced->lane == step->lane &&
           traced->step == list + step->turn && traced->chunk == (of_block ? step->chunk : -1) &&
           traced->micro == (of_block ? step->micro : -1) && traced->block == step->block &&
           traced->peer == step->peer;
}

/* Steps behind where a list was cut off are not missed in the last one. */
static bool fits_plan(const ech_rank_trace *trace, const ech_plan *plan)
{
    const ech_list *train = &plan->list[ECH_LIST_TRAIN];
    for (size_t l = 0; l < trace->list.n; l++) {
        const ech_traced_list *list = &trace->list.at[l];
        bool whole = list->n == train->step.n;
        bool cut_off = list->n < train->step.n && l + 1 == trace->list.n;
        if (!whole && !cut_off) return false;
        if (list->step != trace->first_step + (int64_t)l * train->turns) return false;
        for (size_t s = 0; s < list->n; s++)
            if (!is_same(&trace->step.at[list->first + s], &train->step.at[s], list->step))
                return false;
    }
    return true;
}

bool ech_recording_fits(const ech_recording *recording, const ech_plan *const *plans, int n,
                        ech_text *why)
{
    bool fits = recording->ranks == n;
    for (int rank = 0; rank < n && fits; rank++)
        fits = fits_plan(&recording->trace[rank], plans[rank]);
    if (!fits)
        ech_text_append(why, "the traces are not of this layout: an earlier start of the run wrote "
                             "them; run again with log.trace=true");
    else if (ech_recording_lists(recording, plans) == 0)
        ech_text_append(why, "no step was recorded to its end on all ranks yet");
    return why->n == 0;
}

int ech_recording_lists(const ech_recording *recording, const ech_plan *const *plans)
{
    size_t lists = SIZE_MAX;
    for (int rank = 0; rank < recording->ranks; rank++) {
        const ech_rank_trace *trace = &recording->trace[rank];
        size_t n = trace->list.n;
        if (n && trace->list.at[n - 1].n < plans[rank]->list[ECH_LIST_TRAIN].step.n) n--;
        if (n < lists) lists = n;
    }
    return lists == SIZE_MAX ? 0 : (int)lists;
}

bool ech_recording_has_one_clock(const ech_recording *recording, const ech_plan *const *plans)
{
    int lists = ech_recording_lists(recording, plans);
    for (int l = 0; l < lists; l++) {
        double begin = -INFINITY, end = INFINITY;
        for (int rank = 0; rank < recording->ranks; rank++) {
            const ech_rank_trace *trace = &recording->trace[rank];
            const ech_traced_list *list = &trace->list.at[l];
            double own_begin = INFINITY, own_end = -INFINITY;
            for (size_t s = list->first; s < list->first + list->n; s++) {
                own_begin = fmin(own_begin, trace->step.at[s].begin);
                own_end = fmax(own_end, trace->step.at[s].end);
            }
            begin = fmax(begin, own_begin);
            end = fmin(end, own_end);
        }
        if (begin > end) return false;
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A recording: the traces of all ranks of a run, read by one process, with the plans that the ranks
 * executed. It gives a timeline and measured costs of blocks. Not collective.
 */
#ifndef ECH_APP_TRACE_RECORDING_H
#define ECH_APP_TRACE_RECORDING_H

#include "app/count.h"
#include "layout/profile.h"
#include "schedule/plan.h"
#include "draw/timeline.h"

/* One rank's file. Each start of a run rewrites it. */
typedef struct ech_recorded_rank {
    /* When steps began and ended, in seconds. The rank converted its clock to rank 0's when it
     * wrote the file, as exactly as it could measure the difference. Element e * (steps of the
     * train list) + s is step s in execution e of the list. */
    ech_numbers begin, end;
    int64_t world;      /* number of ranks of the start that wrote the file; 0: the file is empty */
    int64_t first_step; /* training step at which that start began */
} ech_recorded_rank;

typedef struct ech_recording {
    const ech_plan *const *plans; /* [ranks]; borrowed */
    int ranks;                    /* 0: the recording is empty */
    int lists;                    /* executions of the train list that are complete on all ranks */
    ech_recorded_rank *rank;      /* [ranks] */
} ech_recording;

/* Reads the traces in `folder` of a run with these plans (or outlines) of all n ranks. `why` must
 * be empty. If files are missing or belong to other plans, this is not an error: the recording is
 * empty and `why` gets a sentence. Errors: a file is damaged or of another version; they name
 * file:line and key. Limits: 1 GiB per file, 4 KiB per line. An incomplete last line is ignored. */
ech_status ech_recording_read(const char *folder, const ech_plan *const *plans, int n,
                              ech_recording *out, ech_text *why);
void ech_recording_free(ech_recording *recording);

/* Parses the n bytes of one rank's file; `name` is for errors. *fits: the file's steps are the
 * plan's, in order. Release with ech_recorded_rank_free. */
ech_status ech_recording_parse(const char *text, size_t n, const char *name, const ech_plan *plan,
                               ech_recorded_rank *out, bool *fits);
void ech_recorded_rank_free(ech_recorded_rank *rank);

/* ---- these need a recording that is not empty ---- */

/* True if the conversion to rank 0's clock was exact enough to draw all ranks in one timeline: no
 * execution of the list ends on one rank before it begins on another. Under equal clocks that
 * cannot happen, since the list ends with a reduction over all ranks. */
bool ech_recording_has_one_clock(const ech_recording *recording);
/* Makes the timeline of the last complete execution; ech_timeline_finish was called on it. Time 0
 * is the begin of the first step on a compute lane. The clocks must agree. Release with
 * ech_timeline_free. */
void ech_recording_timeline(const ech_recording *recording, ech_timeline *out);
/* Makes a profile of recorded costs of blocks: ech_measured_times_profile over all executions and
 * ranks. Messages and collectives cost nothing in it, since their recorded times include waiting.
 * Release with ech_profile_destroy. */
ech_profile *ech_recording_profile(const ech_recording *recording);

/* Renumbers the bars of any timeline (simulate/timeline.h: a bar is one drawn step). A bar is
 * labelled with its rank's own count of micro-batches or sequence chunks. If stages have different
 * numbers of replicas, these counts differ between stages, and the bars get the count over all
 * replicas instead, which is the same on every stage. Otherwise nothing changes. */
void ech_recording_number(const ech_layout *layout, ech_timeline *timeline);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What was recorded of a run: the traces of all its ranks, held against the plans that they ran; as a
 * timeline and as costs of blocks.
 */
#ifndef ECH_APP_TRACE_RECORDING_H
#define ECH_APP_TRACE_RECORDING_H

#include "app/count.h"
#include "layout/profile.h"
#include "schedule/schedule.h"
#include "draw/timeline.h"

/* A rank's lists, one behind the other: when each step of the plan's train list began and ended, in seconds on
 * rank 0's clock. */
typedef struct ech_recorded_rank {
    ech_numbers begin, end;
    int64_t world, first_step; /* of that start of the run; world 0: nothing had been written yet */
} ech_recorded_rank;

typedef struct ech_recording {
    const ech_plan *const *plans; /* [ranks] not owned */
    int ranks;                    /* 0: nothing is there */
    int lists;                    /* that all ranks have to their end */
    ech_recorded_rank *rank;      /* [ranks] */
} ech_recording;

/* The traces in `folder` of what these plans, of all n ranks, run; outlines will do. Where there is nothing to
 * report, not all of it, or it is of other plans, the recording is empty and `why` gets a sentence. Errors: a file
 * that is damaged, or of another version; they name file:line and key. A file has at most 1 GiB, a line at most
 * 4 KiB; what follows the last newline was being written and is not looked at. */
ech_status ech_recording_read(const char *folder, const ech_plan *const *plans, int n,
                              ech_recording *out, ech_text *why);
void ech_recording_free(ech_recording *recording);

/* One rank's file, from memory; `name` stands for it in errors. *fits: its steps are the plan's, in their order.
 * Released as part of a recording, or with ech_recorded_rank_free. */
ech_status ech_recording_parse(const char *text, size_t n, const char *name, const ech_plan *plan,
                               ech_recorded_rank *out, bool *fits);
void ech_recorded_rank_free(ech_recorded_rank *rank);

/* ---- of a recording that is not empty ---- */

/* Whether all ranks had one clock: as each list ends in a reduction over all of them, none can have ended
 * before another began. */
bool ech_recording_has_one_clock(const ech_recording *recording);
/* The compute lanes in the last of the lists, from the begin of its first step on, drawn as
 * ech_timeline_add_list does; finished. Needs one clock. */
void ech_recording_timeline(const ech_recording *recording, ech_timeline *out);
/* Costs as they were: medians over lists, micro-batches and ranks, of a whole block as one rank would take
 * for it (see costs.c: of tensor and context ranks each has a share). Messages and collectives are free, as their times would
 * tell of waiting. Bytes of blocks are not known. Released with ech_profile_destroy. */
ech_profile *ech_recording_profile(const ech_recording *recording);

/* Bars of a timeline have the rank's own number of the micro-batch, or of its piece. Where stages differ in replicas, which would make these numbers hard to follow, they become
 * the number over all ranks. */
void ech_recording_number(const ech_layout *layout, ech_timeline *timeline);

#endif

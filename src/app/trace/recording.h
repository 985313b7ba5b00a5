/* SPDX-License-Identifier: Apache-2.0
 *
 * What was recorded of a run: the traces of all its ranks, held against the plans that they ran; as a
 * timeline and as costs of blocks.
 */
#ifndef ECH_APP_TRACE_RECORDING_H
#define ECH_APP_TRACE_RECORDING_H

#include "app/trace/read.h"
#include "layout/profile.h"
#include "schedule/timeline/timeline.h"

typedef struct ech_recording {
    int ranks;             /* 0: nothing is there */
    ech_rank_trace *trace; /* [ranks] */
} ech_recording;

/* The traces in `folder`. Where there is nothing to report, or not all of it, the recording is empty and
 * `why` gets a sentence. Errors: a file that is damaged. */
ech_status ech_recording_read(const char *folder, ech_recording *out, ech_text *why);
void ech_recording_free(ech_recording *recording);

/* Whether these plans' train lists are what the traces are of: the same steps in the same order, and on
 * every rank some list to its end. If not, `why` gets a sentence. `plans`: of all n ranks; outlines
 * will do. */
bool ech_recording_fits(const ech_recording *recording, const ech_plan *const *plans, int n,
                        ech_text *why);

/* ---- of a recording that fits ---- */

/* How many lists all ranks have to their end. */
int ech_recording_lists(const ech_recording *recording, const ech_plan *const *plans);
/* Whether all ranks had one clock: as each list ends in a reduction over all of them, none can have ended
 * before another began. */
bool ech_recording_has_one_clock(const ech_recording *recording, const ech_plan *const *plans);
/* The compute lanes in the last of these lists, from the begin of its first step on, drawn as
 * ech_timeline_add_list does; finished. Needs one clock. */
void ech_recording_timeline(const ech_recording *recording, const ech_plan *const *plans,
                            ech_timeline *out);
/* Costs as they were: medians over lists, micro-batches and ranks, of a whole block as one rank would take
 * for it (see costs.c: of tensor and context ranks each has a share). Messages and collectives are free, as their times would
 * tell of waiting. Bytes of blocks are not known. Released with ech_profile_destroy. */
ech_profile *ech_recording_profile(const ech_recording *recording, const ech_plan *const *plans);

/* Bars of a timeline have the rank's own number of the micro-batch, or of its piece. Where stages differ in replicas, which would make these numbers hard to follow, they become
 * the number over all ranks. */
void ech_recording_number(const ech_layout *layout, ech_timeline *timeline);

#endif

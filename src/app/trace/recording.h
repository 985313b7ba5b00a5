/* SPDX-License-Identifier: Apache-2.0
 *
 * A recording: the traces of all ranks of a run, read with the plans that they ran; its timeline and its costs
 * of blocks.
 */
#ifndef ECH_APP_TRACE_RECORDING_H
#define ECH_APP_TRACE_RECORDING_H

#include "app/count.h"
#include "layout/profile.h"
#include "schedule/schedule.h"
#include "draw/timeline.h"

/* A rank's train lists in order: when each step began and ended, in seconds on rank 0's clock. */
typedef struct ech_recorded_rank {
    ech_numbers begin, end;
    int64_t world, first_step; /* of that start of the run; world 0: the file is empty */
} ech_recorded_rank;

typedef struct ech_recording {
    const ech_plan *const *plans; /* [ranks]; borrowed */
    int ranks;                    /* 0: the recording is empty */
    int lists;                    /* complete lists that all ranks have */
    ech_recorded_rank *rank;      /* [ranks] */
} ech_recording;

/* Reads the traces in `folder` of a run with these plans (or outlines) of all n ranks. If there are none, some
 * ranks' are missing, or they are of other plans, the recording is empty and `why` gets a sentence. Errors: a
 * file is damaged or of another version; they name file:line and key. Limits: 1 GiB per file, 4 KiB per line. An
 * incomplete last line is ignored. */
ech_status ech_recording_read(const char *folder, const ech_plan *const *plans, int n,
                              ech_recording *out, ech_text *why);
void ech_recording_free(ech_recording *recording);

/* Parses one rank's file of n bytes; `name` is for errors. *fits: its steps are the plan's, in order. Release
 * with ech_recorded_rank_free. */
ech_status ech_recording_parse(const char *text, size_t n, const char *name, const ech_plan *plan,
                               ech_recorded_rank *out, bool *fits);
void ech_recorded_rank_free(ech_recorded_rank *rank);

/* ---- of a recording that is not empty ---- */

/* Whether the ranks' clocks agree: each list ends with a reduction over all ranks, so on no rank can it end
 * before it began on another. */
bool ech_recording_has_one_clock(const ech_recording *recording);
/* The timeline of the last list, finished; it begins with the first step on a compute lane. The clocks must
 * agree. */
void ech_recording_timeline(const ech_recording *recording, ech_timeline *out);
/* Recorded costs of blocks: ech_block_times_profile over all lists and ranks. Messages and collectives cost
 * nothing in it, since their recorded times include waiting. Release with ech_profile_destroy. */
ech_profile *ech_recording_profile(const ech_recording *recording);

/* Bars are labelled with the rank's own number of the micro-batch or sequence chunk. If stages differ in
 * replicas, this changes them to the numbers over all ranks, which can be followed through the pipeline. */
void ech_recording_number(const ech_layout *layout, ech_timeline *timeline);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which buckets' weights a step's calls read. Private to src/schedule.
 */
#ifndef ECH_SCHEDULE_WEIGHT_READS_H
#define ECH_SCHEDULE_WEIGHT_READS_H

#include "schedule/plan.h"

/* Reads of a bucket's weights by a step or a call: from call `first` to call `last` of the block's
 * program. */
typedef struct ech_read {
    int bucket, first, last;
} ech_read;
typedef struct ech_read_list {
    ECH_LIST(ech_read) all;
} ech_read_list;

/* The reads in lists of one purpose; found once per block. */
typedef struct ech_weight_reads {
    const ech_plan *plan;
    ech_purpose purpose;
    ech_read_list **of[ECH_PHASES]; /* [blocks] call by call; NULL: not found yet */
    int *at;                        /* [buckets] the bucket's index in `step` + 1; 0: not in it */
    ech_read_list step;
} ech_weight_reads;

void ech_weight_reads_begin(ech_weight_reads *reads, const ech_plan *plan, ech_purpose purpose);
/* The buckets that the step reads, each once, in the order of calls; none if it runs no phase of a
 * block. Borrowed until the next call. */
const ech_read_list *ech_weight_reads_of(ech_weight_reads *reads, const ech_step *step);
void ech_weight_reads_end(ech_weight_reads *reads);

#endif

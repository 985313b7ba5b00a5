/* SPDX-License-Identifier: Apache-2.0
 *
 * Which buckets' weights a step's calls read. Private to src/schedule.
 */
#ifndef ECH_SCHEDULE_WEIGHT_READS_H
#define ECH_SCHEDULE_WEIGHT_READS_H

#include "schedule/plan.h"

/* A step, or one call, reads weights of a bucket: from call `first` of the block's program to call
 * `last`. */
typedef struct ech_read {
    int bucket, first, last;
} ech_read;
typedef struct ech_read_list {
    ECH_LIST(ech_read) all;
} ech_read_list;

/* What is read in the lists of a purpose; asked of the blocks once. */
typedef struct ech_weight_reads {
    const ech_plan *plan;
    ech_purpose purpose;
    ech_read_list **of[ECH_PHASES]; /* [blocks] call by call; NULL: not asked yet */
    int *at;                        /* [buckets] where in `step` the bucket is, + 1; else 0 */
    ech_read_list step;
} ech_weight_reads;

void ech_weight_reads_begin(ech_weight_reads *reads, const ech_plan *plan, ech_purpose purpose);
/* Each bucket that the step reads once, in the order of calls; none if it runs no phase of a block.
 * Borrowed until the next call. */
const ech_read_list *ech_weight_reads_of(ech_weight_reads *reads, const ech_step *step);
void ech_weight_reads_end(ech_weight_reads *reads);

#endif

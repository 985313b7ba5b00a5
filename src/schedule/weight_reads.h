/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the buckets whose weights a step of the list reads. Weight gathering (ZeRO 3) and the
 * declaration of accesses need this. A step such as F or B runs one phase of a block: a sequence of
 * calls to kernels, numbered from 0, which is called the block's program. Private to src/schedule.
 */
#ifndef ECH_SCHEDULE_WEIGHT_READS_H
#define ECH_SCHEDULE_WEIGHT_READS_H

#include "schedule/plan.h"

/* The calls `first` to `last` of the block's program are those that read weights of the bucket. */
typedef struct ech_read {
    int bucket, first, last;
} ech_read;
typedef struct ech_read_list {
    ECH_LIST(ech_read) all;
} ech_read_list;

/* The reads by steps of lists of one purpose (training, validation, generation). They are found
 * once for each block and phase, and then looked up. */
typedef struct ech_weight_reads {
    const ech_plan *plan;
    ech_purpose purpose;
    /* [blocks] of a phase: for each block an array of lists, one per call; NULL: not found yet */
    ech_read_list **of[ECH_PHASES];
    ech_read_list step; /* what ech_weight_reads_of returned last */
    int *at;            /* [buckets] the bucket's index in `step` plus 1; 0: it is not there */
} ech_weight_reads;

void ech_weight_reads_begin(ech_weight_reads *reads, const ech_plan *plan, ech_purpose purpose);
/* The buckets that the step reads, each once, in the order of calls; none if it runs no phase of a
 * block. Borrowed until the next call. */
const ech_read_list *ech_weight_reads_of(ech_weight_reads *reads, const ech_step *step);
void ech_weight_reads_end(ech_weight_reads *reads);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of a model's blocks (layout/profile.h), from the begin and end times of the steps of train
 * lists, measured by `echelon profile` or recorded in a trace.
 */
#ifndef ECH_APP_BLOCK_TIMES_H
#define ECH_APP_BLOCK_TIMES_H

#include "app/count.h"
#include "app/setup/setup.h"
#include "layout/profile.h"
#include "schedule/plan.h"

/* One phase of one block. */
typedef struct ech_measured_phase {
    ech_numbers seconds; /* one number per micro-batch, or per sequence chunk */
    double sum;          /* seconds so far of the micro-batch whose steps are being summed */
    int micro;           /* number of that micro-batch; -1: none */
} ech_measured_phase;

typedef struct ech_measured_times {
    int slots;             /* blocks * ECH_PROFILE_PHASES */
    ech_measured_phase *slot; /* [slots], block by block */
    ech_numbers update;    /* seconds of norm and update per byte of parameters, by list added */
    ech_numbers other;     /* seconds of other compute steps per training step, by list added */
} ech_measured_times;

void ech_measured_times_create(const ech_model *model, ech_measured_times *out);
void ech_measured_times_free(ech_measured_times *times);

/* Adds a train list that the plan's rank has executed; begin and end, [steps of the list], are in
 * seconds. The steps of one phase of a block on one micro-batch are summed to one number:
 * collectives split a phase into several steps, and so does the alternation of B and W. */
void ech_measured_times_add(ech_measured_times *times, const ech_plan *plan, const double *begin,
                            const double *end);

/* A profile with medians and quartiles over lists, micro-batches and ranks. Times of phases are
 * multiplied by `ways` (ech_plan_ways), the number of tensor and context ranks that divide a block,
 * to give the times of an unsharded block on one rank. The caller sets link, bytes of blocks and
 * the model's description. Release with ech_profile_destroy. */
ech_profile *ech_measured_times_profile(ech_measured_times *times, int ways);

/* The sum of the interquartile ranges of the times of n blocks over the sum of their medians. */
double ech_measured_times_spread(const ech_profile_block *block, int n);

/* Sets profile->busy (other programs disturbed the measurement) from its spread and
 * processor_share. */
void ech_measured_judge(ech_profile *profile);

/* The measurement of `echelon profile`. Every rank trains the unsharded model alone for `steps`
 * training steps after one that does not count, and again for each R of layout/profile.h, all ranks
 * at the same time, so that they contend for memory as in the run. Medians and quartiles over
 * training steps and micro-batches are averaged over the ranks. Then ranks 0 and 1 measure the link
 * between them. `design`: the run's. *out is the same on every rank; release with
 * ech_profile_destroy. Reads the run's data, writes nothing. Collective. */
ech_status ech_measure_blocks(const ech_design *design, ech_comm *comm, int64_t steps,
                              ech_profile **out);

#endif

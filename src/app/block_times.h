/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of a model's blocks (layout/profile.h) from the begin and end times of the steps of train lists, as
 * measured by `echelon profile` or recorded in a trace.
 */
#ifndef ECH_APP_BLOCK_TIMES_H
#define ECH_APP_BLOCK_TIMES_H

#include "app/count.h"
#include "app/setup/setup.h"
#include "layout/profile.h"
#include "schedule/schedule.h"

/* One phase of one block. */
typedef struct ech_block_phase {
    ech_numbers seconds; /* of each micro-batch or sequence chunk */
    double sum;          /* seconds so far of the one whose steps are being added up */
    int micro;           /* its number, or -1 */
} ech_block_phase;

typedef struct ech_block_times {
    int slots;
    ech_block_phase *slot; /* [blocks * ECH_PHASES] */
    ech_numbers update;    /* seconds per byte of norm and update, one per list of a rank */
    ech_numbers other;     /* seconds of other steps, per training step; one per list of a rank */
} ech_block_times;

void ech_block_times_create(const ech_model *model, ech_block_times *out);
void ech_block_times_free(ech_block_times *times);

/* Adds a train list that the plan's rank has run: begin[steps] and end[steps] in seconds. The steps of one phase
 * of a block on one micro-batch are summed to one number: collectives split a phase into several steps, and so
 * do B and W where they alternate. */
void ech_block_times_add(ech_block_times *times, const ech_plan *plan, const double *begin,
                         const double *end);

/* Medians and quartiles over lists, micro-batches and ranks, multiplied by `ways` (ech_plan_ways), over which
 * tensor and context ranks divide a block: so they are the times of a whole block on one rank. Link, bytes of
 * blocks and the model's description are left empty, for the caller. Release with ech_profile_destroy. */
ech_profile *ech_block_times_profile(ech_block_times *times, int ways);

/* The interquartile ranges of the times of n blocks together, over the sum of their medians. */
double ech_block_times_spread(const ech_profile_block *block, int n);

/* Sets profile->busy: whether other programs disturbed the measurement, judged by its spread and by the
 * fraction of time in which it had a processor. */
void ech_profile_judge(ech_profile *profile);

/* The measurement of `echelon profile`. Every rank trains the whole model alone for `steps` training steps after one
 * that does not count, all ranks at the same time, so that they contend for memory as in the run. Medians and
 * quartiles over steps and micro-batches are averaged over the ranks. Then ranks 0 and 1 measure the link between
 * them. `design`: of the run. *out: the same on every rank. Reads the run's data, writes nothing. Collective. */
ech_status ech_measure_blocks(const ech_design *design, ech_comm *comm, int64_t steps,
                              ech_profile **out);

#endif

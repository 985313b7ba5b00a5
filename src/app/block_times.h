/* SPDX-License-Identifier: Apache-2.0
 *
 * What the blocks of a model cost, from the times at which the steps of train lists began and ended: as
 * `echelon profile` has measured them, or as a trace has recorded them.
 */
#ifndef ECH_APP_BLOCK_TIMES_H
#define ECH_APP_BLOCK_TIMES_H

#include "app/count.h"
#include "layout/profile.h"
#include "schedule/schedule.h"

typedef struct ech_block_times {
    int blocks;
    ech_numbers *phase; /* [blocks * ECH_PHASES] seconds of a micro-batch, or of a piece of one */
    double *open;       /* likewise: of the micro-batch whose steps are being added up */
    int *micro;         /* likewise: which that is, or -1 */
    ech_numbers update; /* seconds per byte, of a list of a rank */
    ech_numbers other;  /* seconds, of a training step of a rank */
} ech_block_times;

void ech_block_times_create(const ech_model *model, ech_block_times *out);
void ech_block_times_free(ech_block_times *times);

/* One train list as the plan's rank ran it: begin and end of each of its steps, in seconds. All steps of a
 * phase of a block on one micro-batch count as one number: collectives cut a phase into steps, and so do
 * B and W that take turns. */
void ech_block_times_add(ech_block_times *times, const ech_plan *plan, const double *begin,
                         const double *end);

/* Medians and quartiles over lists, micro-batches and ranks, of a whole block as one rank would take for it
 * (see costs.c: of tensor and context ranks each has a share): `ways` is ech_plan_ways. Messages are free,
 * bytes of blocks not known, and it is a profile of no model; that is the caller's. Released with
 * ech_profile_destroy. */
ech_profile *ech_block_times_profile(ech_block_times *times, int ways);

/* Whether the profile tells of a machine that did something else, too: its spread and its processor's share
 * say so. Sets profile->busy. */
void ech_profile_judge(ech_profile *profile);

#endif

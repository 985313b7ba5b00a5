/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans in virtual time: all ranks' lists run step by step, with costs instead of work. Compute steps
 * take their cost; a message begins when both ends have begun it (rendezvous), and no other is on its
 * way from the one or to the other, and takes latency + bytes / bandwidth; a collective begins when all
 * members have. The same rules tell a deadlock.
 */
#ifndef ECH_SIMULATE_SIMULATE_H
#define ECH_SIMULATE_SIMULATE_H

#include "schedule/costs.h"
#include "draw/timeline.h"

/* What crosses between a pair of ranks in one list. */
typedef struct ech_link_use {
    int from, to;
    int64_t messages, bytes;
} ech_link_use;

typedef struct ech_simulation {
    int ranks;
    bool seconds;
    double end;    /* when the last rank is done */
    double bubble; /* share of ranks x end in which no F, B or W runs */
    double *busy;  /* [ranks] time in F, B, W */
    /* [ranks] the most chunks of micro-batches whose F has begun and whose last backward has not
     * ended. */
    int *in_flight;
    double **begin, **finish;    /* [ranks][steps]; messages and collectives begin when posted */
    ECH_LIST(ech_link_use) link; /* by from, then to; point-to-point only */
} ech_simulation;

/* Errors: a list that cannot run to its end (see ech_check_plans): logs whom each rank waits for. */
ech_status ech_simulate(const ech_plan *const *plans, int n, ech_list_kind list,
                        const ech_costs *costs, ech_simulation *out);
void ech_simulation_free(ech_simulation *simulation);

/* What the simulation looks like; not finished. */
void ech_simulation_timeline(const ech_simulation *simulation, const ech_plan *const *plans,
                             ech_list_kind list, ech_timeline *out);

#endif

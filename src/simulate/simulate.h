/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates plans: runs all ranks' lists in virtual time, with costs instead of work. Compute steps take their
 * cost. A message begins when both ends have begun it (rendezvous) and neither its sender sends nor its receiver
 * receives another; it takes latency + bytes / bandwidth. A collective begins when all members have begun it. The same
 * rules find deadlocks.
 */
#ifndef ECH_SIMULATE_SIMULATE_H
#define ECH_SIMULATE_SIMULATE_H

#include "schedule/costs.h"
#include "draw/timeline.h"

/* Messages from one rank to another in one list. */
typedef struct ech_link_use {
    int from, to;
    int64_t messages, bytes;
} ech_link_use;
typedef ECH_LIST(ech_link_use) ech_link_uses; /* by from, then to */

typedef struct ech_simulation {
    int ranks;
    bool seconds;
    ech_pool *pool; /* of all arrays but link */
    double end;     /* when the last rank ends */
    double bubble;  /* fraction of ranks x end in which no F, B or W runs */
    double *busy;   /* [ranks] time in F, B, W */
    /* [ranks] the most pairs (chunk, micro-batch) at once whose F has begun and whose last backward has not ended. */
    int *in_flight;
    double **begin, **finish; /* [ranks][steps]; messages and collectives begin when posted */
    ech_link_uses link;       /* point-to-point only */
} ech_simulation;

/* Errors: a deadlock (see ech_check_plans); logs what each rank waits for. */
ech_status ech_simulate(const ech_plan *const *plans, int n, ech_list_kind list,
                        const ech_costs *costs, ech_simulation *out);
void ech_simulation_free(ech_simulation *simulation);

/* The simulation's timeline, before ech_timeline_finish. */
void ech_simulation_timeline(const ech_simulation *simulation, const ech_plan *const *plans,
                             ech_list_kind list, ech_timeline *out);

#endif

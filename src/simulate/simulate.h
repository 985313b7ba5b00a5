/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates plans: runs all ranks' lists in virtual time by the rules of simulate/rehearsal.h, in
 * this process. Compute steps take their cost, messages latency + bytes / bandwidth. Times are in
 * seconds or units (schedule/costs.h).
 */
#ifndef ECH_SIMULATE_SIMULATE_H
#define ECH_SIMULATE_SIMULATE_H

#include "schedule/costs.h"
#include "draw/timeline.h"

/* Messages from one rank to another in one list. */
typedef struct ech_link_use {
    int from, to;
    int64_t messages, bytes, bytes_of[ECH_MESSAGES];
} ech_link_use;
typedef ECH_LIST(ech_link_use) ech_link_uses; /* sorted by from, then to */

/* The steady state: every `seconds` (or units), the ranks do the same with later micro-batches. */
typedef struct ech_steady {
    int micro_batches; /* in a period; 0: none was found */
    double seconds;
    int64_t skipped; /* periods that were not simulated */
} ech_steady;

/* Of the plans of all ranks, or of one rank of each class (ech_layout_plan_of). */
typedef struct ech_simulation {
    int plans;
    bool seconds;   /* times are in seconds; false: in units */
    ech_pool *pool; /* of all arrays but link; owned */
    double end;     /* when the last rank ends */
    ech_steady steady;
    double bubble;  /* fraction of all ranks x end in which no F, B or W runs */
    double *busy;   /* [plans] time in F, B, W */
    double *products; /* [plans] of this time, matrix products; 0 without a cluster */
    double *updates;  /* [plans] time of compute in other steps: norms, updates, copies */
    /* [plans] time in which compute waits, by lane. While the dependency that ends last runs, the
     * lane is the dependency's; before it begins, the lane for which it waits in turn. After the
     * last step it is the lane of the list's last step. */
    double (*waits)[ECH_LANES];
    /* [plans]: the most pairs (model chunk, `micro`) at the same time whose F has begun and whose
     * last B or W has not ended. */
    int *in_flight;
    double **begin, **finish; /* [plans][steps]; begin of messages and collectives: posted */
    ech_link_uses link;       /* point-to-point messages only, from each rank that has a plan */
} ech_simulation;

/* Simulates the lists of that kind of n plans: of all ranks, or of the first rank of each class.
 * Release *out with ech_simulation_free. Errors: a
 * deadlock (ech_rehearsal_fail); ECH_EUSAGE: the profile has another number of blocks. */
ech_status ech_simulate(const ech_plan *const *plans, int n, ech_list_kind list,
                        const ech_costs *costs, ech_simulation *out);
/* The same without skipping periods (simulate/rehearsal.h): for tests. */
ech_status ech_simulate_whole(const ech_plan *const *plans, int n, ech_list_kind list,
                              const ech_costs *costs, ech_simulation *out);
void ech_simulation_free(ech_simulation *simulation);

/* The simulation's timeline. The caller completes it with ech_timeline_finish and frees it with
 * ech_timeline_free. */
void ech_simulation_timeline(const ech_simulation *simulation, const ech_plan *const *plans,
                             ech_list_kind list, ech_timeline *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Rehearsals: run all ranks' lists of a kind together in virtual time, with costs instead of work. The simulator
 * makes timelines of them; the checker finds deadlocks with them.
 *
 * Lanes follow the plan's rules. Compute, reduce, collective, copy and disk: a step begins when the step before it in
 * its lane and the steps that it comes after have ended. Send and receive: a step begins when the step before it in its
 * lane has begun and the steps that it comes after have ended. A message runs when both its ends have begun, and its
 * sender sends no other and its receiver receives no other; then both ends end. A reduction or collective runs when all
 * members have begun it.
 */
#ifndef ECH_SIMULATE_REHEARSAL_H
#define ECH_SIMULATE_REHEARSAL_H

#include "schedule/schedule.h"
#include "simulate/simulate.h"

/* Sends and their receives, over all ranks' lists of a kind. Among messages of one kind (activations or gradients) from
 * one rank to another across one boundary, the n-th send meets the n-th receive. */
typedef struct ech_pairing {
    /* [ranks][steps]: the step of the peer's list; -1: no message, or one without a partner. */
    int **partner;
    int *first_link; /* [ranks + 1]: of each sender, in link */
    ech_link_uses link;
} ech_pairing;
/* In the pool; but release link.at with free(). */
ech_pairing ech_pairing_create(const ech_plan *const *plans, int n, ech_list_kind list,
                               ech_pool *pool);

typedef struct ech_rehearsal {
    const ech_plan *const *plans;
    int ranks;
    ech_list_kind kind;
    ech_pool *pool; /* of all arrays but pairing.link */
    ech_pairing pairing;
    double **begin, **finish; /* [ranks][steps]; below 0: never */
    double end;               /* time at which the last step ended */
    int64_t missing;          /* steps that never ended; above 0: a deadlock */
} ech_rehearsal;

/* Runs the plans' lists of that kind; release *out with ech_rehearsal_free. Plans need not be sound: steps that wait for
 * ever are counted in `missing`. */
void ech_rehearse(const ech_plan *const *plans, int n, ech_list_kind list, const ech_costs *costs,
                  ech_rehearsal *out);
void ech_rehearsal_free(ech_rehearsal *rehearsal);

static inline const ech_list *ech_rehearsal_list(const ech_rehearsal *rehearsal, int rank)
{
    return &rehearsal->plans[rank]->list[rehearsal->kind];
}
/* Lanes of messages, of which many may be under way at once. */
static inline bool ech_rehearsal_is_link(ech_lane lane)
{
    return lane == ECH_LANE_SEND || lane == ECH_LANE_RECEIVE;
}

/* A step of a rank that waits, or is waited for. */
typedef struct ech_wait {
    int rank, step;
} ech_wait;
/* After a rehearsal with missing steps: fails with the circle of waits, or with the chain of waits that ends at a
 * step that does not exist, and prints the ranks' rows. */
ech_status ech_rehearsal_fail(const ech_rehearsal *rehearsal);

#endif

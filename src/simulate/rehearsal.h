/* SPDX-License-Identifier: Apache-2.0
 *
 * Rehearsals: all ranks' lists of a kind advanced together in virtual time, with costs instead of
 * work. The simulator draws them, the checker looks whether they come to an end. Private to this
 * room.
 *
 * Lanes follow the plan's rules. Compute, reduce, copy and disk: a step begins when the one before it
 * in its lane has ended and the steps it comes after have. Send and receive: a step begins when the one
 * before it in its lane has begun and the steps it comes after have ended; the message runs when both
 * ends have begun, the sender sends no other and the receiver receives none; then both end. A collective
 * runs when all members have begun it.
 */
#ifndef ECH_SIMULATE_REHEARSAL_H
#define ECH_SIMULATE_REHEARSAL_H

#include "simulate/pairing.h"
#include "simulate/simulate.h"

typedef struct ech_rehearsal {
    const ech_plan *const *plans;
    int ranks;
    ech_list_kind kind;
    ech_pairing pairing;
    double **begin, **finish; /* [ranks][steps]; below 0: it never did */
    double end;               /* of the last step that ended */
    int64_t missing;          /* steps that never ended: somebody waits for ever */
} ech_rehearsal;

/* Plans need not be sound: whoever waits for what never comes is left standing. */
void ech_rehearse(const ech_plan *const *plans, int n, ech_list_kind list, const ech_costs *costs,
                  ech_rehearsal *out);
void ech_rehearsal_free(ech_rehearsal *rehearsal);

/* A step that has not ended, and the one it waits for. */
typedef struct ech_wait {
    int rank, step;
} ech_wait;
/* The step that this one waits for. step -1: one that the list of that rank does not have. */
ech_wait ech_rehearsal_waits_for(const ech_rehearsal *rehearsal, ech_wait waiting);
/* After a rehearsal with missing steps: fails with the circle of waits, or with the chain that ends
 * at what never comes, and prints the ranks' rows. */
ech_status ech_rehearsal_fail(const ech_rehearsal *rehearsal);

#endif

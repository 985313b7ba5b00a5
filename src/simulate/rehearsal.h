/* SPDX-License-Identifier: Apache-2.0
 *
 * A rehearsal runs all ranks' lists of one kind together in virtual time, with costs instead of
 * work, in this process. The simulator makes timelines of rehearsals; the checker finds deadlocks
 * with them.
 *
 * On all lanes but send and receive, a step begins when the step before it in its lane and the
 * steps that it comes after have ended. On send and receive, a step begins when the step before it
 * in its lane has begun and the steps that it comes after have ended. A message is on its way from
 * when its send and its receive have begun and its sender sends and its receiver receives no other;
 * when it arrives, both steps end. A reduction or collective runs from when all members have begun
 * it.
 *
 * Pushes (schedule/protocol/serving.h) meet servers as they come, in virtual time, or where
 * servers' lists are bound as these say.
 *
 * In queues (ech_step_queue) a message, too, begins when the one before it in its queue has ended.
 * That is how a library whose messages have no tags (NCCL) works: one communicator for each
 * boundary and kind of message and one for each channel, each of which ends its calls in the order
 * in which its rank has put them, every call with all its ranks.
 */
#ifndef ECH_SIMULATE_REHEARSAL_H
#define ECH_SIMULATE_REHEARSAL_H

#include "schedule/plan.h"
#include "simulate/simulate.h"

/* Sends and their receives, over all ranks' lists of a kind. Among messages of one kind
 * (ech_message_kind) from one rank to another across one boundary, the n-th send meets the n-th
 * receive. */
typedef struct ech_pairing {
    int **partner; /* [ranks][steps]: the step of the peer's list that the step meets; -1: none */
    /* [ranks + 1]: sender r has link.at[first_link[r]] .. link.at[first_link[r + 1] - 1] */
    int *first_link;
    ech_link_uses link; /* what each rank sends to each other */
} ech_pairing;
/* Pairs the messages of n plans, rank 0 first. Its arrays live in the pool, but link.at is released
 * with free(). */
ech_pairing ech_pairing_create(const ech_plan *const *plans, int n, ech_list_kind list,
                               ech_pool *pool);

typedef struct ech_rehearsal {
    const ech_plan *const *plans;
    int ranks;
    ech_list_kind kind;
    bool in_queues;
    ech_pool *pool; /* of all arrays but pairing.link; owned */
    ech_pairing pairing;
    double **begin, **finish; /* [ranks][steps] times in the unit of the costs; -1: never */
    int **
        served; /* [ranks]: NULL, or of a server of pushes [turns]: whose it has served; -1: none */
    double end; /* when the last step ended */
    int64_t missing; /* steps that never ended; above 0: a deadlock */
} ech_rehearsal;

/* Runs the n plans' lists of that kind; borrows the plans. Release *out with ech_rehearsal_free.
 * Plans may be wrong: steps that wait for ever are counted in `missing`. */
void ech_rehearse(const ech_plan *const *plans, int n, ech_list_kind list, const ech_costs *costs,
                  bool in_queues, ech_rehearsal *out);
void ech_rehearsal_free(ech_rehearsal *rehearsal);

static inline const ech_list *ech_rehearsal_list(const ech_rehearsal *rehearsal, int rank)
{
    return &rehearsal->plans[rank]->list[rehearsal->kind];
}
/* Whether the lane is one of messages, of which many may be under way at once. */
static inline bool ech_rehearsal_is_link(ech_lane lane)
{
    return lane == ECH_LANE_SEND || lane == ECH_LANE_RECEIVE;
}

/* What the step begins behind the others of: its queue, or its lane. */
static inline int ech_rehearsal_queue(const ech_rehearsal *rehearsal, const ech_step *step)
{
    return rehearsal->in_queues ? ech_step_queue(step) : (int)step->lane;
}

/* A step of a rank, in a chain of steps each of which waits for the next. */
typedef struct ech_wait {
    int rank, step;
} ech_wait;
/* After a rehearsal with missing steps: logs the circle of waits, or the chain of waits that ends
 * at a step that does not exist, prints the ranks' rows, and returns the error of
 * ech_plans_reject. */
ech_status ech_rehearsal_fail(const ech_rehearsal *rehearsal);

#endif

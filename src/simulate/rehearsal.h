/* SPDX-License-Identifier: Apache-2.0
 *
 * A rehearsal runs the lists of one kind of all ranks together in virtual time, with costs instead
 * of work, in this process. The simulator makes timelines from rehearsals; the checker uses them to
 * find deadlocks.
 *
 * It has a plan for each rank, or one for each class of ranks that are alike (ech_classes), in the
 * order of the classes: then `ranks` below means classes. A partner's class answers for the
 * partner, and a collective begins once all classes with members in it have begun it.
 *
 * On all lanes but send and receive, a step begins once the previous step of its lane and its
 * dependencies have ended. On send and receive, it begins once the previous step of its lane has
 * begun and its dependencies have ended. A message is transferred once its send and its receive
 * have begun and its sender and receiver are free of other messages; on arrival both steps end. A
 * reduction or collective runs once all members have begun it.
 *
 * Where lists repeat, the rehearsal does, too, after some micro-batches. The next step of each
 * lane, the steps under way and the times relative to now decide what follows. Once they are as
 * they were a period ago, the rehearsal advances by all periods that the lists still have. Costs
 * are rounded (ech_costs_round), so results have the same bits as without this.
 *
 * Pushes (schedule/protocol/serving.h) reach servers in the order of their arrival in virtual time,
 * or in the order to which servers' lists are bound.
 *
 * In queues (ech_step_queue) a message, too, begins only after the previous one in its queue has
 * ended. This models a library whose messages have no tags (NCCL). It has one communicator per
 * boundary and kind of message, and one per channel. Each completes its calls in the order in which
 * the ranks queued them, with all ranks in every call.
 */
#ifndef ECH_SIMULATE_REHEARSAL_H
#define ECH_SIMULATE_REHEARSAL_H

#include "schedule/plan.h"
#include "simulate/simulate.h"

/* Sends and their receives, over all ranks' lists of a kind. Among messages of one kind
 * (ech_message_kind) from one rank to another across one boundary, the n-th send matches the n-th
 * receive. */
typedef struct ech_pairing {
    int **partner; /* [ranks][steps]: the matching step of the peer's list; -1: none */
    ech_link_uses link; /* messages and bytes from each rank that has a plan to each other rank */
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
    double *products;         /* [ranks] time in matrix products; 0 without a cluster */
    double **begin, **finish; /* [ranks][steps] times in the unit of the costs; -1: never */
    /* [ranks]: of a server of pushes, [turns]: the worker that the turn served, or -1; else NULL */
    int **served;
    double end; /* when the last step ended */
    ech_steady steady;
    int64_t missing; /* number of steps that never ended; above 0: a deadlock */
} ech_rehearsal;

enum {
    ECH_REHEARSE_QUEUES = 1, /* in queues */
    ECH_REHEARSE_WHOLE = 2   /* every period, which changes no result: for tests */
};
/* Runs the n plans' lists of that kind; borrows the plans. how: flags. Release *out with
 * ech_rehearsal_free. Plans may be wrong: steps that wait forever are counted in `missing`. */
void ech_rehearse(const ech_plan *const *plans, int n, ech_list_kind list, const ech_costs *costs,
                  unsigned how, ech_rehearsal *out);
void ech_rehearsal_free(ech_rehearsal *rehearsal);

static inline const ech_list *ech_rehearsal_list(const ech_rehearsal *rehearsal, int rank)
{
    return &rehearsal->plans[rank]->list[rehearsal->kind];
}
/* The index of the plan that has the other end of a message of that plan's list. */
static inline int ech_rehearsal_peer(const ech_rehearsal *rehearsal, int rank, const ech_step *step)
{
    return ech_layout_plan_of(rehearsal->plans[rank]->layout, rehearsal->ranks,
                              ech_list_peer(ech_rehearsal_list(rehearsal, rank), step));
}
/* True for the lanes of messages, which may have many messages in flight. */
static inline bool ech_rehearsal_is_link(ech_lane lane)
{
    return lane == ECH_LANE_SEND || lane == ECH_LANE_RECEIVE;
}

/* The sequence in which the step is ordered: its queue, or its lane. */
static inline int ech_rehearsal_queue(const ech_rehearsal *rehearsal, const ech_step *step)
{
    return rehearsal->in_queues ? ech_step_queue(step) : (int)step->lane;
}

/* A step of a rank, in a chain of steps; each waits for the next. */
typedef struct ech_wait {
    int rank, step;
} ech_wait;
/* After a rehearsal with missing steps: logs the cycle of waits, or the chain of waits that ends at
 * a step that does not exist, prints the ranks' rows, and returns the error of ech_plans_reject. */
ech_status ech_rehearsal_fail(const ech_rehearsal *rehearsal);

#endif

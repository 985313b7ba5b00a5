/* SPDX-License-Identifier: Apache-2.0
 *
 * Balances kept activations between two pipeline stages: memory.offload_activations = peer (BPipe,
 * Kim et al. 2023). The ranks of stages s and p - 1 - s with the same data, context and tensor
 * coordinates form a pair. The one that keeps more, the EVICTOR, sends the kept activations of some
 * sequence chunks to the other, the ACCEPTOR, which returns them before their backwards.
 *
 * Let E and A be the most that each keeps at the same time of its own, counted by model chunk and
 * sequence chunk. The evictor then keeps at most ceil((E + A + 1) / 2): half of all, and one that
 * is being sent. With 1f1b, where stage s of p keeps p - s, this is the paper's ceil((p + 2) / 2).
 * Whenever something must go, the candidate that is needed last goes, so that few go.
 *
 * The room of the acceptor is computed from both orders, with a time of 1 for each F, B and W of a
 * block and 0 for a message. A step then waits only for a step that is earlier by this time, so the
 * waits cannot form a cycle; check/plans.c proves it.
 */
#ifndef ECH_SCHEDULE_BALANCE_H
#define ECH_SCHEDULE_BALANCE_H

#include "schedule/schedule.h"

/* An F, B or W of an order, or a B and its W where they are joined (ech_order_is_joined). */
typedef struct ech_timed_item {
    ech_action action;
    bool joined, keeps; /* keeps: some block of the model chunk keeps something */
    int chunk, micro;
    int length;     /* in units of that time */
    int begin, end; /* -1: never */
} ech_timed_item;
typedef ECH_LIST(ech_timed_item) ech_timed_items;

/* A sequence chunk's kept activations of one model chunk, which the acceptor holds for some time.
 * The first four fields are items of the evictor, the others items of the acceptor. */
typedef struct ech_hold {
    int made; /* the forward after which it is sent */
    int gone; /* the item that waits until it has been sent and reuses its memory */
    /* It is returned once this item has ended, or the first step of the next item that does not
     * need it: the evictor has room then. */
    int room;
    int needed; /* the backward, which waits for it */
    /* the acceptor has room after the first step of this item; -1: from the beginning */
    int taken;
    int given; /* it is returned after this item; -1: immediately */
    int freed; /* the item that waits until it has been returned; -1: none */
} ech_hold;

typedef struct ech_balance {
    int evictor, acceptor; /* ranks; -1: the rank has no pair, or there is nothing to balance */
    int kept, accepted;    /* E and A */
    int limit;             /* the most that the evictor keeps at the same time */
    bool ends;             /* no item of the pipeline's orders waits forever */
    ech_timed_items of_evictor, of_acceptor;
    ECH_LIST(ech_hold) hold; /* sorted by `made` */
} ech_balance;

/* Finds what the rank's pair balances in a train list. Free *out with ech_balance_free. */
void ech_balance_find(const ech_schedule *schedule, const ech_model *model,
                      const ech_layout *layout, int rank, int sequence_chunks, int prefetch,
                      ech_balance *out);
void ech_balance_free(ech_balance *balance);

#endif

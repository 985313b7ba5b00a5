/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.offload_activations = peer (BPipe, Kim et al. 2023): what forwards keep is balanced
 * between the two ranks of a pair, of stage s and of stage p - 1 - s with the same data, context
 * and tensor coordinates. The one that keeps more, the EVICTOR, sends what it keeps of some
 * sequence chunks to the other, the ACCEPTOR, and has it back for their backwards.
 *
 * Where E and A are the most that each keeps at once of its own, counted by model chunk and
 * sequence chunk, the evictor keeps at most ceil((E + A + 1) / 2): half of all, and one that is on
 * its way. With 1f1b, where stage s of p keeps p - s, that is the paper's ceil((p + 2) / 2). Of
 * those that can go in time the one goes that is needed last, so few go.
 *
 * When the acceptor has room follows from when items of both orders run if a block's F, B and W
 * take 1 each, and messages nothing. Whoever waits for a message then waits for something earlier
 * by this time, so that no circle of waits can close; check/plans.c proves it.
 */
#ifndef ECH_SCHEDULE_BALANCE_H
#define ECH_SCHEDULE_BALANCE_H

#include "schedule/schedule.h"

/* F, B or W of an order; a B with its W where these are one (ech_order_is_joined). */
typedef struct ech_timed_item {
    ech_action action;
    bool joined, keeps; /* keeps: some block of the model chunk keeps something */
    int chunk, micro;
    int length;     /* in that time */
    int begin, end; /* -1: never */
} ech_timed_item;
typedef ECH_LIST(ech_timed_item) ech_timed_items;

/* What the evictor keeps of a sequence chunk in a model chunk, and the acceptor holds for some
 * time. The first four are the evictor's items, the others the acceptor's. */
typedef struct ech_hold {
    int made; /* the forward, after which it goes */
    int gone; /* waits until it has gone, whose memory this one needs */
    /* when this one has ended, or the first step of the one behind it that does not need it, there
     * is room for it, and it comes back */
    int room;
    int needed; /* the backward, which waits for it */
    /* when the first step of this one has ended there is room for it; -1: from the beginning */
    int taken;
    int given; /* when this one has ended it is sent back; -1: at once */
    int freed; /* waits until it has gone; -1: nobody does */
} ech_hold;

typedef struct ech_balance {
    int evictor, acceptor; /* ranks; -1: the rank has no pair, or nothing to balance */
    int kept, accepted;    /* E and A */
    int limit;             /* the most that the evictor keeps at once */
    bool ends;             /* no item of the pipeline's orders waits for ever */
    ech_timed_items of_evictor, of_acceptor;
    ECH_LIST(ech_hold) hold; /* by `made` */
} ech_balance;

/* What the rank's pair balances in a train list. Free *out with ech_balance_free. */
void ech_balance_find(const ech_schedule *schedule, const ech_model *model,
                      const ech_layout *layout, int rank, int sequence_chunks, int prefetch,
                      ech_balance *out);
void ech_balance_free(ech_balance *balance);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a server serves next, where it updates at each worker's gradient by itself: a push. A span
 * has `turns` pushes a worker, of all together. Asynchronous parallel training (ASP; Dean et al.
 * 2012, Downpour) takes them as they come, and workers share them out by their speed: who has
 * pushed begins another one as long as there are any that nobody has begun. Under bounded staleness
 * (SSP; Ho et al. 2013) each has as many, and a push that would take its worker more than
 * `staleness`, 1 or more, of them ahead of the slowest waits. What a push has read is what the one
 * before of its worker has left.
 *
 * With backup workers (Chen et al. 2016) servers sum the pushes of one training step, its clock,
 * and update by the first ones, of all workers but so many. Then these get the next weights. A push
 * of a clock that is over is dropped: its worker gets the weights of the clock that servers are at,
 * and what it pushes of clocks before that will be dropped, too. Each worker has as many.
 *
 * Who comes when is open in a list of steps; that every push of a span is served once, or dropped,
 * is not.
 *
 * Pure: the executor and the simulator ask the same.
 */
#ifndef ECH_SCHEDULE_SERVING_H
#define ECH_SCHEDULE_SERVING_H

#include "schedule/plan.h"

/* A push that servers have served. */
typedef struct ech_serve {
    int worker;
    int64_t
        clock; /* the training step whose samples its gradient is of: its worker counts its own */
    int read;  /* pushes of the span that servers had served in the weights that it has read */
    bool withheld; /* it has updated nothing */
    /* Likewise, since it came behind those that were waited for, of which one clock's make one
     * update; or its worker has died. Then what had come of it before, of some buckets, may have
     * updated these. */
    bool dropped;
} ech_serve;

/* Whose push is to be served in a turn of the span that begins with training step `step`. */
typedef int ech_serve_order(void *context, int64_t step, int turn);

/* Binds a server's train list to the pushes of a span, one a turn, in the order in which they are
 * served. Who meets whom, and how many turns a worker has, is then in servers' lists: nothing is
 * open any more. Borrows the pushes. NULL: it is open again. */
void ech_plan_bind(ech_plan *plan, const ech_serve *pushes);
/* Which of its worker's pushes in the span that of a turn is, from 0: the turn of the worker's list
 * that makes it. */
int ech_serve_number(const ech_serve *pushes, int turn);

typedef struct ech_serving {
    int workers, pushes; /* pushes of a span, of all workers */
    int most;            /* of one worker */
    bool each;           /* each has as many */
    int64_t staleness;
    int begun;      /* pushes of the span that workers have begun */
    int *done;      /* [workers] pushes of the span that have been served */
    int64_t *came;  /* [workers] when its push has come, as a count of all; 0: none waits */
    int64_t coming; /* pushes that have come so far */
    bool *ended;    /* [workers] it has no other push in the span */
    bool *lost;     /* [workers] it has died */
    bool drops;     /* there are backup workers */
    int summands;   /* pushes of an update */
    int now;    /* where there are: the clock whose pushes are summed, from the span's beginning */
    int summed; /* pushes in the sum that is not complete */
} ech_serving;

/* What becomes of a push. */
typedef struct ech_served {
    int worker;
    int clock;    /* pushes of its worker in the span before it */
    bool more;    /* its worker has another one in the span */
    bool dropped; /* it is in no update */
    bool first;   /* it is the first of its sum */
    bool updates; /* and the last: servers update by it */
    int next;     /* the first clock of which its worker has a push that may be in an update */
} ech_served;

/* The most pushes that one worker can have in a span. */
int ech_serving_most(const ech_schedule *schedule, const ech_layout *layout);
/* Of a span that begins: each worker has begun a push. Its arrays are the pool's. */
ech_serving ech_serving_begin(const ech_schedule *schedule, const ech_layout *layout,
                              ech_pool *pool);
/* The next span begins: all pushes of the one before have been served. */
void ech_serving_reset(ech_serving *serving);
/* A push has come: the worker has no other one that waits. */
void ech_serving_come(ech_serving *serving, int worker);
/* Whether the worker's next push may be served before any other. */
bool ech_serving_may(const ech_serving *serving, int worker);
/* Of those that have come, the first that may be served; -1: there is none. The slowest worker's
 * always may. */
int ech_serving_next(const ech_serving *serving);
/* The worker has died: what it has pushed that is not served, and what it would have to push, is
 * dropped at once, in this span and in those behind. Where workers share pushes out that is one a
 * span. */
void ech_serving_lose(ech_serving *serving, int worker);
/* The worker's push is served. */
ech_served ech_serving_take(ech_serving *serving, int worker);
/* Fills workers[] (optional) with those who get weights in a turn, in the order in which they have
 * come, and returns how many these are: who has pushed for its update, or whose push is dropped.
 * served: [turn + 1] of the span. */
int ech_served_answered(const ech_served *served, int turn, int *workers);
/* The turn that makes update number `update` of the span, from 0; -1: none does. served:
 * [turns]. */
int ech_served_update(const ech_served *served, int turns, int update);

#endif

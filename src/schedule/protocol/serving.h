/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the next worker gradient (a PUSH) that an asynchronous parameter server applies.
 *
 * A SPAN is one execution of the lists, after which all ranks meet. In it a worker computes
 * training steps; each ends in a push of its gradients. Pushes are counted in two ways. A
 * worker's own count of its pushes is its CLOCK; the count of pushes that servers have handled, of
 * all workers together, is the server's TURN. With n workers a span has n times as many pushes as
 * training steps; the protocol says how many of them each worker makes.
 *
 * - ASP, asynchronous parallel (Dean et al. 2012, Downpour): servers apply pushes in the order
 *   of their arrival. Faster workers make more of them: a worker that has pushed begins another
 *   push while the span has pushes that no worker has begun.
 * - SSP, bounded staleness (Ho et al. 2013): each worker makes equally many pushes. A push waits if
 *   it would put its worker more than `staleness` (>= 1) pushes ahead of the slowest worker.
 * - Backup workers (Chen et al. 2016): each worker makes equally many pushes. Servers sum the
 *   pushes of one clock, and update once all but `backups` of the workers have pushed. These
 *   workers then get the new weights. A push of an older clock is dropped: its worker gets the
 *   current weights, and its later pushes of clocks that are over will be dropped as well.
 *
 * A worker computes each push with the weights that its previous push returned.
 *
 * The step list does not fix the order of arrival. It does fix that each push of a span is applied
 * or dropped exactly once. The functions depend only on their arguments and communicate
 * nothing; the executor and the simulator both use them.
 */
#ifndef ECH_SCHEDULE_SERVING_H
#define ECH_SCHEDULE_SERVING_H

#include "schedule/plan.h"

/* A push that servers have handled. */
typedef struct ech_serve {
    int worker;
    int64_t clock; /* training step, counted by the worker, whose samples gave the gradient */
    int read; /* pushes of the span that servers had applied to the weights it was computed with */
    bool withheld; /* it changed no weights (skipped iteration) */
    /* Dropped: it came too late for its clock's update (backup workers), or its worker died. If the
     * worker died while it pushed, buckets that had arrived before may have been updated. */
    bool dropped;
    double time; /* when this server took it, in seconds since 1970; 0: not known */
} ech_serve;

/* Returns the worker whose push a server handles in its turn `turn` of the span that begins with
 * training step `step`. */
typedef int ech_serve_order(void *context, int64_t step, int turn);

/* Binds a server's train list to a known order of pushes (of a simulation, or of a run's log):
 * entry i is the push of turn i. The server's steps then name their workers. Borrows `pushes`; NULL
 * unbinds the list. */
void ech_plan_bind(ech_plan *plan, const ech_serve *pushes);
/* The worker's clock, counted from the span's beginning, of the push that a server handles in turn
 * `turn`. */
int ech_serve_number(const ech_serve *pushes, int turn);

typedef struct ech_serving {
    int workers, pushes; /* pushes of a span, over all workers */
    int most;            /* the most pushes of one worker */
    bool each;           /* all workers have equally many pushes */
    int64_t staleness;
    int begun;      /* pushes of the span that workers have begun */
    int *done;      /* [workers] pushes of the span that have been served */
    int64_t *came;  /* [workers] arrival number of the waiting push, from 1; 0: none waits */
    int64_t coming; /* pushes that have arrived so far */
    bool *ended;    /* [workers] it has no more pushes in the span */
    bool *lost;     /* [workers] it has died */
    bool drops;     /* there are backup workers: late pushes are dropped */
    int summands;   /* pushes summed per update */
    int now;    /* with backup workers: the clock being summed, counted from the span's beginning */
    int summed; /* pushes in the incomplete sum */
} ech_serving;

/* The fate of a push. */
typedef struct ech_served {
    int worker;
    int clock;    /* number of its worker's pushes before it in the span */
    bool more;    /* its worker has another push in the span */
    bool dropped; /* it is in no update */
    bool first;   /* it is the first of its sum */
    bool updates; /* it completes its sum: servers update now */
    int next;     /* its worker's first later clock that an update may still include */
} ech_served;

/* Number of pushes per update. */
int ech_serving_summands(const ech_schedule *schedule, const ech_layout *layout);
/* The most pushes that one worker can have in a span. */
int ech_serving_most(const ech_schedule *schedule, const ech_layout *layout);
/* State at the beginning of a span: each worker has begun a push. The arrays belong to the pool. */
ech_serving ech_serving_begin(const ech_schedule *schedule, const ech_layout *layout,
                              ech_pool *pool);
/* Begins the next span. All pushes of the previous span must have been served. */
void ech_serving_reset(ech_serving *serving);
/* Notes that a push arrived. The worker must have no other push waiting. */
void ech_serving_come(ech_serving *serving, int worker);
/* True if the staleness bound allows serving the worker's next push now. */
bool ech_serving_may(const ech_serving *serving, int worker);
/* Returns the worker of the earliest push that has arrived and may be served; -1: none. The slowest
 * worker's push may always be served. */
int ech_serving_next(const ech_serving *serving);
/* Notes that a worker died. Its waiting push and its later pushes, in this and later spans, are
 * dropped. Under ASP the living workers then make its pushes, so one push per span is dropped. */
void ech_serving_lose(ech_serving *serving, int worker);
/* Serves the worker's push and returns its fate. */
ech_served ech_serving_take(ech_serving *serving, int worker);
/* Lists the workers that receive weights after a turn, in the order of their arrival, and returns
 * their number: the workers in the update, or the one whose push was dropped. workers[] is
 * optional. served: [turn + 1] of the span. */
int ech_served_answered(const ech_served *served, int turn, int *workers);
/* Returns the turn of the span that makes update number `update` (from 0); -1: none. served:
 * [turns]. */
int ech_served_update(const ech_served *served, int turns, int update);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a server serves next, where it updates at each worker's gradient by itself: a push. Asynchronous parallel training (ASP; Dean
 * et al. 2012, Downpour) takes pushes as they come. Under bounded staleness (SSP; Ho et al. 2013) a push that would take its worker
 * more than `staleness`, 1 or more, steps ahead of the slowest waits. What a push has read is what the one before of its worker has left. Who
 * comes when is open in a list of steps; that every push of a span is served once is not.
 *
 * Pure: the executor and the simulator ask the same.
 */
#ifndef ECH_SCHEDULE_SERVING_H
#define ECH_SCHEDULE_SERVING_H

#include "schedule/schedule.h"

typedef struct ech_serving {
    int workers, turns; /* of a span */
    int64_t staleness;
    int *clock;     /* [workers] pushes of the span that have been served */
    int64_t *came;  /* [workers] when its push has come, as a count of all; 0: none waits */
    int64_t coming; /* pushes that have come so far */
} ech_serving;

/* Of a span that begins. Its arrays are the pool's. */
ech_serving ech_serving_begin(const ech_schedule *schedule, const ech_layout *layout,
                              ech_pool *pool);
/* The next span begins: all pushes of the one before have been served. */
void ech_serving_reset(ech_serving *serving);
/* A push has come: the worker has no other one that waits. */
void ech_serving_come(ech_serving *serving, int worker);
/* Whether the worker's next push may be served before any other. */
bool ech_serving_may(const ech_serving *serving, int worker);
/* Of those that have come, the first that may be served; -1: there is none. The slowest worker's always may. */
int ech_serving_next(const ech_serving *serving);
/* The worker's push is served: it goes on. */
void ech_serving_take(ech_serving *serving, int worker);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a running rehearsal (rehearsal.c), its handling of workers and servers (serving.c),
 * and its steady state (periods.c).
 */
#ifndef ECH_SIMULATE_ENGINE_H
#define ECH_SIMULATE_ENGINE_H

#include "schedule/protocol/serving.h"
#include "simulate/rehearsal.h"

typedef struct event {
    double time;
    int rank, step; /* the step that ends: for a message the send, for a collective any member's */
    int worker; /* the worker, for the part of a server's step that concerns one worker; -1: none */
} event;

typedef struct cursor {
    int next;    /* step, or the list's length */
    int ready;   /* dependencies of `next` that are known to have ended */
    int running; /* where steps run one by one: the running one, or -1 */
} cursor;

typedef struct channel {
    ech_participants among;
    int parties; /* plans with members in it */
    int arrived;
    int last; /* rank that arrived last; the others are linked by arrived_before */
    double cost; /* the largest of those that have arrived */
} channel;

/* A lane's communication between a worker and servers. A server continues once its part has
 * ended. */
typedef struct pushing {
    int step;     /* the running step; -1: none */
    int left;     /* for a worker: servers that have not ended their part; for a server: workers */
    bool *met;    /* [servers] for a worker: servers that have begun it */
    double until; /* for a server: it sends to one worker at a time, until then */
} pushing;

typedef struct rank_state {
    int *next;      /* [steps]: the next step of its lane or queue, or the list's length */
    int *cursor_of; /* [lane or queue]: index in `cursor` */
    cursor *cursor; /* of each lane or queue that the list uses, in their order */
    int cursors;
    int begun; /* 1 + the last step in the list that has begun */
    double sends_until, receives_until;
    int channel_of[ECH_CHANNELS];  /* 1 + index in engine.channel; 0: unknown yet */
    int arrived_before[ECH_LANES]; /* in the lane's open collective; -1: none */
    pushing push[ECH_LANES];
    int tally;       /* the list's TALLY, after all turns; 0: none */
    int last;        /* for a worker: its last turn */
    int counts_from; /* its pushes of earlier turns have been served or will be dropped */
    int announces;   /* its ANNOUNCE that waits for an answer */
    /* Of a server: */
    int *bound;          /* ech_rehearsal.served */
    ech_served *served;  /* [turns] the fates of pushes; NULL: it serves no pushes */
    ech_serving serving; /* chooses the next push */
    int serves;          /* the SERVE that waits for a push; -1: none */
    int taken;           /* pushes taken by the first server */
} rank_state;

/* The cost of calls [c, c + calls) of a block's program: the same for every micro-batch and rank.
 * calls 0: unknown. */
typedef struct known_cost {
    int calls;
    double cost, products; /* products: of the cost, in matrix products */
} known_cost;

typedef struct ech_periods ech_periods;

typedef struct ech_engine {
    ech_rehearsal *out;
    const ech_costs *costs;
    rank_state *rank;                 /* [ranks] */
    int *members;                     /* [ranks] */
    known_cost *(*known)[ECH_PHASES]; /* [blocks]: [c]; NULL until a step of that program is met */
    ECH_LIST(channel) channel;
    ECH_LIST(event) heap;
    double now;
    ech_periods *periods; /* NULL: none are looked for, or no longer */
} ech_engine;

/* ---- rehearsal.c ---- */

const ech_step *ech_engine_step(const ech_engine *e, int rank, int step);
void ech_engine_push(ech_engine *e, event new);
/* True if event x is handled before y. */
bool ech_engine_is_before(const event *x, const event *y);
/* Schedules the end of the rank's step after `cost` seconds (or units). */
void ech_engine_end_in(ech_engine *e, double cost, int rank, int step);
/* The cost of a step that its rank runs alone. */
double ech_engine_cost_alone(ech_engine *e, int rank, const ech_step *step);
/* Ends the step, and begins the steps that waited for it. */
void ech_engine_finish(ech_engine *e, int rank, int step);

/* ---- periods.c ---- */

/* Finds the parts of lists that repeat. Call it before the first step begins. */
void ech_engine_find_periods(ech_engine *e);
/* Call it after each event: once the engine's state has come back, advances it by as many whole
 * periods as the lists have. */
void ech_engine_try_period(ech_engine *e);
void ech_engine_free_periods(ech_engine *e);

/* ---- serving.c ---- */

void ech_engine_begin_serving(ech_engine *e, int rank);
/* True for a step of a turn for which the worker has no push. */
bool ech_engine_is_idle(const ech_engine *e, int rank, int step);
/* Begins a step of the communication between a worker and servers. */
void ech_engine_begin_pushed(ech_engine *e, int rank, int step);
/* ended.worker -1: the server sends to no worker. */
void ech_engine_finish_pushed(ech_engine *e, const event *ended);
void ech_engine_serve(ech_engine *e, int server, int step);
/* It ends once the push is served. */
void ech_engine_announce(ech_engine *e, int worker, int step);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a rehearsal as it goes on (rehearsal.c), and what workers and servers add to it
 * (serving.c).
 */
#ifndef ECH_SIMULATE_ENGINE_H
#define ECH_SIMULATE_ENGINE_H

#include "schedule/protocol/serving.h"
#include "simulate/rehearsal.h"

typedef struct event {
    double time;
    int rank, step; /* that ends: of a message the send, of a collective any member's */
    int worker;     /* with whom, of a server's part of what it does with several; -1: none */
} event;

typedef struct cursor {
    int next;    /* step, or the list's length */
    int ready;   /* afters of `next` that are known to have ended */
    int running; /* where steps go one by one: the one that has begun and not ended, or -1 */
} cursor;

typedef struct channel {
    ech_participants among;
    int arrived;
    int last; /* rank that arrived last; the others by arrived_before */
} channel;

/* What a worker and servers have for each other in a lane. A server goes on when it has its
 * part. */
typedef struct pushing {
    int step;     /* that has begun; -1: none */
    int left;     /* of a worker: servers that have not ended their part; of a server: workers */
    bool *met;    /* [servers] of a worker: those that have begun it */
    double until; /* of a server: it sends to one worker after the other */
} pushing;

typedef struct rank_state {
    int *next;      /* [steps]: the next step of its lane or queue, or the list's length */
    int *cursor_of; /* [lane or queue]: which of `cursor` */
    cursor *cursor; /* of each lane or queue that the list uses, in their order */
    int cursors;
    double sends_until, receives_until;
    int channel_of[ECH_CHANNELS];  /* 1 + which of engine.channel; 0: not asked yet */
    int arrived_before[ECH_LANES]; /* in the lane's open collective; -1: nobody */
    pushing push[ECH_LANES];
    int tally;       /* the TALLY of the list, behind all turns; 0: it has none */
    int last;        /* of a worker: the last turn that it has */
    int counts_from; /* its pushes of turns before that are served, or will be dropped */
    int announces;   /* its ANNOUNCE that waits for an answer */
    /* Of a server: */
    int *bound;          /* ech_rehearsal.served */
    ech_served *served;  /* [turns] what becomes of these; NULL: it serves no pushes */
    ech_serving serving; /* who is served next */
    int serves;          /* the SERVE that waits for a push; -1: none does */
    int taken;           /* pushes that the first server has taken */
} rank_state;

/* What calls [c, c + calls) of a block's program cost: the same for every micro-batch and rank.
 * calls 0: not known. */
typedef struct known_cost {
    int calls;
    double cost;
} known_cost;

typedef struct ech_engine {
    ech_rehearsal *out;
    const ech_costs *costs;
    rank_state *rank;                 /* [ranks] */
    int *members;                     /* [ranks] */
    known_cost *(*known)[ECH_PHASES]; /* [blocks]: [c]; NULL until a step of that program is met */
    ECH_LIST(channel) channel;
    ECH_LIST(event) heap;
    double now;
} ech_engine;

/* ---- rehearsal.c ---- */

const ech_step *ech_engine_step(const ech_engine *e, int rank, int step);
void ech_engine_push(ech_engine *e, event new);
/* The rank's step ends after so many seconds. */
void ech_engine_end_in(ech_engine *e, double cost, int rank, int step);
/* Of a step that its rank does alone. */
double ech_engine_cost_alone(ech_engine *e, int rank, const ech_step *step);
/* The step has ended: what waited for it begins. */
void ech_engine_finish(ech_engine *e, int rank, int step);

/* ---- serving.c ---- */

void ech_engine_begin_serving(ech_engine *e, int rank);
/* Of a turn that the worker has no push for. */
bool ech_engine_is_idle(const ech_engine *e, int rank, int step);
/* A step of what a worker and servers have for each other. */
void ech_engine_begin_pushed(ech_engine *e, int rank, int step);
/* ended.worker -1: the server has nothing for any. */
void ech_engine_finish_pushed(ech_engine *e, const event *ended);
void ech_engine_serve(ech_engine *e, int server, int step);
/* It ends when it is served. */
void ech_engine_announce(ech_engine *e, int worker, int step);

#endif

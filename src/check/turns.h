/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a list's buckets have come in their turns: buckets.c follows who writes their gradients,
 * effects.c what is done with these. Private to src/check.
 */
#ifndef ECH_CHECK_TURNS_H
#define ECH_CHECK_TURNS_H

#include "check/promise.h"

/* Of one micro-batch's gradients of a bucket. */
typedef struct ech_instance_state {
    int step;     /* the last that writes them, + 1 */
    int accessed; /* the last that accesses them, + 1 */
    bool summed;
} ech_instance_state;

/* How far a bucket, or a piece of it, has come in a turn. */
typedef struct ech_course {
    ech_facts has;
    int rounds;     /* of statistics that have begun */
    bool scattered; /* the sum is there of `part` alone */
    int step;       /* the last that has brought it there */
    int turn;
} ech_course;

typedef struct ech_bucket_state {
    ech_promise promise;
    ech_course now;
    /* [pieces] Gradients that have left for the host, of even turns and of odd ones: those of the
     * next turn may be written while the update runs. left: pieces whose update has not ended. */
    ech_course *away[2];
    int left[2];
    int sum; /* the value with the sum so far of the turn's gradients; 0: nothing has written it */
    /* Of layer states: [turns] the last step that writes partials of that turn, + 1. */
    int *written_in;
    int accessed; /* the last step that accesses its gradients, but for those of one micro-batch, + 1 */
    ech_instance_state *of; /* [micro-batches] of the turn */
    int summed;             /* of these */
    bool met;               /* others' updates of the whole list have come */
} ech_bucket_state;

typedef struct ech_turns {
    const ech_plan *plan;
    const ech_list *list;
    ech_bucket_state *bucket;
    ech_known known;
    int read; /* the last step that has fetched a turn's scalars for updates on the host */
} ech_turns;

/* A turn begins where servers have no gradients of their own; or a push has come. */
void ech_turns_begin(const ech_turns *t, ech_bucket_state *b);
/* The text of the latest of these facts. */
const char *ech_fact_text(ech_facts facts);
/* Of a step that has begun to write a value: the turn's gradients add up in one. */
ech_status ech_turns_write_sum(const ech_turns *t, int s, int bucket, int value);
/* The step's own micro-batch; NULL: it has none. */
ech_instance_state *ech_turns_instance(const ech_turns *t, int s, int bucket);
/* Outlines have no accesses, nor have lists that the passes have not made. */
bool ech_turns_have_accesses(const ech_turns *t);
/* What the step does to its bucket, or to all. Errors: what it needs has not been done, or is not known to have ended;
 * nobody has promised it; it is done again. */
ech_status ech_turns_take(ech_turns *t, int s);
/* All turns have ended. */
ech_status ech_turns_end(const ech_turns *t);

#endif

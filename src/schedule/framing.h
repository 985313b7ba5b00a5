/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame pass at work. Private to frame.c, which makes the list, frame_buckets.c, which takes
 * buckets along their way (schedule/bucket_way.h), and schedule/protocol/, which makes the parts
 * that differ.
 */
#ifndef ECH_SCHEDULE_FRAMING_H
#define ECH_SCHEDULE_FRAMING_H

#include "schedule/bucket_way.h"
#include "schedule/passes.h"
#include "schedule/plan.h"
#include "schedule/protocol/protocol.h"

/* How far a bucket, or a piece of it, has come in its turn. */
typedef struct ech_on_way {
    int bucket, piece; /* as in ech_step.count */
    ech_bucket_way way;
    ech_bucket_place at;
    int step; /* of that place */
    int left; /* instances of its gradients that are not complete in this turn */
    int room; /* the step after which the host has room for its update; -1: the turn's beginning */
} ech_on_way;

/* What is done bucket by bucket in a turn. */
typedef struct ech_turn_buckets {
    int turn;
    int *order; /* [ordered] the turn's buckets, as they become complete */
    int ordered;
    ech_on_way *on; /* [buckets] up to their norms */
    ECH_LIST(ech_on_way) piece; /* from there on: their pieces, in that order */
    /* In `piece`: the first that is not updated, the end of those that are updated side by side
     * now, the first of which nothing is brought. */
    int next, end, brought;
    int scalars;     /* the step that brings the host the turn's scalars, where it updates */
    double elements; /* of those of which something is brought */
    bool has_room;   /* the host has room for weights of all of them, as of delayed updates */
    /* The step after which the host has room for what is brought next; -1: the turn's beginning. */
    int room;
} ech_turn_buckets;

typedef struct ech_framing {
    ech_plan *plan;
    ech_list *list;
    const ech_role *role; /* of the plan's rank */
    void (*expect)(struct ech_framing *f,
                   int turn); /* as in the role; in lists without updates COUNT, or nothing */
    ech_step *from; /* the lowered steps, their waits, and where they are now */
    int *from_after, *now;
    size_t n;
    /* Instances of gradients by the lowered step that completes them, as instance * buckets +
     * bucket: the step's first, the next of the same step, descending; -1: none. */
    int *first_ready, *next_ready; /* [n], [instances * buckets] */
    bool *begins;                  /* [n] the lowered step is the first to write a micro-batch's */
    /* Of those: the last scatter of the lowered step that completed some last, and of the one
     * before it; -1: none. */
    int scatter, settled;
    /* [buckets * versions] the last step that makes what lies in a slot whole; -1: none in this
     * list */
    int *gathered;
    int known;                /* the last of these that the compute lane has waited for */
    int *last_ready;          /* [turns]: the last such step */
    ech_turn_buckets buckets; /* of the turn whose steps are being added */
    /* Of a list whose updates are delayed: */
    bool delays;
    ech_turn_buckets before; /* of the turn before: updates that are under way */
    int *away; /* [buckets] the step that takes the last turn's gradients to the host; -1: none */
    int *first_begun,
        *next_begun;   /* as first_ready, by the lowered step that is the first to write */
    double done, work; /* FLOPs of the turn's steps so far, and of all of a turn's */
    double elements;   /* of all buckets */
    int met;           /* of lock-free ranks: the MEET with which the list begins; -1: none */
    int visits;        /* of the token so far */
    int passed;        /* the step that sent it on last; -1: this rank has not */
    int begun;         /* the last COUNT */
    bool loads;        /* some block of the rank has values that LOAD writes */
    int loaded;        /* micro-batches that are loaded, over all turns */
    struct ech_frame_gradients *gradients; /* that leave the device; NULL: none do */
} ech_framing;

/* Adds a step of a turn, behind `after` (-1: none), and returns it. */
int ech_frame_add(ech_framing *f, ech_step_kind kind, int turn, int index, int after);
/* The last step of the compute lane so far; -1: none. */
int ech_frame_last_compute(const ech_list *list);
/* Whether the group has other members. */
bool ech_frame_is_shared(const ech_plan *plan, ech_layout_group group);
/* What of a turn comes after all others: sums over several stages, which become ready at different
 * times, where a lane keeps its order; and layer states, whose partials forwards complete, of an
 * asynchronous list's next turn maybe before this one's update. */
bool ech_frame_comes_last(const ech_bucket *bucket);

/* Begins the ways of all buckets. */
void ech_frame_begin_buckets(ech_framing *f);
void ech_frame_end_buckets(ech_framing *f);
/* The lowered step, which has been added, has been the last to write an instance of the bucket's
 * gradients. */
void ech_frame_complete(ech_framing *f, int bucket, size_t writer);
/* Takes a bucket of the turn that is complete up to its norm, after which its gradients leave the
 * device if they do. Returns the last step. */
int ech_frame_take_norm(ech_framing *f, int bucket);
/* Norms of all buckets of the turn, and when the clip factor is there their updates. */
void ech_frame_norms(ech_framing *f);
void ech_frame_updates(ech_framing *f);
/* A lowered step has been added: delayed updates come along, by as much as the compute has. */
void ech_frame_follow(ech_framing *f, const ech_step *step);
/* Gradients that leave the device (schedule/frame_gradients.c): begins, and ends, the work on them.
 * */
void ech_frame_begin_gradients(ech_framing *f);
void ech_frame_end_gradients(ech_framing *f);
/* A lowered step is being added: it waits until there is room for the gradients that it writes, and
 * for those that come back. */
void ech_frame_await_gradients(ech_framing *f, size_t s);
/* A bucket of the turn is complete: it leaves now, or when it is summed over ranks. */
void ech_frame_leave(ech_framing *f, int bucket);
/* A lowered step has been added, and what it completes: if it ends a use, sums leave, and those of
 * the next use come back. */
void ech_frame_end_use(ech_framing *f, size_t s);
/* All buckets of the turn have come to their norms. */
void ech_frame_forget_sums(ech_framing *f);
/* Delayed updates end: those of the turn come next. */
void ech_frame_catch_up(ech_framing *f);
/* A lowered step is being added: it waits for the gathers of the weights that it reads, and until
 * gradients that it is the first to write have left. */
void ech_frame_await_weights(ech_framing *f, const ech_step *step);
void ech_frame_await_leave(ech_framing *f, size_t s);

#endif

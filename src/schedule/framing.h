/* SPDX-License-Identifier: Apache-2.0
 *
 * State of the frame pass, which adds reductions, norms, gradient clipping and updates to a train
 * list. Private to frame.c, which builds the list, frame_buckets.c, which moves buckets along their
 * path (schedule/bucket_way.h), and schedule/protocol/, which adds the parts that differ by
 * protocol.
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
    ech_bucket_position at;
    int step; /* the step of that position */
    int left; /* instances of its gradients that are not complete yet in this turn */
    int room; /* step after which the host has room for its update; -1: the turn's beginning */
} ech_on_way;

/* The buckets of one turn. */
typedef struct ech_turn_buckets {
    int turn;
    int *order; /* [ordered] the turn's buckets in the order in which they become complete */
    int ordered;
    ech_on_way *on;             /* [buckets] progress up to the norm */
    ECH_LIST(ech_on_way) piece; /* progress after the norm, piece by piece, in that order */
    /* Indices into `piece`: the first not updated yet; the end of the group now being updated; the
     * first whose inputs are not being copied yet. */
    int next, end, brought;
    int scalars;     /* step that copies the turn's scalars to the host, if the host updates */
    double elements; /* elements of the pieces whose inputs have been requested */
    bool has_room;   /* the host has room for the weights of all pieces (delayed updates) */
    /* Step after which the host has room for the next inputs; -1: the turn's beginning. */
    int room;
} ech_turn_buckets;

typedef struct ech_framing {
    ech_plan *plan;
    ech_list *list;
    ech_pool *pool;       /* has the arrays below, except lists */
    const ech_role *role; /* role of the plan's rank */
    /* the role's `expect`; in lists without updates it adds COUNT or nothing */
    void (*expect)(struct ech_framing *f, int turn);
    ech_step *from; /* lowered steps, their waits, and their indices in the new list */
    int *from_after, *now;
    size_t n;
    /* Gradient instances by the lowered step that completes them, as instance * buckets + bucket:
     * first_ready has a step's first, next_ready the next of the same step, in descending order;
     * -1: none. */
    int *first_ready, *next_ready; /* [n], [instances * buckets] */
    bool *begins; /* [n] the lowered step is the first to write the gradients of a micro-batch */
    /* The last SCATTER_GRADS after the most recent lowered step that completed instances, and the
     * one after the step before; -1: none. */
    int scatter, settled;
    /* [buckets * versions] last step that gathers the weights of a slot; -1: none in this list */
    int *gathered;
    int known;                /* the last such gather that the compute lane has waited for */
    int *last_ready;          /* [turns] the last lowered step of the compute lane */
    ech_turn_buckets buckets; /* buckets of the turn whose steps are being added */
    /* Only in lists with delayed updates: */
    bool delays;
    ech_turn_buckets before; /* buckets of the previous turn, whose updates are under way */
    int *away; /* [buckets] step that copies the last turn's gradients to the host; -1: none */
    int *first_begun,
        /* as first_ready and next_ready, by the lowered step that is the first to write */
        *next_begun;
    double done, work; /* FLOPs of the turn's steps so far, and of the whole turn */
    double elements;   /* elements of all buckets */
    int met;           /* lock-free ranks: the MEET at the beginning of the list; -1: none */
    int visits;        /* visits of the ring token so far */
    int passed;        /* the last step that passed the ring token on; -1: none yet */
    int begun;         /* the last COUNT */
    bool loads;        /* some block of the rank has values that LOAD writes */
    /* Where LOAD has a lane of its own: steps of the last two micro-batches, by their index modulo
     * 2; the last one or -1; and micro-batches for whose LOAD a forward has waited. */
    int load[2], last_load, awaited;
    int loaded;        /* micro-batches loaded so far, over all turns */
    struct ech_frame_gradients *gradients; /* for gradients that leave the device; NULL: none do */
} ech_framing;

/* Adds a step of a turn, after step `after` (-1: none), and returns its index. */
int ech_frame_add(ech_framing *f, ech_step_kind kind, int turn, int index, int after);
/* The last step of the compute lane so far; -1: none. */
int ech_frame_last_compute(const ech_list *list);
/* True if the group has other members. */
bool ech_frame_is_shared(const ech_plan *plan, ech_layout_group group);
/* True for buckets that are reduced last in each turn. These are gradients shared by several
 * stages, since they complete at different times while a lane keeps its order. They are also layer
 * states, since their partials come from forwards (in an asynchronous list perhaps from the next
 * turn's, before this turn's update). */
bool ech_frame_comes_last(const ech_bucket *bucket);

/* Begins the paths of all buckets. */
void ech_frame_begin_buckets(ech_framing *f);
/* Notes that the lowered step just added was the last to write an instance of the bucket's
 * gradients. */
void ech_frame_complete(ech_framing *f, int bucket, size_t writer);
/* Advances a complete bucket of the turn up to its norm; its gradients leave the device afterwards
 * if they are offloaded. Returns the last step added. */
int ech_frame_take_norm(ech_framing *f, int bucket);
/* Adds the norms of all buckets of the turn; then, once the clip factor is known, their updates. */
void ech_frame_norms(ech_framing *f);
void ech_frame_updates(ech_framing *f);
/* Advances delayed updates in proportion to the compute done, after a lowered step was added. */
void ech_frame_follow(ech_framing *f, const ech_step *step);
/* Begins and ends the handling of gradients that leave the device (schedule/frame_gradients.c). */
void ech_frame_begin_gradients(ech_framing *f);
void ech_frame_end_gradients(ech_framing *f);
/* Makes the lowered step being added wait until the device has room for the gradients it writes and
 * for those that return. */
void ech_frame_await_gradients(ech_framing *f, size_t s);
/* Offloads a complete bucket of the turn, now or once it is summed over ranks. */
void ech_frame_leave(ech_framing *f, int bucket);
/* If the lowered step just added ends a use of gradients, offloads their sums and fetches the next
 * use's sums. */
void ech_frame_end_use(ech_framing *f, size_t s);
/* Ends the turn's gradient sums: all its buckets have reached their norms. */
void ech_frame_forget_sums(ech_framing *f);
/* Completes the delayed updates, before the updates of this turn. */
void ech_frame_catch_up(ech_framing *f);
/* Makes the lowered step being added wait for the gathers of the weights that it reads. */
void ech_frame_await_weights(ech_framing *f, const ech_step *step);
/* Makes the lowered step being added wait until the earlier gradients in the memory that it is the
 * first to write have left the device. */
void ech_frame_await_leave(ech_framing *f, size_t s);

#endif

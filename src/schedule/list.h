/* SPDX-License-Identifier: Apache-2.0
 *
 * A LIST of steps that a rank runs: its steps, the values that they touch, and the memory that
 * these take.
 */
#ifndef ECH_SCHEDULE_LIST_H
#define ECH_SCHEDULE_LIST_H

#include "schedule/numbering.h"
#include "schedule/steps.h"
#include "schedule/values.h"

typedef struct ech_list {
    ech_list_kind kind;
    ech_purpose purpose;
    ech_extent extent;       /* of what one F works on: a sequence chunk of a micro-batch */
    int turns;               /* training steps */
    ech_numbering numbering; /* of its sequence chunks: of every `micro` in this list */
    int micro_batches; /* how many `micro` there are: sequence chunks of this rank over all turns */
    int updates;       /* how many weight versions one execution of the list makes */
    ECH_LIST(ech_step) step;
    ECH_LIST(int) after; /* steps that others come after: ech_step.first_after */
    /* `step` and `after` are another list's; only in outlines (ech_plan_make_outline) */
    bool borrows;
    int peer_shift; /* what ech_list_peer adds; 0 unless it borrows */
    const struct ech_serve
        *bound; /* [turns] of a server: the push of each turn (ech_plan_bind); NULL: as they come */
    ECH_LIST(ech_access) access; /* ech_step.first_access */
    ECH_LIST(ech_value) value;   /* the list's own, which are not persistent */
    /* [(first_local[block] + local) * micro_batches + micro]: value, or -1. A value that all
     * sequence chunks of a micro-batch share is at its first chunk. Ask ech_list_value_of. */
    int *value_of;
    int *first_local; /* [blocks]: see value_of; -1: the rank does not have the block */
    /* of the gradients of a bucket, at most: turns, or (ech_bucket_scatters_each) micro-batches
     * over all turns */
    int instances;
    int *gradients; /* [instances * buckets]: the value of each instance; -1: none */
    /* [turns * buckets] the value that a turn's steps of a bucket work on: the turn's gradients, or
     * (ech_bucket_scatters_each) the sum of this rank's shard; -1: none. Ask ech_list_summed. */
    int *summed;
    /* [instances * params]: the call that writes the gradient; calls after it add to it. Ask
     * ech_list_writes_first. */
    ech_writer *first_writer;
    int batch[ECH_BATCH_SLOTS]; /* first value (ech_list_batch); -1: not loaded by this rank */
    int logits;                 /* value; -1: none */
    int ticks;
    /* Memory of the list's own values in bytes, each aligned (ech_plan_align); persistent values
     * not counted. */
    int64_t bytes[ECH_SPACES]; /* the list's part of each arena, gaps included */
    int64_t
        lower_bound[ECH_SPACES]; /* the most that is live in one tick: no placement needs less */
    int64_t full_kind
        [ECH_MEMORY_KINDS]; /* by kind, in the first tick with its space's lower_bound bytes */
    int64_t peak[ECH_MEMORY_KINDS]; /* the most of each kind that is live in one tick */
    int64_t working;                /* the most of all working kinds that is live in one tick */
    int working_tick;               /* the first tick with `working` bytes */
    int64_t working_kind[ECH_MEMORY_KINDS]; /* by kind (all kinds), in working_tick */
} ech_list;

/* The rank at the other end of the step's message. */
static inline int ech_list_peer(const ech_list *list, const ech_step *step)
{
    return step->peer + list->peer_shift;
}

#endif

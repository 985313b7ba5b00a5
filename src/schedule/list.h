/* SPDX-License-Identifier: Apache-2.0
 *
 * A LIST: the steps that a rank runs for one purpose, the values they touch, and the memory of
 * these.
 */
#ifndef ECH_SCHEDULE_LIST_H
#define ECH_SCHEDULE_LIST_H

#include "schedule/numbering.h"
#include "schedule/steps.h"
#include "schedule/values.h"

typedef struct ech_list {
    ech_list_kind kind;
    ech_purpose purpose;
    ech_extent extent;       /* of one F: a sequence chunk of a micro-batch */
    int turns;               /* training steps */
    ech_numbering numbering; /* numbering of `micro` in this list */
    int micro_batches;       /* number of `micro`: sequence chunks of this rank over all turns */
    int updates;             /* weight versions that one execution of the list makes */
    ECH_LIST(ech_step) step;
    ECH_LIST(int) after; /* steps to wait for: ech_step.first_after */
    /* `step` and `after` belong to another list; only in outlines (ech_plan_make_outline) */
    bool borrows;
    int peer_shift; /* added by ech_list_peer; 0 unless it borrows */
    /* [turns] of a server: the push of each turn (ech_plan_bind); NULL: in order of arrival */
    const struct ech_serve *bound;
    ECH_LIST(ech_access) access; /* ech_step.first_access */
    ECH_LIST(ech_value) value;   /* the list's own values; persistent values are in the plan */
    /* [(first_local[block] + local) * micro_batches + micro]: value, or -1. A value that all
     * sequence chunks of a micro-batch share is at its first chunk. Use ech_list_value_of. */
    int *value_of;
    int *first_local; /* [blocks]: see value_of; -1: the rank does not have the block */
    /* gradient instances of a bucket, at most: turns, or micro-batches over all turns
     * (ech_bucket_scatters_each) */
    int instances;
    int *gradients; /* [instances * buckets]: the value of each instance; -1: none */
    /* [turns * buckets] the value that a turn's steps of a bucket work on: the turn's gradients, or
     * the sum of this rank's shard (ech_bucket_scatters_each); -1: none. Use ech_list_summed. */
    int *summed;
    /* [instances * params]: the call that writes the gradient; later calls add to it. Use
     * ech_list_writes_first. */
    ech_writer *first_writer;
    int batch[ECH_BATCH_SLOTS]; /* first value (ech_list_batch); -1: this rank does not load it */
    int logits;                 /* value; -1: none */
    int ticks;
    /* Memory of the list's own values in bytes, each aligned (ech_plan_align), without persistent
     * values. */
    int64_t bytes[ECH_SPACES]; /* the list's part of each arena, with gaps */
    /* the most that is live in one tick: no placement needs less */
    int64_t lower_bound[ECH_SPACES];
    /* by kind, in the first tick with its space's lower_bound bytes */
    int64_t full_kind[ECH_MEMORY_KINDS];
    int64_t peak[ECH_MEMORY_KINDS]; /* by kind, the most that is live in one tick */
    int64_t working; /* the most of all working kinds together that is live in one tick */
    int working_tick;               /* the first tick with `working` bytes */
    int64_t working_kind[ECH_MEMORY_KINDS]; /* by kind (all kinds), in working_tick */
} ech_list;

/* The rank at the other end of the step's message. */
static inline int ech_list_peer(const ech_list *list, const ech_step *step)
{
    return step->peer + list->peer_shift;
}

#endif

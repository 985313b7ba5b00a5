/* SPDX-License-Identifier: Apache-2.0
 *
 * PEAKS of memory: how much of each kind is live at the same time, and where in a plan.
 */
#ifndef ECH_SCHEDULE_PEAKS_H
#define ECH_SCHEDULE_PEAKS_H

#include "schedule/plan.h"

/* Bytes: the largest peak of each kind over all lists, plus the kind's persistent values. */
void ech_plan_peaks(const ech_plan *plan, int64_t peak[ECH_MEMORY_KINDS]);

/* Bytes among these that pad buckets, between and after parameters: of weights, gradients and
 * element-wise states. */
void ech_plan_paddings(const ech_plan *plan, int64_t padding[ECH_MEMORY_KINDS]);

/* How each arena's bytes are used in the list that needs most of it, in its fullest tick. The kinds
 * and gaps of a space add up to its arena_bytes. */
typedef struct ech_arena_use {
    int64_t kind[ECH_MEMORY_KINDS]; /* live, by kind, with persistent values */
    int64_t between[ECH_SPACES];    /* not live: gaps between values */
} ech_arena_use;
ech_arena_use ech_plan_arena_use(const ech_plan *plan);
/* The most bytes of a space that are live at the same time in any list: no placement needs a
 * smaller arena. The plan must not be an outline; its values are not needed. */
int64_t ech_plan_lower_bound(const ech_plan *plan, ech_space space);

/* The peak of working memory (ech_memory_is_working), and the step and list of the peak. */
typedef struct ech_working {
    int64_t bytes; /* sum of `kind` */
    /* By kind, with persistent values of working kinds (scalars, KV cache of sampling); 0 for other
     * kinds. */
    int64_t kind[ECH_MEMORY_KINDS];
    const ech_list *list;
    const ech_step *step;
} ech_working;
ech_working ech_plan_working(const ech_plan *plan);

#endif

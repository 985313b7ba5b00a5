/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that finds the most memory of each kind that is live at the same time, and the peaks of
 * a plan over its lists.
 */
#include <limits.h>
#include <string.h>

#include "schedule/operands.h"
#include "schedule/states.h"
#include "schedule/passes.h"
#include "schedule/peaks.h"

/* ---- of a list ---- */

/* Kinds of memory, one bit each. */
static unsigned kinds_in(ech_space space)
{
    unsigned kinds = 0;
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        if (ech_memory_space((ech_memory_kind)kind) == space) kinds |= 1u << kind;
    return kinds;
}

static unsigned working_kinds(void)
{
    unsigned kinds = 0;
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        if (ech_memory_is_working((ech_memory_kind)kind)) kinds |= 1u << kind;
    return kinds;
}

/* The most bytes of these kinds that live at one tick. *when (optional): the first such tick. */
static int64_t find_peak(const ech_plan *plan, const ech_list *list, unsigned kinds,
                         int64_t *change, int *when)
{
    int64_t live = 0, most = 0;
    memset(change, 0, ((size_t)list->ticks + 2) * sizeof *change);
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        if (!(kinds & 1u << v->kind)) continue;
        int64_t bytes = ech_plan_align(plan, v->kind, v->bytes);
        change[v->born] += bytes;
        change[v->dies + 1] -= bytes;
    }
    for (int t = 0; t < list->ticks; t++) {
        live += change[t];
        if (live <= most) continue;
        most = live;
        if (when) *when = t;
    }
    return most;
}

/* Counts the live bytes of these kinds. */
static void count_live(const ech_plan *plan, const ech_list *list, unsigned kinds, int tick,
                       int64_t bytes[ECH_MEMORY_KINDS])
{
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        if (kinds & 1u << v->kind && v->born <= tick && tick <= v->dies)
            bytes[v->kind] += ech_plan_align(plan, v->kind, v->bytes);
    }
}

void ech_pass_peaks(const ech_plan *plan, ech_list *list)
{
    ECH_FREED int64_t *change = ech_calloc((size_t)list->ticks + 2, sizeof *change);
    unsigned kinds = 0;
    for (size_t i = 0; i < list->value.n; i++) kinds |= 1u << list->value.at[i].kind;
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        if (kinds & 1u << kind) list->peak[kind] = find_peak(plan, list, 1u << kind, change, NULL);
    for (int space = 0; space < ECH_SPACES; space++) {
        int full = 0;
        unsigned its = kinds_in((ech_space)space);
        list->lower_bound[space] = find_peak(plan, list, its, change, &full);
        count_live(plan, list, its, full, list->full_kind);
    }
    list->working = find_peak(plan, list, working_kinds(), change, &list->working_tick);
    count_live(plan, list, UINT_MAX, list->working_tick, list->working_kind);
}

/* ---- of a plan ---- */

static void add_persistent(const ech_plan *plan, int64_t bytes[ECH_MEMORY_KINDS])
{
    for (size_t i = 0; i < plan->persistent.n; i++) {
        const ech_value *v = &plan->persistent.at[i];
        bytes[v->kind] += ech_plan_align(plan, v->kind, v->bytes);
    }
}

void ech_plan_peaks(const ech_plan *plan, int64_t peak[ECH_MEMORY_KINDS])
{
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        peak[kind] = 0;
        for (int l = 0; l < ECH_LIST_KINDS; l++)
            if (plan->list[l].peak[kind] > peak[kind]) peak[kind] = plan->list[l].peak[kind];
    }
    add_persistent(plan, peak);
}

void ech_plan_paddings(const ech_plan *plan, int64_t padding[ECH_MEMORY_KINDS])
{
    bool trains = plan->list[ECH_LIST_TRAIN].step.n > 0;
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) padding[kind] = 0;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        int64_t of_weights = bucket->padding * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
        if (ech_bucket_keeps_shard(bucket))
            of_weights = (bucket->shard - ech_plan_own_all(plan, bucket)) *
                         (int64_t)ech_dtype_bytes(bucket->weight_dtype);
        padding[plan->persistent.at[bucket->weights].kind] += plan->versions * of_weights;
        if (plan->common >= 0)
            padding[ECH_MEMORY_COMMON] += plan->schedule->ring.clusters * of_weights;
        if (plan->relayed >= 0) padding[ECH_MEMORY_RELAYED] += of_weights;
        if (!trains) continue;
        int64_t of_states = bucket->padding;
        int64_t first, updated = ech_bucket_updated(bucket, &first);
        if (ech_bucket_is_sharded(bucket)) of_states = updated - ech_plan_own_all(plan, bucket);
        /* Sums that leave the device are complete on the host. */
        bool shard = ech_bucket_sums_shard(bucket) || ech_bucket_leaves(bucket);
        padding[ech_bucket_leaves(bucket) ? ECH_MEMORY_GRADIENTS_ON_HOST : ECH_MEMORY_GRADIENTS] +=
            (shard ? of_states : bucket->padding) * (int64_t)ech_dtype_bytes(bucket->dtype);
        for (int s = 0; s < bucket->states; s++)
            padding[plan->persistent.at[bucket->state[s].value].kind] +=
                of_states * (int64_t)ech_dtype_bytes(bucket->state[s].dtype);
    }
}

ech_arena_use ech_plan_arena_use(const ech_plan *plan)
{
    ech_arena_use use = {0};
    add_persistent(plan, use.kind);
    memcpy(use.between, plan->arena_bytes, sizeof use.between);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        ech_space space = ech_memory_space((ech_memory_kind)kind);
        const ech_list *largest = &plan->list[0];
        for (int l = 1; l < ECH_LIST_KINDS; l++)
            if (plan->list[l].bytes[space] > largest->bytes[space]) largest = &plan->list[l];
        use.kind[kind] += largest->full_kind[kind];
        use.between[space] -= use.kind[kind];
    }
    return use;
}

int64_t ech_plan_lower_bound(const ech_plan *plan, ech_space space)
{
    int64_t most = 0;
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        if (plan->list[l].lower_bound[space] > most) most = plan->list[l].lower_bound[space];
    return plan->persistent_bytes[space] + most;
}

const ech_step *ech_list_step_at(const ech_list *list, int tick)
{
    size_t first = 0, end = list->step.n;
    while (end - first > 1) {
        size_t middle = first + (end - first) / 2;
        if (list->step.at[middle].tick <= tick)
            first = middle;
        else
            end = middle;
    }
    return &list->step.at[first];
}

ech_working ech_plan_working(const ech_plan *plan)
{
    ech_working most = {.list = &plan->list[0]};
    for (int l = 1; l < ECH_LIST_KINDS; l++)
        if (plan->list[l].working > most.list->working) most.list = &plan->list[l];
    const ech_list *list = most.list;
    most.step = ech_list_step_at(list, list->working_tick);
    memcpy(most.kind, list->working_kind, sizeof most.kind);
    add_persistent(plan, most.kind);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        if (!ech_memory_is_working((ech_memory_kind)kind)) most.kind[kind] = 0;
        most.bytes += most.kind[kind];
    }
    return most;
}

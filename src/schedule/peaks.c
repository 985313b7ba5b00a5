/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that finds the most memory of each kind that is live at once, and the peaks of a plan over its lists.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/passes.h"

/* ---- of a list ---- */

/* Kinds of memory, bit by bit. */
static unsigned all_kinds(void)
{
    return (1u << ECH_MEMORY_KINDS) - 1;
}

static unsigned working_kinds(void)
{
    unsigned kinds = 0;
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        if (ech_memory_is_working((ech_memory_kind)kind)) kinds |= 1u << kind;
    return kinds;
}

/* The most bytes of these kinds that live at one tick. *when (optional): the first such tick. */
static int64_t find_peak(const ech_list *list, unsigned kinds, int64_t *change, int *when)
{
    int64_t live = 0, most = 0;
    memset(change, 0, ((size_t)list->ticks + 2) * sizeof *change);
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        if (!(kinds & 1u << v->kind)) continue;
        change[v->born] += ech_align(v->bytes);
        change[v->dies + 1] -= ech_align(v->bytes);
    }
    for (int t = 0; t < list->ticks; t++) {
        live += change[t];
        if (live <= most) continue;
        most = live;
        if (when) *when = t;
    }
    return most;
}

static void count_live(const ech_list *list, int tick, int64_t bytes[ECH_MEMORY_KINDS])
{
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        if (v->born <= tick && tick <= v->dies) bytes[v->kind] += ech_align(v->bytes);
    }
}

void ech_pass_peaks(ech_list *list)
{
    int full = 0;
    int64_t *change = ech_calloc((size_t)list->ticks + 2, sizeof *change);
    unsigned kinds = 0;
    for (size_t i = 0; i < list->value.n; i++) kinds |= 1u << list->value.at[i].kind;
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        if (kinds & 1u << kind) list->peak[kind] = find_peak(list, 1u << kind, change, NULL);
    list->lower_bound = find_peak(list, all_kinds(), change, &full);
    list->working = find_peak(list, working_kinds(), change, &list->working_tick);
    free(change);
    count_live(list, list->working_tick, list->working_kind);
    count_live(list, full, list->full_kind);
}

/* ---- of a plan ---- */

static void add_persistent(const ech_plan *plan, int64_t bytes[ECH_MEMORY_KINDS])
{
    for (size_t i = 0; i < plan->persistent.n; i++)
        bytes[plan->persistent.at[i].kind] += ech_align(plan->persistent.at[i].bytes);
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

ech_arena_use ech_plan_arena_use(const ech_plan *plan)
{
    ech_arena_use use = {.between = plan->arena_bytes};
    const ech_list *largest = &plan->list[0];
    for (int l = 1; l < ECH_LIST_KINDS; l++)
        if (plan->list[l].bytes > largest->bytes) largest = &plan->list[l];
    memcpy(use.kind, largest->full_kind, sizeof use.kind);
    add_persistent(plan, use.kind);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) use.between -= use.kind[kind];
    return use;
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks memory: every value that a step touches lives for as long as the step may run, and no two
 * values that live at the same time share a byte of an arena.
 */
#include <stdlib.h>

#include "base/sort.h"
#include "check/checker.h"
#include "schedule/operands.h"
#include "schedule/print.h"

enum { KNOWN = 1 << 12 }; /* offsets remembered while they are collected */

/* ---- lives ---- */

/* When a step of a lane other than compute may run: not before tick `first`, and not after
 * `last`. */
typedef struct interval {
    int first, last;
} interval;

/* Forward: a lane begins its steps in order, so no step begins before the dependencies of earlier
 * ones. */
static void find_first(const ech_list *list, interval *intervals)
{
    int lane[ECH_LANES] = {0};
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        int *first = &lane[step->lane];
        for (int i = 0; i < step->afters; i++) {
            int after = list->after.at[step->first_after + i];
            const ech_step *other = &list->step.at[after];
            int over = other->lane == ECH_LANE_COMPUTE ? other->tick + ech_step_ticks(other)
                                                       : intervals[after].first;
            if (over > *first) *first = over;
        }
        intervals[s].first = *first;
    }
}

/* A step has ended when a compute step begins that waits for it, or (except for messages) for a
 * later step of its lane; and when a step of another lane has ended that waits for it. */
static void find_last(const ech_list *list, interval *intervals)
{
    int lane[ECH_LANES];
    for (int l = 0; l < ECH_LANES; l++) lane[l] = list->ticks;
    for (size_t s = 0; s < list->step.n; s++) intervals[s].last = list->ticks;
    for (int s = (int)list->step.n - 1; s >= 0; s--) {
        const ech_step *step = &list->step.at[s];
        bool in_order = !ech_step_sends(step) && !ech_step_receives(step);
        if (step->lane == ECH_LANE_COMPUTE) {
            intervals[s].last = step->tick;
        } else if (in_order) {
            if (lane[step->lane] < intervals[s].last) intervals[s].last = lane[step->lane];
            lane[step->lane] = intervals[s].last;
        }
        for (int i = 0; i < step->afters; i++) {
            interval *waited = &intervals[list->after.at[step->first_after + i]];
            if (intervals[s].last < waited->last) waited->last = intervals[s].last;
        }
    }
}

static ech_status check_life(const ech_plan *plan, const ech_list *list, int s, interval when)
{
    const ech_step *step = &list->step.at[s];
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &list->access.at[step->first_access + i];
        if (access->value < (int)plan->persistent.n) continue;
        const ech_value *v = ech_plan_value(plan, list, access->value);
        if (step->lane == ECH_LANE_COMPUTE) when = (interval){access->tick, access->tick};
        bool brings = step->lane != ECH_LANE_COMPUTE && access->write;
        int first = brings ? ech_value_first(v) : v->born;
        if (first <= when.first && ech_value_last(v) >= when.last) continue;
        ECH_FREED_TEXT name = {0};
        ech_value_print(plan, list, access->value, &name);
        return ech_list_reject(plan, list, s,
                               "runs in ticks %d to %d and touches %s, which lives from %d to %d",
                               when.first, when.last, name.at, v->born, v->dies);
    }
    return ECH_OK;
}

/* Everything has ended by the end of the last tick: a step without waiters may run until then. */
static ech_status check_lives(const ech_plan *plan, const ech_list *list)
{
    ECH_FREED interval *intervals = ech_calloc(list->step.n, sizeof *intervals);
    find_first(list, intervals);
    find_last(list, intervals);
    for (int s = 0; s < (int)list->step.n; s++) {
        interval when = intervals[s];
        if (when.last >= list->ticks) when.last = list->ticks - 1;
        if (when.first > when.last) when.first = when.last;
        ECH_TRY(check_life(plan, list, s, when));
    }
    return ECH_OK;
}

/* ---- overlap ---- */

static ech_status fail_overlap(const ech_plan *plan, const ech_list *list, int a, int b)
{
    int first = (int)plan->persistent.n;
    ECH_FREED_TEXT one = {0}, other = {0};
    ech_value_print(plan, list, first + a, &one);
    ech_value_print(plan, list, first + b, &other);
    ECH_FAIL(ECH_EINTERNAL,
             "schedule check of list %s, rank %d: two values overlap in memory: %s; %s",
             ech_list_name(list->kind), plan->rank, one.at, other.at);
}

/* The bytes in use at a time, between all the places where values begin and end: a binary tree over
 * these intervals. A value in use fills the highest nodes inside it. There are many values, many of
 * them live at the same time. */
typedef struct taken {
    int64_t *place; /* ascending, each once; leaf i is the bytes place[i] .. place[i + 1] - 1 */
    size_t places, leaves; /* leaves: a power of two */
    bool *full;            /* [2 * leaves]: one value uses all of the node */
    int *within;           /* [2 * leaves]: number of full nodes, of this one and those below it */
} taken;

static int by_size(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Values of other micro-batches repeat offsets: most need not be sorted. */
static bool is_known(int64_t *known, int64_t place)
{
    int64_t *slot = &known[(uint64_t)place * 0x9e3779b97f4a7c15u >> 52];
    bool same = *slot == place;
    *slot = place;
    return same;
}

static bool is_in(const ech_value *value, ech_space space)
{
    return ech_memory_space(value->kind) == space;
}

static taken begin_taken(const ech_list *list, ech_space space)
{
    int64_t known[KNOWN];
    taken t = {.place = ech_calloc(2 * list->value.n + 1, sizeof *t.place), .leaves = 1};
    size_t n = 0;
    for (int i = 0; i < KNOWN; i++) known[i] = -1;
    for (size_t i = 0; i < list->value.n; i++) {
        int64_t begin = list->value.at[i].offset, end = begin + list->value.at[i].bytes;
        if (!is_in(&list->value.at[i], space)) continue;
        if (!is_known(known, begin)) t.place[n++] = begin;
        if (!is_known(known, end)) t.place[n++] = end;
    }
    qsort(t.place, n, sizeof *t.place, by_size);
    for (size_t i = 0; i < n; i++)
        if (t.places == 0 || t.place[t.places - 1] < t.place[i]) t.place[t.places++] = t.place[i];
    while (t.leaves < t.places) t.leaves *= 2;
    t.full = ech_calloc(2 * t.leaves, sizeof *t.full);
    t.within = ech_calloc(2 * t.leaves, sizeof *t.within);
    return t;
}

static void end_taken(taken *t)
{
    free(t->place);
    free(t->full);
    free(t->within);
}

static size_t leaf_of(const taken *t, int64_t offset)
{
    const int64_t *found = bsearch(&offset, t->place, t->places, sizeof offset, by_size);
    ECH_ASSERT(found);
    return (size_t)(found - t->place) + t->leaves;
}

/* False: part of the node is in use by another value. */
static bool fill_node(taken *t, size_t node, bool fill)
{
    if (fill && t->within[node]) return false;
    for (size_t above = node / 2; fill && above; above /= 2)
        if (t->full[above]) return false;
    t->full[node] = fill;
    for (size_t above = node; above; above /= 2) t->within[above] += fill ? 1 : -1;
    return true;
}

/* Takes the value's bytes, or releases them. False: some are in use by another value. */
static bool take(taken *t, const ech_value *v, bool fill)
{
    size_t low = leaf_of(t, v->offset), end = leaf_of(t, v->offset + v->bytes);
    bool is_free = true;
    for (; low < end && is_free; low /= 2, end /= 2) {
        if (low & 1) is_free &= fill_node(t, low++, fill);
        if (end & 1 && is_free) is_free &= fill_node(t, --end, fill);
    }
    return is_free;
}

/* Finds a value that uses bytes of this one during its life. */
static ech_status find_overlap(const ech_plan *plan, const ech_list *list, int value)
{
    const ech_value *v = &list->value.at[value];
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *o = &list->value.at[i];
        if ((int)i != value && is_in(o, ech_memory_space(v->kind)) && o->born <= v->dies &&
            v->born <= o->dies && v->offset < o->offset + o->bytes &&
            o->offset < v->offset + v->bytes)
            return fail_overlap(plan, list, value, (int)i);
    }
    ECH_FAIL(ECH_EINTERNAL, "two values overlap in memory, and none is found that does");
}

static ech_status fail_outside(const ech_plan *plan, const ech_list *list, int value)
{
    ECH_FREED_TEXT name = {0};
    ech_value_print(plan, list, (int)plan->persistent.n + value, &name);
    ECH_FAIL(ECH_EINTERNAL,
             "schedule check of list %s, rank %d: a value lies outside of its arena, or is not "
             "aligned: %s",
             ech_list_name(list->kind), plan->rank, name.at);
}

static ech_status check_inside(const ech_plan *plan, const ech_list *list)
{
    for (size_t i = 0; i < list->value.n; i++) {
        int64_t begin = list->value.at[i].offset, end = begin + list->value.at[i].bytes;
        ech_space space = ech_memory_space(list->value.at[i].kind);
        if (begin < plan->persistent_bytes[space] || end > plan->arena_bytes[space] ||
            begin % plan->alignment[space])
            return fail_outside(plan, list, (int)i);
    }
    return ECH_OK;
}

static int *sort_values(const ech_list *list, bool by_death)
{
    ECH_FREED int *tick = ech_calloc(list->value.n + 1, sizeof *tick);
    for (size_t i = 0; i < list->value.n; i++)
        tick[i] = by_death ? list->value.at[i].dies : list->value.at[i].born;
    return ech_sort_by_key(list->value.n, NULL, tick, list->ticks + 1);
}

/* A sweep over time with the bytes of a space's live values. */
static ech_status check_overlap(const ech_plan *plan, const ech_list *list, ech_space space)
{
    ECH_FREED int *by_birth = sort_values(list, false), *by_death = sort_values(list, true);
    const int *dead = by_death;
    ECH_CLEANUP(end_taken) taken bytes = begin_taken(list, space);
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[by_birth[i]];
        if (!is_in(v, space)) continue;
        for (; list->value.at[*dead].dies < v->born; dead++)
            if (is_in(&list->value.at[*dead], space)) take(&bytes, &list->value.at[*dead], false);
        if (!take(&bytes, v, true)) return find_overlap(plan, list, by_birth[i]);
    }
    return ECH_OK;
}

/* True if the layer allows the call of that tick to read `from` and write `to` in its place. */
static bool may_overwrite(const ech_plan *plan, const ech_list *list, int tick, int from, int to)
{
    const ech_step *step = ech_list_step_at(list, tick);
    if (ech_step_kind_phase(step->kind) < 0) return false;
    const ech_block *block = plan->model->block.at[step->block];
    const ech_block_call *call =
        &block->program[step->phase].at[step->first_call + tick - step->tick];
    for (const ech_operand *o = NULL; (o = ech_call_next(block, call, list->purpose, o));) {
        int read = ech_operand_overwrites(block, call, o);
        if (read >= 0 && ech_list_operand(plan, list, step, read) == from &&
            ech_list_operand(plan, list, step, o->value) == to)
            return true;
    }
    return false;
}

/* check/races.c proves that a copy waits for all users of the memory that it overwrites. */
static bool may_succeed(const ech_plan *plan, const ech_list *list, const ech_value *successor,
                        int from, int to)
{
    return successor->brought || may_overwrite(plan, list, successor->born, from, to);
}

/* A successor begins after its predecessor's last tick, on its bytes. It is written by a call that
 * may do that, or brought by a step of another lane. */
static ech_status check_heirs(const ech_plan *plan, const ech_list *list)
{
    int first = (int)plan->persistent.n;
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i], *successor;
        if (v->successor < 0) continue;
        successor = &list->value.at[v->successor];
        if (successor->offset == v->offset && successor->bytes == v->bytes &&
            successor->born == v->dies + 1 &&
            may_succeed(plan, list, successor, first + (int)i, first + v->successor))
            continue;
        ECH_FREED_TEXT name = {0};
        ech_value_print(plan, list, first + (int)i, &name);
        ECH_FAIL(ECH_EINTERNAL,
                 "schedule check of list %s, rank %d: %s has a successor that does not fit it",
                 ech_list_name(list->kind), plan->rank, name.at);
    }
    return ECH_OK;
}

ech_status ech_check_persistent(const ech_plan *plan)
{
    int64_t end[ECH_SPACES] = {0};
    for (size_t i = 0; i < plan->persistent.n; i++) {
        const ech_value *v = &plan->persistent.at[i];
        ech_space space = ech_memory_space(v->kind);
        bool follows = v->offset >= end[space] && v->offset % plan->alignment[space] == 0;
        end[space] = v->offset + v->bytes;
        if (follows && v->bytes >= 0 && end[space] <= plan->persistent_bytes[space]) continue;
        ECH_FREED_TEXT name = {0};
        ech_value_print(plan, &plan->list[ECH_LIST_TRAIN], (int)i, &name);
        ECH_FAIL(ECH_EINTERNAL,
                 "schedule check of rank %d: a persistent value overlaps the one before it, is not "
                 "aligned, or lies outside of their part of the arena: %s",
                 plan->rank, name.at);
    }
    return ECH_OK;
}

ech_status ech_check_memory(const ech_plan *plan, const ech_list *list)
{
    ECH_TRY(check_inside(plan, list));
    ECH_TRY(check_lives(plan, list));
    ECH_TRY(check_heirs(plan, list));
    for (int space = 0; space < ECH_SPACES; space++)
        ECH_TRY(check_overlap(plan, list, (ech_space)space));
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the checker that looks at memory: whatever a step touches lives for as long as the step
 * may run, and no two values that live at the same time share a byte.
 */
#include <stdlib.h>

#include "schedule/check/check.h"

/* ---- lives ---- */

/* When a step of another lane than compute may run: not before tick `first`, and not behind `last`. */
typedef struct window {
    int first, last;
} window;

/* Going forward, a lane begins its steps in order: none begins before what the ones before it wait
 * for. */
static void find_first(const ech_list *list, window *windows)
{
    int lane[ECH_LANES] = {0};
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        int *first = &lane[step->lane];
        for (int i = 0; i < step->afters; i++) {
            int after = list->after.at[step->first_after + i];
            const ech_step *other = &list->step.at[after];
            int over =
                other->lane == ECH_LANE_COMPUTE ? other->tick + other->ticks : windows[after].first;
            if (over > *first) *first = over;
        }
        windows[s].first = *first;
    }
}

/* It has ended when a compute step begins that waits for it, or (but for messages) for one behind it. */
static void find_last(const ech_list *list, window *windows)
{
    int lane[ECH_LANES];
    for (int l = 0; l < ECH_LANES; l++) lane[l] = list->ticks;
    for (size_t s = 0; s < list->step.n; s++) windows[s].last = list->ticks;
    for (int s = (int)list->step.n - 1; s >= 0; s--) {
        const ech_step *step = &list->step.at[s];
        bool in_order = !ech_step_sends(step) && !ech_step_receives(step);
        if (step->lane == ECH_LANE_COMPUTE) {
            for (int i = 0; i < step->afters; i++) {
                window *waited = &windows[list->after.at[step->first_after + i]];
                if (step->tick < waited->last) waited->last = step->tick;
            }
        } else if (in_order) {
            if (lane[step->lane] < windows[s].last) windows[s].last = lane[step->lane];
            lane[step->lane] = windows[s].last;
        }
    }
}

static ech_status check_life(const ech_plan *plan, const ech_list *list, int s, window when)
{
    const ech_step *step = &list->step.at[s];
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &list->access.at[step->first_access + i];
        if (access->value < (int)plan->persistent.n) continue;
        const ech_value *v = ech_plan_value(plan, list, access->value);
        if (step->lane == ECH_LANE_COMPUTE) when = (window){access->tick, access->tick};
        if (v->born <= when.first && ech_value_last(v) >= when.last) continue;
        ech_text name = {0};
        ech_value_print(plan, list, access->value, &name);
        ech_status status = ech_list_reject(
            plan, list, s, "runs in ticks %d to %d and touches %s, which lives from %d to %d",
            when.first, when.last, name.at, v->born, v->dies);
        ech_text_free(&name);
        return status;
    }
    return ECH_OK;
}

/* Before the last tick's end all is over: a step that nobody waits for may run until then. */
static ech_status check_lives(const ech_plan *plan, const ech_list *list)
{
    window *windows = ech_calloc(list->step.n, sizeof *windows);
    ech_status status = ECH_OK;
    find_first(list, windows);
    find_last(list, windows);
    for (int s = 0; s < (int)list->step.n && status == ECH_OK; s++) {
        window when = windows[s];
        if (when.last >= list->ticks) when.last = list->ticks - 1;
        if (when.first > when.last) when.first = when.last;
        status = check_life(plan, list, s, when);
    }
    free(windows);
    return status;
}

/* ---- overlap ---- */

typedef struct edge {
    int tick, value;
    bool birth;
} edge;

static int by_tick(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->tick != y->tick) return x->tick < y->tick ? -1 : 1;
    if (x->birth != y->birth) return x->birth ? 1 : -1; /* deaths first: dies + 1 */
    return x->value < y->value ? -1 : x->value > y->value;
}

static ech_status fail_overlap(const ech_plan *plan, const ech_list *list, int a, int b)
{
    int first = (int)plan->persistent.n;
    ech_text one = {0}, other = {0};
    ech_value_print(plan, list, first + a, &one);
    ech_value_print(plan, list, first + b, &other);
    ech_status status = ech_fail_at(__FILE__, __LINE__, ECH_EINTERNAL,
                                    "schedule check of list %s, rank %d: two values overlap in "
                                    "memory: %s; %s",
                                    ech_list_name(list->kind), plan->rank, one.at, other.at);
    ech_text_free(&one);
    ech_text_free(&other);
    return status;
}

static ech_status check_against_live(const ech_plan *plan, const ech_list *list, const int *live,
                                     size_t n, int value)
{
    const ech_value *v = &list->value.at[value];
    for (size_t i = 0; i < n; i++) {
        const ech_value *o = &list->value.at[live[i]];
        if (v->offset < o->offset + o->bytes && o->offset < v->offset + v->bytes)
            return fail_overlap(plan, list, value, live[i]);
    }
    return ECH_OK;
}

static ech_status fail_outside(const ech_plan *plan, const ech_list *list, int value)
{
    ech_text name = {0};
    ech_value_print(plan, list, (int)plan->persistent.n + value, &name);
    ech_status status = ech_fail_at(__FILE__, __LINE__, ECH_EINTERNAL,
                                    "schedule check of list %s, rank %d: a value lies outside of "
                                    "the arena: %s",
                                    ech_list_name(list->kind), plan->rank, name.at);
    ech_text_free(&name);
    return status;
}

static ech_status check_inside(const ech_plan *plan, const ech_list *list)
{
    for (size_t i = 0; i < list->value.n; i++) {
        int64_t begin = list->value.at[i].offset, end = begin + list->value.at[i].bytes;
        if (begin < plan->persistent_bytes || end > plan->arena_bytes)
            return fail_outside(plan, list, (int)i);
    }
    return ECH_OK;
}

/* A sweep over time with the set of live values. */
static ech_status check_overlap(const ech_plan *plan, const ech_list *list)
{
    size_t n = list->value.n, alive = 0;
    edge *edges = ech_calloc(2 * n + 1, sizeof *edges);
    int *live = ech_calloc(n + 1, sizeof *live);
    ech_status status = ECH_OK;
    for (size_t i = 0; i < n; i++) {
        edges[2 * i] = (edge){list->value.at[i].born, (int)i, true};
        edges[2 * i + 1] = (edge){list->value.at[i].dies + 1, (int)i, false};
    }
    qsort(edges, 2 * n, sizeof *edges, by_tick);
    for (size_t e = 0; e < 2 * n && status == ECH_OK; e++) {
        if (edges[e].birth) {
            status = check_against_live(plan, list, live, alive, edges[e].value);
            live[alive++] = edges[e].value;
        } else {
            for (size_t i = 0; i < alive; i++)
                if (live[i] == edges[e].value) live[i] = live[--alive];
        }
    }
    free(edges);
    free(live);
    return status;
}

/* Whether the call of that tick reads `from` and may write `to` in its place, says the layer. */
static bool may_overwrite(const ech_list *list, const ech_model *model, int tick, int from, int to)
{
    const ech_step *step = ech_list_step_at(list, tick);
    if (step->kind != ECH_STEP_BACKWARD_INPUT) return false;
    const ech_block *block = model->block.at[step->block];
    const ech_block_call *call =
        &block->program[step->phase].at[step->first_call + tick - step->tick];
    const ech_node *node = call->node < 0 || call->again ? NULL : &block->node.at[call->node];
    for (int i = 0; node && i < node->ins; i++) {
        if (!(node->layer->overwrites & 1u << i) || call->din[i] < 0 || call->add[i] >= 0) continue;
        int read = ech_block_again(block, node->in[i]);
        if (ech_list_value_of(list, block, read, step->micro) == from &&
            ech_list_value_of(list, block, call->din[i], step->micro) == to)
            return true;
    }
    return false;
}

/* An heir begins behind its forerunner's last tick, on its bytes, written by a call that may do that. */
static ech_status check_heirs(const ech_plan *plan, const ech_list *list)
{
    int first = (int)plan->persistent.n;
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i], *heir;
        if (v->heir < 0) continue;
        heir = &list->value.at[v->heir];
        if (heir->offset == v->offset && heir->bytes == v->bytes && heir->born == v->dies + 1 &&
            may_overwrite(list, plan->model, heir->born, first + (int)i, first + v->heir))
            continue;
        ech_text name = {0};
        ech_value_print(plan, list, first + (int)i, &name);
        ech_status status =
            ech_fail_at(__FILE__, __LINE__, ECH_EINTERNAL,
                        "schedule check of list %s, rank %d: %s has an heir that does not fit it",
                        ech_list_name(list->kind), plan->rank, name.at);
        ech_text_free(&name);
        return status;
    }
    return ECH_OK;
}

ech_status ech_check_memory(const ech_plan *plan, const ech_list *list)
{
    ECH_TRY(check_inside(plan, list));
    ECH_TRY(check_lives(plan, list));
    ECH_TRY(check_heirs(plan, list));
    return check_overlap(plan, list);
}

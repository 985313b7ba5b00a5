/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger: which values are live at run time. A value is born when a step first touches it and
 * dies when the compute lane has passed its last tick; the peaks are then compared with the plan's.
 * A touch outside the planned life aborts the process, on every lane. With ECH_POISON dead values
 * are filled with NaN patterns, so that a read of one shows in the result.
 */
#include <stdlib.h>
#include <string.h>

#include "exec/state.h"
#include "schedule/operands.h"
#include "schedule/print.h"

#ifdef ECH_POISON
enum { POISON = true };
#else
enum { POISON = false };
#endif

static bool is_memory(ech_space space)
{
    return space != ECH_SPACE_DISK;
}

static int by_tick(const void *a, const void *b)
{
    const ech_dated *x = a, *y = b;
    if (x->tick != y->tick) return x->tick < y->tick ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* The selected values (NULL: all) sorted by the time of their death or birth. */
static ech_dated *sort_values(ech_pool *pool, const ech_list *list, bool deaths, const bool *chosen,
                              size_t *n)
{
    ech_dated *dates = ech_pool_alloc(pool, (list->value.n + 1) * sizeof *dates);
    *n = 0;
    for (size_t i = 0; i < list->value.n; i++) {
        if (chosen && !chosen[i]) continue;
        const ech_value *v = &list->value.at[i];
        dates[(*n)++] = (ech_dated){deaths ? v->dies : v->born, (int)i};
    }
    qsort(dates, *n, sizeof *dates, by_tick);
    return dates;
}

/* Values that other lanes write before any compute step touches them (received values, their
 * scratch) are born at their planned tick. */
static void find_foreign(const ech_plan *plan, const ech_list *list, bool *foreign)
{
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->lane == ECH_LANE_COMPUTE) continue;
        for (int i = 0; i < step->accesses; i++) {
            const ech_access *access = &list->access.at[step->first_access + i];
            int value = access->value - (int)plan->persistent.n;
            if (access->write && value >= 0) foreign[value] = true;
        }
    }
}

void ech_ledger_create(ech_exec *exec)
{
    for (int l = 0; l < ECH_LIST_KINDS; l++) {
        const ech_list *list = &exec->plan->list[l];
        ech_lives *lives = &exec->ledger.lives[l];
        size_t n = list->value.n;
        ECH_FREED bool *foreign = ech_calloc(n + 1, sizeof *foreign);
        lives->live = ech_pool_alloc(exec->pool, n * sizeof *lives->live);
        find_foreign(exec->plan, list, foreign);
        lives->by_death = sort_values(exec->pool, list, true, NULL, &lives->deaths);
        lives->by_birth = sort_values(exec->pool, list, false, foreign, &lives->births);
    }
}

void ech_ledger_begin(ech_exec *exec)
{
    ech_ledger *ledger = &exec->ledger;
    ech_lives *lives = &ledger->lives[exec->list->kind];
    memset(lives->live, 0, exec->list->value.n * sizeof *lives->live);
    memset(ledger->now, 0, sizeof ledger->now);
    ledger->next_death = ledger->next_birth = 0;
    exec->tick = 0;
    ledger->working = 0;
    for (int space = 0; POISON && space < ECH_SPACES; space++)
        if (is_memory((ech_space)space))
            exec->device->fill(exec->on[ECH_LANE_COMPUTE].queue,
                               exec->arena[space] + exec->plan->persistent_bytes[space], 0xff,
                               (size_t)exec->list->bytes[space]);
}

/* Counts a value that is born (1) or dies (-1). */
static void count(const ech_plan *plan, ech_ledger *ledger, const ech_value *v, int sign)
{
    int64_t bytes = ech_plan_align(plan, v->kind, v->bytes);
    ledger->now[v->kind] += sign * bytes;
    if (ech_memory_is_working(v->kind)) ledger->working += sign * bytes;
}

static void give_birth(ech_exec *exec, int value)
{
    ech_ledger *ledger = &exec->ledger;
    const ech_value *v = &exec->list->value.at[value];
    ledger->lives[exec->list->kind].live[value] = true;
    count(exec->plan, ledger, v, 1);
    if (ledger->now[v->kind] > ledger->peak[v->kind]) ledger->peak[v->kind] = ledger->now[v->kind];
    if (ledger->working > ledger->working_peak) ledger->working_peak = ledger->working;
}

static int now(const ech_exec *exec)
{
    return atomic_load_explicit(&exec->tick, memory_order_relaxed);
}

void ech_ledger_advance(ech_exec *exec, int tick)
{
    ech_ledger *ledger = &exec->ledger;
    ech_lives *lives = &ledger->lives[exec->list->kind];
    atomic_store_explicit(&exec->tick, tick, memory_order_relaxed);
    for (; ledger->next_death < lives->deaths; ledger->next_death++) {
        ech_dated death = lives->by_death[ledger->next_death];
        const ech_value *v = &exec->list->value.at[death.value];
        if (death.tick >= tick) break;
        if (!lives->live[death.value]) continue;
        lives->live[death.value] = false;
        count(exec->plan, ledger, v, -1);
        if (POISON && v->successor < 0 && is_memory(ech_memory_space(v->kind)))
            exec->device->fill(exec->on[ECH_LANE_COMPUTE].queue, ech_exec_at(exec, v), 0xff,
                               (size_t)v->bytes);
    }
    for (; ledger->next_birth < lives->births; ledger->next_birth++) {
        ech_dated birth = lives->by_birth[ledger->next_birth];
        if (birth.tick > tick) break;
        if (!lives->live[birth.value]) give_birth(exec, birth.value);
    }
}

void *ech_exec_touch(ech_exec *exec, int value)
{
    int own = value - (int)exec->plan->persistent.n;
    if (own < 0) return ech_exec_look(exec, value);
    const ech_value *v = &exec->list->value.at[own];
    int tick = now(exec);
    ECH_ASSERT(v->born <= tick && tick <= ech_value_last(v));
    bool live = exec->ledger.lives[exec->list->kind].live[own] || tick > v->dies;
    if (!live) give_birth(exec, own);
    return ech_exec_at(exec, v);
}

void *ech_exec_look(const ech_exec *exec, int value)
{
    return ech_exec_at(exec, ech_plan_value(exec->plan, exec->list, value));
}

/* ---- other lanes: the values that a step may touch are fixed in its plan; the time is the compute
 * lane's ---- */

static _Noreturn void refuse(const ech_exec *exec, const ech_step *step, int value, const char *why)
{
    ech_text text = {0};
    ech_step_print(step, &text);
    ech_text_append(&text, " touches a value %s: ", why);
    ech_value_print(exec->plan, exec->list, value, &text);
    ech_assert_failed(__FILE__, __LINE__, text.at);
}

static bool declares(const ech_exec *exec, const ech_step *step, int value)
{
    const ech_access *access = exec->list->access.at + step->first_access;
    for (int i = 0; i < step->accesses; i++)
        if (access[i].value == value) return true;
    return false;
}

void *ech_exec_address(const ech_exec *exec, const ech_step *step, int value)
{
    int own = value - (int)exec->plan->persistent.n, end = step->tick + ech_step_ticks(step) - 1;
    if (!declares(exec, step, value)) refuse(exec, step, value, "that it does not declare");
    if (own < 0) return ech_exec_look(exec, value);
    const ech_value *v = &exec->list->value.at[own];
    if (step->tick < ech_value_first(v) || end > ech_value_last(v))
        refuse(exec, step, value, "outside of its planned life");
    return ech_exec_at(exec, v);
}

void ech_ledger_expect(const ech_exec *exec, const ech_step *step, int value)
{
    if (!declares(exec, step, value)) refuse(exec, step, value, "that it does not declare");
}

void *ech_exec_used(ech_exec *exec, const ech_step *step, ech_used_as use, int number)
{
    const ech_plan *plan = exec->plan;
    int value = ech_step_uses(exec->list, step, use, number);
    if (value < 0) return NULL;
    if (!ech_use_fits(use, ech_plan_value(plan, exec->list, value)->kind))
        refuse(exec, step, value, "that it does not declare as what it uses");
    if (value < (int)plan->persistent.n && (use == ECH_USE_WEIGHTS || use == ECH_USE_NEXT)) {
        int version = step->version + (use == ECH_USE_NEXT);
        ech_ledger_expect(exec, step, ech_plan_weights(plan, step->index, version));
        const ech_bucket *bucket = &plan->bucket.at[step->index];
        return ech_exec_look(exec, bucket->weights + ech_exec_weight_slot(exec, bucket, version));
    }
    return step->lane == ECH_LANE_COMPUTE ? ech_exec_touch(exec, value)
                                          : ech_exec_address(exec, step, value);
}

/* The compute lane is at or after this tick when a step begins that waits for that lane, and at or
 * before it when a step ends that it will wait for. Values that live to the list's end live until
 * all lanes have ended. */
void ech_ledger_check(const ech_exec *exec, const ech_step *step, bool begins)
{
    int tick = now(exec), persistent = (int)exec->plan->persistent.n;
    for (int i = 0; i < step->accesses; i++) {
        int value = exec->list->access.at[step->first_access + i].value;
        if (value < persistent) continue;
        const ech_value *v = &exec->list->value.at[value - persistent];
        int last = ech_value_last(v);
        if (begins && tick < ech_value_first(v))
            refuse(exec, step, value, "before its life begins");
        if (tick > last && last < exec->list->ticks - 1)
            refuse(exec, step, value, "after its life has ended");
    }
}

int64_t ech_exec_working(const ech_exec *exec)
{
    int64_t bytes = exec->ledger.working_peak;
    for (size_t i = 0; i < exec->plan->persistent.n; i++) {
        const ech_value *v = &exec->plan->persistent.at[i];
        if (ech_memory_is_working(v->kind)) bytes += ech_plan_align(exec->plan, v->kind, v->bytes);
    }
    return bytes;
}

void ech_exec_peaks(const ech_exec *exec, int64_t peak[ECH_MEMORY_KINDS])
{
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) peak[kind] = exec->ledger.peak[kind];
    for (size_t i = 0; i < exec->plan->persistent.n; i++) {
        const ech_value *v = &exec->plan->persistent.at[i];
        peak[v->kind] += ech_plan_align(exec->plan, v->kind, v->bytes);
    }
}

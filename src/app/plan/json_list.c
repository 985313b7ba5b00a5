/* SPDX-License-Identifier: Apache-2.0
 *
 * A train list as JSON: its steps, when they run, the values that they touch, and the device memory
 * that is live.
 */
#include <stdlib.h>

#include "app/plan/json.h"
#include "schedule/operands.h"
#include "schedule/print.h"

typedef struct listing {
    const ech_plan *plan; /* with values */
    const ech_list *list;
    int64_t *live;                /* [ticks] bytes of the device, with persistent ones */
    json_t *sets;                 /* of touched values; each once */
    json_t *number_of;            /* a set's text -> its index */
    const double *begin, *finish; /* [steps]; NULL: not simulated */
} listing;

static void count_live(listing *l)
{
    const ech_list *list = l->list;
    l->live = ech_calloc((size_t)list->ticks + 2, sizeof *l->live);
    l->live[0] = l->plan->persistent_bytes[ECH_SPACE_DEVICE];
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        if (ech_memory_space(v->kind) != ECH_SPACE_DEVICE) continue;
        int64_t bytes = ech_plan_align(l->plan, v->kind, v->bytes);
        l->live[v->born] += bytes;
        l->live[v->dies + 1] -= bytes;
    }
    for (int tick = 1; tick < list->ticks; tick++) l->live[tick] += l->live[tick - 1];
}

/* The most that is live while the step runs. */
static int64_t live_at(const listing *l, const ech_step *step)
{
    int64_t most = 0;
    for (int tick = step->tick; tick < step->tick + ech_step_ticks(step); tick++)
        if (l->live[tick] > most) most = l->live[tick];
    return most;
}

/* Without the number of the micro-batch, so that steps of all micro-batches touch the same set. */
static json_t *touched_json(const listing *l, int value, bool reads, bool writes)
{
    const ech_value *v = ech_plan_value(l->plan, l->list, value);
    ECH_FREED_TEXT name = {0};
    if (v->block >= 0 && v->local >= 0) {
        const ech_block *block = l->plan->model->block.at[v->block];
        ech_text_append(&name, "%s: %s", block->name, block->value.at[v->local].name);
    } else {
        ech_value_print(l->plan, l->list, value, &name);
    }
    return json_pack("{s:s, s:s, s:I, s:b, s:b}", "value", name.at, "kind",
                     ech_memory_name(v->kind), "bytes", (json_int_t)v->bytes, "reads", reads,
                     "writes", writes);
}

static int by_value(const void *a, const void *b)
{
    const ech_access *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* The index in `sets` of the values that the step touches. */
static json_int_t touch(listing *l, const ech_step *step)
{
    size_t n = (size_t)step->accesses;
    ECH_FREED ech_access *access = ech_calloc(n + 1, sizeof *access);
    json_t *set = json_array();
    for (size_t i = 0; i < n; i++) access[i] = l->list->access.at[(size_t)step->first_access + i];
    qsort(access, n, sizeof *access, by_value);
    for (size_t i = 0; i < n;) {
        bool reads = false, writes = false;
        int value = access[i].value;
        for (; i < n && access[i].value == value; i++) {
            reads |= !access[i].write;
            writes |= access[i].write;
        }
        json_array_append_new(set, touched_json(l, value, reads, writes));
    }
    ECH_FREED char *text = json_dumps(set, JSON_COMPACT);
    json_t *number = json_object_get(l->number_of, text);
    if (number) {
        json_decref(set);
        return json_integer_value(number);
    }
    json_int_t made = (json_int_t)json_array_size(l->sets);
    json_object_set_new(l->number_of, text, json_integer(made));
    json_array_append_new(l->sets, set);
    return made;
}

static json_t *step_json(listing *l, size_t s)
{
    const ech_step *step = &l->list->step.at[s];
    ECH_FREED_TEXT text = {0};
    json_t *after = json_array();
    ech_list_print_step(l->list, step, &text);
    for (int i = 0; i < step->afters; i++)
        json_array_append_new(after, json_integer(l->list->after.at[step->first_after + i]));
    json_t *out = json_pack("{s:s, s:s, s:o, s:I}", "lane", ech_lane_name(step->lane), "step",
                            text.at, "after", after, "touches", (json_int_t)touch(l, step));
    if (step->lane == ECH_LANE_COMPUTE)
        json_object_set_new(out, "live_bytes", json_integer(live_at(l, step)));
    if (l->begin) {
        json_object_set_new(out, "begin", json_real(l->begin[s]));
        json_object_set_new(out, "end", json_real(l->finish[s]));
    }
    return out;
}

/* When the steps of the rank run. */
static void find_times(const ech_plan_report *report, int rank, listing *l)
{
    const ech_simulation *simulation = &report->simulation;
    if (!report->checked) return;
    int i = ech_layout_plan_of(report->design->layout, simulation->plans, rank);
    l->begin = simulation->begin[i];
    l->finish = simulation->finish[i];
}

void ech_plan_add_list(const ech_plan_report *report, const ech_plan_class *alike, json_t *row)
{
    ech_plan *plan = ech_design_sketch(report->design, alike->rank, false);
    listing l = {.plan = plan,
                 .list = &plan->list[ECH_LIST_TRAIN],
                 .sets = json_array(),
                 .number_of = json_object()};
    json_t *steps = json_array();
    ECH_ASSERT(l.list->step.n == alike->plan->list[ECH_LIST_TRAIN].step.n);
    count_live(&l);
    find_times(report, alike->rank, &l);
    for (size_t s = 0; s < l.list->step.n; s++) json_array_append_new(steps, step_json(&l, s));
    json_object_set_new(row, "train", steps);
    json_object_set_new(row, "touched", l.sets);
    json_decref(l.number_of);
    free(l.live);
    ech_plan_destroy(plan);
}

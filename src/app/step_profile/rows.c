/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows the step profile of a train list has, and what they have to do: calls of one layer in
 * one phase on parameters of one shape are a row, and so are steps of one kind.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/step_profile/step_profile.h"
#include "schedule/work.h"

static const char *const phase_letter[ECH_PHASES] = {"F", "B", "W", "R"};

static const char *const activity_name[ECH_ACTIVITIES] = {
    [ECH_ACTIVITY_METRICS] = "metrics and status",
    [ECH_ACTIVITY_CHECK] = "comparing ranks",
    [ECH_ACTIVITY_VALIDATION] = "validation",
    [ECH_ACTIVITY_SAVING] = "saving",
    [ECH_ACTIVITY_OTHER] = "anything else, and this table"};

typedef struct builder {
    const ech_plan *plan;
    const ech_list *list;
    ech_machine_rates rates;
    ech_step_profile_rows *rows;
} builder;

ech_step_profile_row *ech_step_profile_find(const ech_step_profile_row *rows, size_t n,
                                            const ech_step_profile_row *like)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].group == like->group && rows[i].lane == like->lane &&
            strcmp(rows[i].name, like->name) == 0)
            return (ech_step_profile_row *)&rows[i];
    return NULL;
}

/* The index of the row of that name, made if it is new. */
static __attribute__((format(printf, 4, 5))) int
find_row(ech_step_profile_rows *rows, ech_row_group group, ech_lane lane, const char *format, ...)
{
    ech_step_profile_row row = {.group = group, .lane = lane};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(row.name, sizeof row.name, format, arguments);
    va_end(arguments);
    const ech_step_profile_row *found = ech_step_profile_find(rows->row.at, rows->row.n, &row);
    if (found) return (int)(found - rows->row.at);
    ECH_PUSH(rows->row, row);
    return (int)rows->row.n - 1;
}

static int waiting_row(ech_step_profile_rows *rows, const char *for_what)
{
    int row = find_row(rows, ECH_ROWS_COMPUTE, ECH_LANE_COMPUTE, "waits for %s", for_what);
    rows->row.at[row].waits = true;
    return row;
}

/* How long it takes at least. */
static double bound_of(ech_machine_rates rates, ech_work work)
{
    double by_flops = rates.flops > 0 ? work.flops / rates.flops : 0;
    double by_bytes = rates.bytes > 0 ? work.bytes / rates.bytes : 0;
    return by_flops > by_bytes ? by_flops : by_bytes;
}

static void add_work(const builder *b, int index, ech_work work)
{
    ech_step_profile_row *row = &b->rows->row.at[index];
    row->calls++;
    row->flops += work.flops;
    row->bytes += work.bytes;
    /* How fast messages could be depends on what is between ranks, which nobody has measured. */
    if (row->group == ECH_ROWS_COMPUTE) row->bound += bound_of(b->rates, work);
}

/* "768x2304": this rank's shard of the call's first parameter. */
static void print_shape(const builder *b, const ech_node *node, char *out, size_t size)
{
    int64_t sizes[ECH_MAX_DIMS];
    size_t n = 0;
    out[0] = '\0';
    if (!node->params) return;
    const ech_shape *shape = &b->plan->model->param.at[node->param[0]].shape;
    ech_shape_resolve(shape, ech_extent_of_params(b->plan->layout->sharding), sizes);
    for (int d = 0; d < shape->dims && n < size; d++)
        n += (size_t)snprintf(out + n, size - n, "%s%" PRId64, d ? "x" : " ", sizes[d]);
}

static int row_of_call(const builder *b, const ech_step *step, int call)
{
    const ech_block *block = b->plan->model->block.at[step->block];
    const ech_block_call *of = &block->program[step->phase].at[call];
    const char *letter = phase_letter[step->phase];
    char shape[40];
    if (!(of->purposes & 1u << b->list->purpose)) return b->rows->between;
    if (of->node < 0)
        return find_row(b->rows, ECH_ROWS_COMPUTE, ECH_LANE_COMPUTE, "sum of gradients %s", letter);
    const ech_node *node = &block->node.at[of->node];
    print_shape(b, node, shape, sizeof shape);
    return find_row(b->rows, ECH_ROWS_COMPUTE, ECH_LANE_COMPUTE, "%s %s%s%s", node->layer->name,
                    letter, of->recompute && step->phase != ECH_RECOMPUTE ? " recompute" : "",
                    shape);
}

static void add_calls(const builder *b, const ech_step *step)
{
    for (int i = 0; i < step->calls; i++) {
        int call = step->first_call + i, row = row_of_call(b, step, call);
        b->rows->of_tick[step->tick + i] = row;
        if (row != b->rows->between)
            add_work(b, row, ech_work_of_call(b->plan, b->list, step, call));
    }
}

/* "all_reduce over tensor", "reduce_grads over data"; for steps without a group the kind alone. */
static void add_step(const builder *b, const ech_step *step)
{
    bool gathers = ech_step_gathers(step);
    const char *kind = step->collective != ECH_COLLECTIVE_NONE
                           ? ech_collective_name(step->collective)
                           : ech_step_name(step->kind);
    int row = find_row(b->rows, step->lane == ECH_LANE_COMPUTE ? ECH_ROWS_COMPUTE : ECH_ROWS_BESIDE,
                       step->lane, "%s%s%s", kind, gathers ? " over " : "",
                       gathers ? ech_layout_group_name(step->group) : "");
    b->rows->of_tick[step->tick] = row;
    add_work(b, row, ech_step_work(b->plan, b->list, step));
}

ech_step_profile_rows ech_step_profile_rows_of(const ech_plan *plan, ech_machine_rates rates)
{
    ech_step_profile_rows rows = {0};
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    builder b = {.plan = plan, .list = list, .rates = rates, .rows = &rows};
    rows.of_tick = ech_calloc((size_t)list->ticks + 1, sizeof *rows.of_tick);
    rows.between = find_row(&rows, ECH_ROWS_COMPUTE, ECH_LANE_COMPUTE, "between steps");
    rows.data = waiting_row(&rows, "data");
    rows.row.at[rows.between].waits = true;
    for (int kind = 0; kind < ECH_STEPS; kind++) rows.waits_for[kind] = -1;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (ech_step_kind_phase(step->kind) >= 0)
            add_calls(&b, step);
        else
            add_step(&b, step);
        if (step->lane != ECH_LANE_COMPUTE)
            rows.waits_for[step->kind] = waiting_row(&rows, step->collective != ECH_COLLECTIVE_NONE
                                                                ? "collectives"
                                                                : ech_step_name(step->kind));
    }
    for (int activity = ECH_ACTIVITY_STEPS + 1; activity < ECH_ACTIVITIES; activity++)
        rows.outside[activity] =
            find_row(&rows, ECH_ROWS_OUTSIDE, ECH_LANE_COMPUTE, "%s", activity_name[activity]);
    rows.outside[ECH_ACTIVITY_STEPS] = rows.outside[ECH_ACTIVITY_OTHER];
    return rows;
}

void ech_step_profile_rows_free(ech_step_profile_rows *rows)
{
    free(rows->row.at);
    free(rows->of_tick);
    *rows = (ech_step_profile_rows){0};
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows the step profile of a train list has, and what they have to do: calls of one layer in one
 * phase on parameters of one shape are a row, and so are steps of one kind.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/step_profile/step_profile.h"
#include "schedule/work.h"

static const char *const phase_letter[ECH_PHASES] = {"F", "B", "W"};

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

/* The row of that name, made if it is new. */
static int find_row(ech_step_profile_rows *rows, const char *name, ech_row_group group,
                    ech_lane lane)
{
    for (size_t i = 0; i < rows->row.n; i++)
        if (rows->row.at[i].group == group && rows->row.at[i].lane == lane &&
            strcmp(rows->row.at[i].name, name) == 0)
            return (int)i;
    ech_step_profile_row row = {.group = group, .lane = lane};
    snprintf(row.name, sizeof row.name, "%s", name);
    ECH_PUSH(rows->row, row);
    return (int)rows->row.n - 1;
}

static int waiting_row(ech_step_profile_rows *rows, const char *for_what)
{
    char name[sizeof(ech_step_profile_row){0}.name];
    snprintf(name, sizeof name, "waits for %s", for_what);
    int row = find_row(rows, name, ECH_ROWS_COMPUTE, ECH_LANE_COMPUTE);
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
    char name[sizeof(ech_step_profile_row){0}.name], shape[40] = "";
    if (!(of->purposes & 1u << b->list->purpose)) return b->rows->between;
    if (of->node < 0) {
        snprintf(name, sizeof name, "sum of gradients %s", letter);
    } else {
        const ech_node *node = &block->node.at[of->node];
        print_shape(b, node, shape, sizeof shape);
        snprintf(name, sizeof name, "%s %s%s%s", node->layer->name, letter,
                 of->recompute ? " recompute" : "", shape);
    }
    return find_row(b->rows, name, ECH_ROWS_COMPUTE, ECH_LANE_COMPUTE);
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
static void print_step(const ech_step *step, char *out, size_t size)
{
    const char *kind = ech_step_name(step->kind), *group = ech_layout_group_name(step->group);
    if (step->collective != ECH_COLLECTIVE_NONE) kind = ech_collective_name(step->collective);
    if (ech_step_gathers(step))
        snprintf(out, size, "%s over %s", kind, group);
    else
        snprintf(out, size, "%s", kind);
}

static void add_step(const builder *b, const ech_step *step)
{
    char name[sizeof(ech_step_profile_row){0}.name];
    print_step(step, name, sizeof name);
    int row =
        find_row(b->rows, name, step->lane == ECH_LANE_COMPUTE ? ECH_ROWS_COMPUTE : ECH_ROWS_BESIDE,
                 step->lane);
    b->rows->of_tick[step->tick] = row;
    add_work(b, row, ech_step_work(b->plan, b->list, step));
}

static const char *waited_name(const ech_step *step)
{
    return step->collective != ECH_COLLECTIVE_NONE ? "collectives" : ech_step_name(step->kind);
}

ech_step_profile_rows ech_step_profile_rows_of(const ech_plan *plan, ech_machine_rates rates)
{
    ech_step_profile_rows rows = {0};
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    builder b = {.plan = plan, .list = list, .rates = rates, .rows = &rows};
    rows.of_tick = ech_calloc((size_t)list->ticks + 1, sizeof *rows.of_tick);
    rows.between = find_row(&rows, "between steps", ECH_ROWS_COMPUTE, ECH_LANE_COMPUTE);
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
            rows.waits_for[step->kind] = waiting_row(&rows, waited_name(step));
    }
    for (int activity = ECH_ACTIVITY_STEPS + 1; activity < ECH_ACTIVITIES; activity++)
        rows.outside[activity] =
            find_row(&rows, activity_name[activity], ECH_ROWS_OUTSIDE, ECH_LANE_COMPUTE);
    rows.outside[ECH_ACTIVITY_STEPS] = rows.outside[ECH_ACTIVITY_OTHER];
    return rows;
}

void ech_step_profile_rows_free(ech_step_profile_rows *rows)
{
    free(rows->row.at);
    free(rows->of_tick);
    *rows = (ech_step_profile_rows){0};
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The measurement: every moment of a rank's compute lane goes to one row.
 */
#include "app/train/breakdown.h"

#include <stdlib.h>
#include <string.h>

struct ech_breakdown {
    const ech_plan *plan;
    ech_rates rates;
    ech_breakdown_rows rows;
    int64_t lists; /* measured */
    bool begun;    /* the first list is over */
    ech_errand errand;
    double began, since; /* of the measurement, and of the errand */
    double listed;       /* seconds of the measured lists, which are in the compute lane's rows */
};

ech_breakdown *ech_breakdown_create(const ech_plan *plan, ech_rates rates)
{
    ech_breakdown *breakdown = ech_calloc(1, sizeof *breakdown);
    breakdown->plan = plan;
    breakdown->rates = rates;
    breakdown->rows = ech_breakdown_rows_of(plan, rates);
    return breakdown;
}

void ech_breakdown_destroy(ech_breakdown *breakdown)
{
    if (!breakdown) return;
    ech_breakdown_rows_free(&breakdown->rows);
    free(breakdown);
}

static void add(ech_breakdown *b, int row, double seconds)
{
    b->rows.row.at[row].seconds += seconds;
}

/* What was spent on the errand so far; of training, lists are counted elsewhere. */
static void settle(ech_breakdown *b, double now)
{
    add(b, b->rows.outside[b->errand], now - b->since);
    b->since = now;
}

void ech_breakdown_turn_to(ech_breakdown *breakdown, ech_errand errand, double now)
{
    if (!breakdown) return;
    if (breakdown->begun) settle(breakdown, now);
    breakdown->errand = errand;
}

/* The compute lane did nothing from `last` on until `now`: it waited for the one of these steps that ended
 * last, if one of them ended meanwhile. */
static void add_gap(ech_breakdown *b, const ech_breakdown_times *t, const int *steps, int n,
                    double last, double now)
{
    const ech_list *list = &b->plan->list[ECH_LIST_TRAIN];
    double latest = last;
    int row = b->rows.between;
    for (int i = 0; i < n; i++) {
        const ech_step *step = &list->step.at[steps[i]];
        if (step->lane == ECH_LANE_COMPUTE || t->ends[steps[i]] <= latest) continue;
        latest = t->ends[steps[i]];
        row = b->rows.waits_for[step->kind];
    }
    add(b, row, now - last);
}

/* A step of the compute lane: its calls one by one, and of LOAD the wait for the batch. */
static void add_step(ech_breakdown *b, const ech_breakdown_times *t, size_t s)
{
    const ech_step *step = &b->plan->list[ECH_LIST_TRAIN].step.at[s];
    double since = t->begins[s];
    if (step->kind == ECH_STEP_LOAD) {
        add(b, b->rows.data, t->marks[step->tick] - since);
        since = t->marks[step->tick];
    }
    if (ech_step_kind_phase(step->kind) < 0) {
        add(b, b->rows.of_tick[step->tick], t->ends[s] - since);
        return;
    }
    for (int i = 0; i < step->calls; i++) {
        add(b, b->rows.of_tick[step->tick + i], t->marks[step->tick + i] - since);
        since = t->marks[step->tick + i];
    }
    add(b, b->rows.between, t->ends[s] - since);
}

/* Behind its last step the compute lane waits for all lanes. */
static void add_end(ech_breakdown *b, const ech_breakdown_times *t, double last)
{
    const ech_list *list = &b->plan->list[ECH_LIST_TRAIN];
    int latest = -1;
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].lane != ECH_LANE_COMPUTE &&
            (latest < 0 || t->ends[s] > t->ends[latest]))
            latest = (int)s;
    add_gap(b, t, &latest, latest >= 0, last, t->ended);
}

static void add_list(ech_breakdown *b, const ech_breakdown_times *t)
{
    const ech_list *list = &b->plan->list[ECH_LIST_TRAIN];
    double last = t->began;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->lane != ECH_LANE_COMPUTE) {
            add(b, b->rows.of_tick[step->tick], t->ends[s] - t->begins[s]);
            continue;
        }
        add_gap(b, t, &list->after.at[step->first_after], step->afters, last, t->begins[s]);
        add_step(b, t, s);
        last = t->ends[s];
    }
    add_end(b, t, last);
    b->listed += t->ended - t->began;
    b->lists++;
}

void ech_breakdown_take(ech_breakdown *breakdown, const ech_breakdown_times *times, double now)
{
    if (!breakdown) return;
    if (breakdown->begun) {
        add_list(breakdown, times);
        return;
    }
    breakdown->begun = true;
    breakdown->began = breakdown->since = now;
}

ech_breakdown_table ech_breakdown_end(ech_breakdown *breakdown, double now)
{
    ech_breakdown_table table = {0};
    if (!breakdown) return table;
    const ech_plan *plan = breakdown->plan;
    ech_breakdown_turn_to(breakdown, ECH_ERRAND_OTHER, now);
    table = (ech_breakdown_table){.rank = plan->rank,
                                  .threads = plan->threads,
                                  .steps = breakdown->lists * plan->list[ECH_LIST_TRAIN].turns,
                                  .seconds = breakdown->begun ? now - breakdown->began : 0,
                                  .rates = breakdown->rates};
    for (size_t i = 0; i < breakdown->rows.row.n; i++) {
        ech_breakdown_row row = breakdown->rows.row.at[i];
        double lists = (double)breakdown->lists;
        row.calls *= lists;
        row.flops *= lists;
        row.bytes *= lists;
        row.bound *= lists;
        if ((int)i == breakdown->rows.outside[ECH_ERRAND_OTHER]) row.seconds -= breakdown->listed;
        ECH_PUSH(table.row, row);
    }
    return table;
}

void ech_breakdown_table_free(ech_breakdown_table *table)
{
    free(table->row.at);
    *table = (ech_breakdown_table){0};
}

/* Rank by rank, so that none needs memory for all but the one that prints. */
ech_status ech_breakdown_gather(ech_group *world, const ech_breakdown_table *mine,
                                ech_breakdown_table *all)
{
    for (int r = 0; r < ech_group_size(world); r++) {
        bool own = r == ech_group_index(world);
        ech_breakdown_table table = own ? *mine : (ech_breakdown_table){0};
        ECH_TRY(ech_group_broadcast(world, r, &table, sizeof table));
        size_t n = table.row.n;
        ech_breakdown_row *rows = ech_calloc(n + 1, sizeof *rows);
        if (own && n) memcpy(rows, mine->row.at, n * sizeof *rows);
        table.row.at = rows;
        table.row.capacity = n + 1;
        ech_status status = ech_group_broadcast(world, r, rows, n * sizeof *rows);
        if (status == ECH_OK && ech_group_index(world) == 0)
            all[r] = table;
        else
            free(rows);
        ECH_TRY(status);
    }
    return ECH_OK;
}

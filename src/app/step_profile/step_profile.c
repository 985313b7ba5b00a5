/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring: every moment of a rank's compute lane is added to one row.
 */
#include "app/step_profile/step_profile.h"

#include <stdlib.h>
#include <string.h>

struct ech_step_profile {
    const ech_plan *plan;
    ech_machine_rates rates;
    ech_step_profile_rows rows;
    int64_t lists; /* measured */
    bool begun;    /* the first list is over */
    ech_activity activity;
    double began, since; /* of the measurement, and of the activity */
    double listed;       /* seconds of the measured lists, which are in the compute lane's rows */
};

ech_step_profile *ech_step_profile_create(const ech_plan *plan, ech_machine_rates rates)
{
    ech_step_profile *profile = ech_calloc(1, sizeof *profile);
    profile->plan = plan;
    profile->rates = rates;
    profile->rows = ech_step_profile_rows_of(plan, rates);
    return profile;
}

void ech_step_profile_destroy(ech_step_profile *profile)
{
    if (!profile) return;
    ech_step_profile_rows_free(&profile->rows);
    free(profile);
}

static void add(ech_step_profile *p, int row, double seconds)
{
    p->rows.row.at[row].seconds += seconds;
}

/* The time of lists counts as the activity's here; ech_step_profile_end takes it off. */
void ech_step_profile_switch_to(ech_step_profile *profile, ech_activity activity, double now)
{
    if (!profile) return;
    if (profile->begun)
        add(profile, profile->rows.outside[profile->activity], now - profile->since);
    profile->since = now;
    profile->activity = activity;
}

/* The compute lane was idle from `last` to `now`: it waited for the one of these steps that ended
 * last, if one ended in that time. */
static void add_gap(ech_step_profile *p, const ech_exec_times *t, const int *steps, int n,
                    double last, double now)
{
    const ech_list *list = &p->plan->list[ECH_LIST_TRAIN];
    double latest = last;
    int row = p->rows.between;
    for (int i = 0; i < n; i++) {
        const ech_step *step = &list->step.at[steps[i]];
        if (step->lane == ECH_LANE_COMPUTE || t->ends[steps[i]] <= latest) continue;
        latest = t->ends[steps[i]];
        row = p->rows.waits_for[step->kind];
    }
    add(p, row, now - last);
}

/* A step of the compute lane: each of its calls, and for COUNT the wait for the batch as a row of
 * its own. */
static void add_step(ech_step_profile *p, const ech_exec_times *t, size_t s)
{
    const ech_step *step = &p->plan->list[ECH_LIST_TRAIN].step.at[s];
    double since = t->begins[s];
    if (step->kind == ECH_STEP_COUNT) {
        add(p, p->rows.data, t->marks[step->tick] - since);
        since = t->marks[step->tick];
    }
    if (ech_step_kind_phase(step->kind) < 0) {
        add(p, p->rows.of_tick[step->tick], t->ends[s] - since);
        return;
    }
    for (int i = 0; i < step->calls; i++) {
        add(p, p->rows.of_tick[step->tick + i], t->marks[step->tick + i] - since);
        since = t->marks[step->tick + i];
    }
    add(p, p->rows.between, t->ends[s] - since);
}

static void add_list(ech_step_profile *p, const ech_exec_times *t)
{
    const ech_list *list = &p->plan->list[ECH_LIST_TRAIN];
    double last = t->began;
    int latest = -1; /* step of another lane */
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->lane != ECH_LANE_COMPUTE) {
            if (latest < 0 || t->ends[s] > t->ends[latest]) latest = (int)s;
            add(p, p->rows.of_tick[step->tick], t->ends[s] - t->begins[s]);
            continue;
        }
        add_gap(p, t, &list->after.at[step->first_after], step->afters, last, t->begins[s]);
        add_step(p, t, s);
        last = t->ends[s];
    }
    /* After its last step the compute lane waits for all lanes. */
    add_gap(p, t, &latest, latest >= 0, last, t->ended);
    p->listed += t->ended - t->began;
    p->lists++;
}

void ech_step_profile_take(ech_step_profile *profile, const ech_exec_times *times, double now)
{
    if (!profile) return;
    if (profile->begun) {
        add_list(profile, times);
        return;
    }
    profile->begun = true;
    profile->began = profile->since = now;
}

ech_step_profile_table ech_step_profile_end(ech_step_profile *profile, double now)
{
    const ech_plan *plan = profile->plan;
    ech_step_profile_switch_to(profile, ECH_ACTIVITY_OTHER, now);
    ech_step_profile_table table = {.rank = plan->rank,
                                    .threads = plan->threads,
                                    .steps = profile->lists * plan->schedule->turns,
                                    .seconds = profile->begun ? now - profile->began : 0,
                                    .rates = profile->rates};
    /* A worker's list has turns for all pushes that it may have; on the average it has one a
     * training step. A server has all. */
    bool serves = ech_layout_serves(plan->layout, plan->rank);
    double share = serves ? 1 : (double)plan->schedule->turns / ech_plan_turns(plan);
    for (size_t i = 0; i < profile->rows.row.n; i++) {
        ech_step_profile_row row = profile->rows.row.at[i];
        double lists = (double)profile->lists * share;
        row.calls *= lists;
        row.flops *= lists;
        row.bytes *= lists;
        row.bound *= lists;
        if ((int)i == profile->rows.outside[ECH_ACTIVITY_OTHER]) row.seconds -= profile->listed;
        ECH_PUSH(table.row, row);
    }
    return table;
}

void ech_step_profile_table_free(ech_step_profile_table *table)
{
    free(table->row.at);
    *table = (ech_step_profile_table){0};
}

/* Rank by rank, so that none needs memory for all but the one that prints. */
ech_status ech_step_profile_gather(ech_group *world, const ech_step_profile_table *mine,
                                   ech_step_profile_table *all)
{
    for (int r = 0; r < ech_group_size(world); r++) {
        bool own = r == ech_group_index(world);
        ech_step_profile_table table = own ? *mine : (ech_step_profile_table){0};
        ECH_TRY(ech_group_broadcast(world, r, &table, sizeof table));
        size_t n = table.row.n;
        ech_step_profile_row *rows = ech_calloc(n + 1, sizeof *rows);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator: a rehearsal, and the times and bubble that result from it.
 */
#include "simulate/simulate.h"

#include <stdlib.h>

#include "simulate/rehearsal.h"

static bool is_work(const ech_step *step)
{
    return ech_step_kind_phase(step->kind) >= 0;
}

static void add_busy(const ech_list *list, int rank, ech_simulation *simulation)
{
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        double time = simulation->finish[rank][s] - simulation->begin[rank][s];
        if (is_work(step))
            simulation->busy[rank] += time;
        else if (step->lane == ECH_LANE_COMPUTE && !ech_step_gathers(step))
            simulation->updates[rank] += time;
    }
}

/* The last of the n steps `among` to end; among NULL: of all steps. -1: there is none. */
static int last_to_end(const double *finish, const int *among, int n)
{
    int last = -1;
    for (int i = 0; i < n; i++) {
        int step = among ? among[i] : i;
        if (last < 0 || finish[step] > finish[last]) last = step;
    }
    return last;
}

/* Adds the time from `from` to the end of the step `awaited` to the lanes that it is due to: the
 * step's own since it began, and before that the lane of what the step itself waited for. */
static void add_wait(const ech_list *list, int rank, int awaited, double from,
                     ech_simulation *simulation)
{
    const double *begin = simulation->begin[rank], *finish = simulation->finish[rank];
    double until = finish[awaited];
    while (until > from) {
        const ech_step *step = &list->step.at[awaited];
        int before = last_to_end(finish, list->after.at + step->first_after, step->afters);
        bool waited = before >= 0 && begin[awaited] > from && finish[before] > from;
        double since = waited ? begin[awaited] : from;
        simulation->waits[rank][step->lane] += until - since;
        until = since;
        awaited = before;
    }
}

static void add_waits(const ech_list *list, int rank, ech_simulation *simulation)
{
    const double *begin = simulation->begin[rank], *finish = simulation->finish[rank];
    double idle = 0; /* since when */
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->lane != ECH_LANE_COMPUTE) continue;
        if (begin[s] > idle) {
            int awaited = last_to_end(finish, list->after.at + step->first_after, step->afters);
            add_wait(list, rank, awaited, idle, simulation);
        }
        idle = finish[s];
    }
    int last = last_to_end(finish, NULL, (int)list->step.n);
    if (last >= 0 && finish[last] > idle) add_wait(list, rank, last, idle, simulation);
}

/* The compute lane runs its steps one by one, so the list's order is the order in time. last[i]:
 * the last step of a chunk's micro-batch, a backward if it has one. */
static int count_in_flight(const ech_plan *plan, const ech_list *list)
{
    size_t items = (size_t)plan->layout->chunks * (size_t)list->micro_batches;
    ECH_FREED int *last = ech_calloc(items, sizeof *last);
    ECH_FREED bool *begun = ech_calloc(items, sizeof *begun);
    int live = 0, most = 0;
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (is_work(step)) last[step->chunk * list->micro_batches + step->micro] = s;
    }
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (!is_work(step)) continue;
        int item = step->chunk * list->micro_batches + step->micro;
        live += !begun[item];
        begun[item] = true;
        if (live > most) most = live;
        live -= last[item] == s;
    }
    return most;
}

static ech_status check_costs(const ech_plan *plan, const ech_costs *costs)
{
    if (!costs->profile || costs->profile->blocks == (int)plan->model->block.n) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "the profile has %d blocks and the model %zu; run `echelon profile` on this run file",
             costs->profile->blocks, plan->model->block.n);
}

static ech_status simulate(const ech_plan *const *plans, int n, ech_list_kind list,
                           const ech_costs *costs, unsigned how, ech_simulation *out)
{
    ECH_CLEANUP(ech_rehearsal_free) ech_rehearsal rehearsal = {0};
    ECH_TRY(check_costs(plans[0], costs));
    ech_rehearse(plans, n, list, costs, how, &rehearsal);
    if (rehearsal.missing) return ech_rehearsal_fail(&rehearsal);
    ech_simulation s = {.plans = n,
                        .seconds = costs->seconds,
                        .end = rehearsal.end,
                        .steady = rehearsal.steady,
                        .pool = rehearsal.pool,
                        .busy = ech_pool_alloc(rehearsal.pool, (size_t)n * sizeof *s.busy),
                        .waits = ech_pool_alloc(rehearsal.pool, (size_t)n * sizeof *s.waits),
                        .in_flight =
                            ech_pool_alloc(rehearsal.pool, (size_t)n * sizeof *s.in_flight),
                        .products = rehearsal.products,
                        .updates = ech_pool_alloc(rehearsal.pool, (size_t)n * sizeof *s.updates),
                        .begin = rehearsal.begin,
                        .finish = rehearsal.finish,
                        .link = rehearsal.pairing.link};
    rehearsal = (ech_rehearsal){0}; /* the simulation owns its arrays now */
    const ech_layout *layout = plans[0]->layout;
    double busy = 0;
    for (int i = 0; i < n; i++) {
        add_busy(&plans[i]->list[list], i, &s);
        add_waits(&plans[i]->list[list], i, &s);
        s.in_flight[i] = count_in_flight(plans[i], &plans[i]->list[list]);
    }
    for (int rank = 0; rank < layout->world; rank++)
        busy += s.busy[ech_layout_plan_of(layout, n, rank)];
    s.bubble = s.end > 0 ? 1 - busy / (layout->world * s.end) : 0;
    *out = s;
    return ECH_OK;
}

ech_status ech_simulate(const ech_plan *const *plans, int n, ech_list_kind list,
                        const ech_costs *costs, ech_simulation *out)
{
    return simulate(plans, n, list, costs, 0, out);
}

ech_status ech_simulate_whole(const ech_plan *const *plans, int n, ech_list_kind list,
                              const ech_costs *costs, ech_simulation *out)
{
    return simulate(plans, n, list, costs, ECH_REHEARSE_WHOLE, out);
}

void ech_simulation_free(ech_simulation *simulation)
{
    ech_pool_destroy(simulation->pool);
    free(simulation->link.at);
    *simulation = (ech_simulation){0};
}

/* ---- the picture ---- */

void ech_simulation_timeline(const ech_simulation *simulation, const ech_plan *const *plans,
                             ech_list_kind list, ech_timeline *out)
{
    ech_timeline timeline = {.ranks = plans[0]->layout->world,
                             .layout = plans[0]->layout,
                             .by_class = simulation->plans < plans[0]->layout->world,
                             .chunks = plans[0]->layout->chunks,
                             .sequence_chunks = plans[0]->list[list].numbering.sequence_chunks,
                             .end = simulation->end,
                             .seconds = simulation->seconds,
                             .bubble = simulation->bubble};
    for (int i = 0; i < simulation->plans; i++)
        ech_timeline_add_list(&timeline, plans[i]->rank, &plans[i]->list[list],
                              simulation->begin[i], simulation->finish[i]);
    *out = timeline;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers and servers in a rehearsal: their communication in a lane, and the choice of the next
 * push.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "simulate/engine.h"

/* Sets workers[] to the workers of a server's step, and returns their number; -1: its turn has no
 * worker yet. */
static int workers_of(const ech_engine *e, int server, const ech_step *step, int *workers)
{
    const ech_served *served = e->rank[server].served;
    if (e->rank[server].bound[step->turn] < 0) return -1; /* of an invalid list */
    if (step->kind == ECH_STEP_GATHER_WEIGHTS)
        return ech_served_answered(served, step->turn, workers);
    workers[0] = served[step->turn].worker;
    return 1;
}

static bool is_for(const ech_engine *e, int server, const ech_step *step, int worker)
{
    ECH_FREED int *workers = ech_calloc((size_t)e->out->ranks, sizeof *workers);
    int n = workers_of(e, server, step, workers);
    while (n > 0 && workers[n - 1] != worker) n--;
    return n > 0;
}

/* The server's part begins when both are there. */
static void try_to_meet(ech_engine *e, int worker, int server, ech_lane lane)
{
    pushing *own = &e->rank[worker].push[lane], *theirs = &e->rank[server].push[lane];
    const ech_layout *layout = e->out->plans[worker]->layout;
    int number = server - ech_layout_workers(layout);
    if (own->step < 0 || own->met[number] || theirs->step < 0) return;
    const ech_step *step = ech_engine_step(e, server, theirs->step),
                   *at = ech_engine_step(e, worker, own->step);
    /* A worker may be a bucket ahead of other workers of the server's step. */
    if (at->kind != step->kind || at->index != step->index) return;
    if (!is_for(e, server, step, worker)) return;
    ech_participants among = {1 + ech_layout_roles(layout).serve.n, worker, layout->world - 1};
    double cost = ech_costs_of_step(e->costs, e->out->plans[server], step, among);
    own->met[number] = true;
    theirs->until = fmax(e->now, theirs->until) + ech_costs_round(cost);
    ech_engine_push(e, (event){theirs->until, server, theirs->step, worker});
}

static void begin_server(ech_engine *e, int server, int step)
{
    const ech_step *s = ech_engine_step(e, server, step);
    ECH_FREED int *workers = ech_calloc((size_t)e->out->ranks, sizeof *workers);
    int n = workers_of(e, server, s, workers);
    e->rank[server].push[s->lane].left = n;
    for (int i = 0; i < n; i++) try_to_meet(e, workers[i], server, s->lane);
    if (n == 0) ech_engine_end_in(e, 0, server, step);
}

void ech_engine_begin_pushed(ech_engine *e, int rank, int step)
{
    const ech_layout *layout = e->out->plans[rank]->layout;
    const ech_step *s = ech_engine_step(e, rank, step);
    pushing *own = &e->rank[rank].push[s->lane];
    own->step = step;
    if (ech_layout_serves(layout, rank)) {
        begin_server(e, rank, step);
        return;
    }
    const ech_ranks servers = ech_layout_roles(layout).serve;
    own->left = servers.n;
    memset(own->met, 0, (size_t)servers.n * sizeof *own->met);
    for (int i = 0; i < servers.n; i++) try_to_meet(e, rank, servers.first + i, s->lane);
}

/* Ends one part of the rank's step; true if it was the last. */
static bool end_part(ech_engine *e, int rank, ech_lane lane)
{
    pushing *of = &e->rank[rank].push[lane];
    if (--of->left > 0) return false;
    of->step = -1;
    return true;
}

/* Ends communication between a server and a worker; worker -1: the server sends to none. */
void ech_engine_finish_pushed(ech_engine *e, const event *ended)
{
    int server = ended->rank, worker = ended->worker;
    ech_lane lane = ech_engine_step(e, server, ended->step)->lane;
    int theirs = worker < 0 ? -1 : e->rank[worker].push[lane].step;
    bool last = end_part(e, server, lane);
    bool workers_last = worker >= 0 && end_part(e, worker, lane);
    if (last) ech_engine_finish(e, server, ended->step);
    if (workers_last) ech_engine_finish(e, worker, theirs);
}

/* The worker whose push the first server serves next, of those that have arrived; -1: none. A bound
 * list prescribes it. */
static int next_push(const ech_engine *e, int first)
{
    const rank_state *state = &e->rank[first];
    const ech_list *list = ech_rehearsal_list(e->out, first);
    if (state->serves < 0 || state->taken == list->turns) return -1;
    if (!list->bound) return ech_serving_next(&state->serving);
    int worker = list->bound[state->taken].worker;
    return state->serving.came[worker] ? worker : -1;
}

/* Another server follows the first server's choice, once that is made. */
static void try_to_follow(ech_engine *e, int first, int server)
{
    rank_state *state = &e->rank[server];
    if (state->serves < 0) return;
    const ech_step *step = ech_engine_step(e, server, state->serves);
    if (step->turn >= e->rank[first].taken) return;
    state->bound[step->turn] = e->rank[first].bound[step->turn];
    state->served[step->turn] = e->rank[first].served[step->turn];
    ech_engine_end_in(e, ech_engine_cost_alone(e, server, step), server, state->serves);
    state->serves = -1;
}

/* True for a step of a turn for which the worker has no push. */
bool ech_engine_is_idle(const ech_engine *e, int rank, int step)
{
    const rank_state *state = &e->rank[rank];
    return step < state->tally && ech_engine_step(e, rank, step)->turn > state->last;
}

/* The first server serves the first of the arrived pushes that it may. */
static void try_to_serve(ech_engine *e, int first)
{
    rank_state *state = &e->rank[first];
    int worker = next_push(e, first);
    if (worker < 0) return;
    int step = state->serves;
    state->bound[state->taken] = worker;
    state->served[state->taken++] = ech_serving_take(&state->serving, worker);
    state->serves = -1;
    e->rank[worker].counts_from = state->served[state->taken - 1].next;
    if (!state->served[state->taken - 1].more)
        e->rank[worker].last = ech_engine_step(e, worker, e->rank[worker].announces)->turn;
    ech_engine_end_in(e, ech_engine_cost_alone(e, first, ech_engine_step(e, first, step)), first,
                      step);
    ech_engine_finish(e, worker, e->rank[worker].announces);
    for (int server = first + 1; server < e->out->ranks; server++) try_to_follow(e, first, server);
}

void ech_engine_serve(ech_engine *e, int server, int step)
{
    int first = ech_layout_workers(e->out->plans[server]->layout);
    e->rank[server].serves = step;
    if (server == first)
        try_to_serve(e, server);
    else
        try_to_follow(e, first, server);
}

/* It ends once the push is served. */
void ech_engine_announce(ech_engine *e, int worker, int step)
{
    int first = ech_layout_workers(e->out->plans[worker]->layout);
    e->rank[worker].announces = step;
    ech_serving_come(&e->rank[first].serving, worker);
    try_to_serve(e, first);
}

void ech_engine_begin_serving(ech_engine *e, int rank)
{
    const ech_plan *plan = e->out->plans[rank];
    rank_state *state = &e->rank[rank];
    size_t turns = (size_t)ech_rehearsal_list(e->out, rank)->turns;
    state->serves = -1;
    size_t servers = (size_t)ech_layout_roles(plan->layout).serve.n;
    for (int lane = 0; lane < ECH_LANES; lane++)
        state->push[lane] =
            (pushing){.step = -1, .met = ech_pool_alloc(e->out->pool, servers * sizeof(bool) + 1)};
    const ech_list *list = ech_rehearsal_list(e->out, rank);
    state->last = INT_MAX;
    for (int s = 0; s < (int)list->step.n; s++)
        if (list->step.at[s].kind == ECH_STEP_TALLY) state->tally = s;
    if (!state->tally || !ech_layout_serves(plan->layout, rank)) return;
    state->bound = e->out->served[rank] =
        ech_pool_alloc(e->out->pool, turns * sizeof *state->bound);
    for (size_t turn = 0; turn < turns; turn++) state->bound[turn] = -1;
    state->served = ech_pool_alloc(e->out->pool, turns * sizeof *state->served);
    state->serving = ech_serving_begin(plan->schedule, plan->layout, e->out->pool);
}

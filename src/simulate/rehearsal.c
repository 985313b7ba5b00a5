/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine of rehearsals: a heap of steps that will end, and for every rank a cursor in each
 * lane, or queue. When a step ends, only its own rank's cursors are advanced, and each checks only
 * its next step. Once the state repeats, whole periods are skipped (periods.c).
 */
#include "simulate/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the heap ---- */

/* Ties are broken by rank, then step, so that results do not depend on the heap. */
bool ech_engine_is_before(const event *x, const event *y)
{
    if (x->time < y->time || x->time > y->time) return x->time < y->time;
    if (x->rank != y->rank) return x->rank < y->rank;
    if (x->step != y->step) return x->step < y->step;
    return x->worker < y->worker;
}

void ech_engine_push(ech_engine *e, event new)
{
    ECH_PUSH(e->heap, new);
    size_t i = e->heap.n - 1;
    for (; i > 0 && ech_engine_is_before(&new, &e->heap.at[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap.at[i] = e->heap.at[(i - 1) / 2];
    e->heap.at[i] = new;
}

static event pop(ech_engine *e)
{
    event first = e->heap.at[0], moved = e->heap.at[--e->heap.n];
    size_t i = 0, n = e->heap.n;
    for (size_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && ech_engine_is_before(&e->heap.at[child + 1], &e->heap.at[child]))
            child++;
        if (!ech_engine_is_before(&e->heap.at[child], &moved)) break;
        e->heap.at[i] = e->heap.at[child];
        i = child;
    }
    if (n) e->heap.at[i] = moved;
    return first;
}

/* ---- lanes ---- */

const ech_step *ech_engine_step(const ech_engine *e, int rank, int step)
{
    return &ech_rehearsal_list(e->out, rank)->step.at[step];
}

void ech_engine_end_in(ech_engine *e, double cost, int rank, int step)
{
    double time = e->now + ech_costs_round(cost);
    ech_engine_push(e, (event){.time = time, .rank = rank, .step = step, .worker = -1});
}

static cursor *cursor_of(const ech_engine *e, int rank, const ech_step *step)
{
    const rank_state *state = &e->rank[rank];
    return &state->cursor[state->cursor_of[ech_rehearsal_queue(e->out, step)]];
}

static void begin_message(ech_engine *e, int rank, int step)
{
    const ech_step *s = ech_engine_step(e, rank, step);
    int partner = e->out->pairing.partner[rank][step], peer = ech_rehearsal_peer(e->out, rank, s);
    if (partner < 0 || e->out->begin[peer][partner] < 0) return;
    int from = rank, to = peer, send = step;
    if (ech_step_receives(s)) {
        from = peer;
        to = rank;
        send = partner;
    }
    s = ech_engine_step(e, from, send);
    ech_participants ends = {2, e->out->plans[from]->rank,
                             ech_list_peer(ech_rehearsal_list(e->out, from), s)};
    double cost = ech_costs_round(ech_costs_of_step(e->costs, e->out->plans[from], s, ends));
    double *sends_until = &e->rank[from].sends_until, *receives_until = &e->rank[to].receives_until;
    double starts = fmax(e->now, fmax(*sends_until, *receives_until));
    *sends_until = *receives_until = starts + cost;
    ech_engine_push(e, (event){.time = starts + cost, .rank = from, .step = send});
}

/* Makes the channel of the group that is in e->members: n ranks. */
static channel make_channel(ech_engine *e, const ech_layout *layout, int which, int n)
{
    channel c = {.last = -1, .among = {.members = n}};
    int id = (int)e->channel.n + 1;
    if (n) c.among = (ech_participants){n, e->members[0], e->members[n - 1]};
    for (int i = 0; i < n; i++) {
        rank_state *member = &e->rank[ech_layout_plan_of(layout, e->out->ranks, e->members[i])];
        c.parties += member->channel_of[which] != id;
        member->channel_of[which] = id;
    }
    return c;
}

/* The rank's channel for a step, made on first use; NULL: the rank is in no such group. */
static channel *find_channel(ech_engine *e, int rank, const ech_step *step)
{
    int which = ech_step_channel(step), *slot = &e->rank[rank].channel_of[which];
    if (!*slot) {
        const ech_plan *plan = e->out->plans[rank];
        int n = ech_layout_members(plan->layout, plan->model, plan->rank, step->group, e->members);
        channel new = make_channel(e, plan->layout, which, n);
        ECH_PUSH(e->channel, new);
        *slot = (int)e->channel.n;
    }
    channel *c = &e->channel.at[*slot - 1];
    return c->among.members ? c : NULL;
}

static void begin_collective(ech_engine *e, int rank, int step)
{
    const ech_step *s = ech_engine_step(e, rank, step);
    channel *c = find_channel(e, rank, s);
    if (!c) return;
    e->rank[rank].arrived_before[s->lane] = c->last;
    c->last = rank;
    c->cost = fmax(c->cost, ech_costs_of_step(e->costs, e->out->plans[rank], s, c->among));
    if (++c->arrived < c->parties) return;
    ech_engine_end_in(e, c->cost, rank, step);
    c->arrived = 0;
    c->last = -1;
    c->cost = 0;
}

/* The cost of a step that its rank runs alone. */
double ech_engine_cost_alone(ech_engine *e, int rank, const ech_step *step)
{
    const ech_plan *plan = e->out->plans[rank];
    ech_participants alone = {1, rank, rank};
    if (ech_step_kind_phase(step->kind) < 0) return ech_costs_of_step(e->costs, plan, step, alone);
    known_cost **known = &e->known[step->block][step->phase];
    size_t calls = plan->model->block.at[step->block]->program[step->phase].n;
    ECH_ASSERT((size_t)step->first_call < calls);
    if (!*known) *known = ech_pool_alloc(e->out->pool, calls * sizeof **known);
    known_cost *of = &(*known)[step->first_call];
    if (of->calls != step->calls)
        *of = (known_cost){step->calls, ech_costs_of_step(e->costs, plan, step, alone),
                           ech_costs_round(ech_costs_of_products(e->costs, plan, step))};
    e->out->products[rank] += of->products;
    return of->cost;
}

/* The cost of the rank's own work in a list of pushes: a server updates at the last push of a sum,
 * and a worker does not compute pushes that will be dropped. */
static double cost_in_turn(ech_engine *e, int rank, const ech_step *step)
{
    const ech_layout *layout = e->out->plans[rank]->layout;
    const rank_state *state = &e->rank[rank];
    double cost = ech_engine_cost_alone(e, rank, step);
    if (state->served) { /* a server's */
        bool updates = step->kind == ECH_STEP_NORM || step->kind == ECH_STEP_UPDATE;
        return updates && !state->served[step->turn].updates ? 0 : cost;
    }
    if (step->turn >= state->counts_from) return cost;
    if (step->kind == ECH_STEP_COUNT) return cost - ech_layout_delay(layout, rank);
    return ech_step_kind_phase(step->kind) < 0 ? cost : 0;
}

static void begin(ech_engine *e, int rank, int step)
{
    const ech_step *s = ech_engine_step(e, rank, step);
    e->out->begin[rank][step] = e->now;
    if (step >= e->rank[rank].begun) e->rank[rank].begun = step + 1;
    bool is_message = ech_rehearsal_is_link(s->lane);
    if (!is_message || e->out->in_queues) cursor_of(e, rank, s)->running = step;
    if (is_message)
        begin_message(e, rank, step);
    else if (ech_engine_is_idle(e, rank, step))
        ech_engine_end_in(e, 0, rank, step);
    else if (s->group == ECH_GROUP_PUSHED)
        ech_engine_begin_pushed(e, rank, step);
    else if (ech_step_gathers(s))
        begin_collective(e, rank, step);
    else if (s->kind == ECH_STEP_SERVE)
        ech_engine_serve(e, rank, step);
    else
        ech_engine_end_in(e, cost_in_turn(e, rank, s), rank, step);
}

static bool is_ready(const ech_engine *e, int rank, cursor *at)
{
    const ech_list *list = ech_rehearsal_list(e->out, rank);
    const ech_step *s = &list->step.at[at->next];
    for (; at->ready < s->afters; at->ready++)
        if (e->out->finish[rank][list->after.at[s->first_after + at->ready]] < 0) return false;
    return true;
}

static void advance(ech_engine *e, int rank)
{
    int steps = (int)ech_rehearsal_list(e->out, rank)->step.n;
    for (int i = 0; i < e->rank[rank].cursors; i++) {
        cursor *at = &e->rank[rank].cursor[i];
        while (at->running < 0 && at->next < steps && is_ready(e, rank, at)) {
            int step = at->next;
            at->next = e->rank[rank].next[step];
            at->ready = 0;
            begin(e, rank, step);
        }
    }
}

/* ---- ends ---- */

void ech_engine_finish(ech_engine *e, int rank, int step)
{
    e->out->finish[rank][step] = e->now;
    e->out->missing--;
    cursor_of(e, rank, ech_engine_step(e, rank, step))->running = -1;
    advance(e, rank);
}

/* rank: the member that arrived last. A member that has ended may immediately arrive at its next
 * collective. */
static void finish_collective(ech_engine *e, int rank, const ech_step *step)
{
    for (int member = rank; member >= 0;) {
        int before = e->rank[member].arrived_before[step->lane];
        ech_engine_finish(e, member, cursor_of(e, member, step)->running);
        member = before;
    }
}

static void handle(ech_engine *e, const event *ended)
{
    const ech_step *s = ech_engine_step(e, ended->rank, ended->step);
    e->now = e->out->end = ended->time;
    if (ech_engine_is_idle(e, ended->rank, ended->step)) {
        ech_engine_finish(e, ended->rank, ended->step);
        return;
    }
    if (s->group == ECH_GROUP_PUSHED) {
        ech_engine_finish_pushed(e, ended);
        return;
    }
    if (s->kind == ECH_STEP_ANNOUNCE) {
        ech_engine_announce(e, ended->rank, ended->step);
        return;
    }
    if (ech_step_gathers(s)) {
        finish_collective(e, ended->rank, s);
        return;
    }
    ech_engine_finish(e, ended->rank, ended->step);
    if (ech_step_sends(s))
        ech_engine_finish(e, ech_rehearsal_peer(e->out, ended->rank, s),
                          e->out->pairing.partner[ended->rank][ended->step]);
}

/* Sets the rank's cursors to the first step of each lane or queue. */
static void find_cursors(ech_engine *e, int rank)
{
    const ech_list *list = ech_rehearsal_list(e->out, rank);
    rank_state *state = &e->rank[rank];
    int steps = (int)list->step.n, queues = ECH_LANES;
    for (int s = 0; s < steps && e->out->in_queues; s++) {
        int queue = ech_step_queue(&list->step.at[s]);
        if (queue >= queues) queues = queue + 1;
    }
    ECH_FREED int *first = ech_calloc((size_t)queues, sizeof *first);
    for (int queue = 0; queue < queues; queue++) first[queue] = steps;
    state->next = ech_pool_alloc(e->out->pool, (size_t)steps * sizeof *state->next);
    for (int s = steps - 1; s >= 0; s--) {
        int queue = ech_rehearsal_queue(e->out, &list->step.at[s]);
        state->next[s] = first[queue];
        first[queue] = s;
    }
    state->cursor_of = ech_pool_alloc(e->out->pool, (size_t)queues * sizeof *state->cursor_of);
    state->cursor = ech_pool_alloc(e->out->pool, (size_t)queues * sizeof *state->cursor);
    for (int queue = 0; queue < queues; queue++) {
        if (first[queue] == steps) continue;
        state->cursor_of[queue] = state->cursors;
        state->cursor[state->cursors++] = (cursor){.next = first[queue], .running = -1};
    }
}

static void allocate(ech_engine *e)
{
    ech_rehearsal *out = e->out;
    const ech_layout *layout = out->plans[0]->layout;
    ECH_ASSERT(out->ranks == layout->world || out->ranks == layout->classes.n);
    size_t ranks = (size_t)out->ranks;
    out->pool = ech_pool_create();
    out->pairing = ech_pairing_create(out->plans, out->ranks, out->kind, out->pool);
    out->begin = ech_pool_alloc(out->pool, ranks * sizeof *out->begin);
    out->finish = ech_pool_alloc(out->pool, ranks * sizeof *out->finish);
    out->products = ech_pool_alloc(out->pool, ranks * sizeof *out->products);
    out->served = ech_pool_alloc(out->pool, ranks * sizeof *out->served);
    e->rank = ech_pool_alloc(out->pool, ranks * sizeof *e->rank);
    e->members = ech_pool_alloc(out->pool, (size_t)layout->world * sizeof *e->members);
    e->known = ech_pool_alloc(out->pool, out->plans[0]->model->block.n * sizeof *e->known);
    for (int rank = 0; rank < out->ranks; rank++) {
        size_t steps = ech_rehearsal_list(e->out, rank)->step.n;
        out->missing += (int64_t)steps;
        out->begin[rank] = ech_pool_alloc(out->pool, steps * sizeof **out->begin);
        out->finish[rank] = ech_pool_alloc(out->pool, steps * sizeof **out->finish);
        for (size_t s = 0; s < steps; s++) out->begin[rank][s] = out->finish[rank][s] = -1;
        find_cursors(e, rank);
        ech_engine_begin_serving(e, rank);
    }
}

void ech_rehearse(const ech_plan *const *plans, int n, ech_list_kind list, const ech_costs *costs,
                  unsigned how, ech_rehearsal *out)
{
    *out = (ech_rehearsal){
        .plans = plans, .ranks = n, .kind = list, .in_queues = how & ECH_REHEARSE_QUEUES};
    ech_engine e = {.out = out, .costs = costs};
    allocate(&e);
    if (!(how & ECH_REHEARSE_WHOLE)) ech_engine_find_periods(&e);
    for (int rank = 0; rank < n; rank++) advance(&e, rank);
    while (e.heap.n) {
        event ended = pop(&e);
        handle(&e, &ended);
        if (e.periods) ech_engine_try_period(&e);
    }
    ech_engine_free_periods(&e);
    free(e.channel.at);
    free(e.heap.at);
}

void ech_rehearsal_free(ech_rehearsal *rehearsal)
{
    ech_pool_destroy(rehearsal->pool);
    free(rehearsal->pairing.link.at);
    *rehearsal = (ech_rehearsal){0};
}

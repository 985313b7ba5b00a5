/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine of rehearsals: a heap of steps that will end, and for every rank a cursor in each lane, or queue.
 * When a step ends, only its own rank's cursors are advanced, and of each only the next step.
 */
#include "simulate/rehearsal.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/serving.h"

typedef struct event {
    double time;
    int rank, step; /* that ends: of a message the send, of a collective any member's */
    int worker;     /* with whom, of a server's part of what it does with several; -1: none */
} event;

typedef struct cursor {
    int next;    /* step, or the list's length */
    int ready;   /* afters of `next` that are known to have ended */
    int running; /* where steps go one by one: the one that has begun and not ended, or -1 */
} cursor;

typedef struct channel {
    ech_participants among;
    int arrived;
    int last; /* rank that arrived last; the others by arrived_before */
} channel;

/* What a worker and servers have for each other in a lane. A server goes on when it has its part. */
typedef struct pushing {
    int step;     /* that has begun; -1: none */
    int left;     /* of a worker: servers that have not ended their part; of a server: workers */
    bool *met;    /* [servers] of a worker: those that have begun it */
    double until; /* of a server: it sends to one worker after the other */
} pushing;

typedef struct rank_state {
    int *next;      /* [steps]: the next step of its lane or queue, or the list's length */
    int *cursor_of; /* [lane or queue]: which of `cursor` */
    cursor *cursor; /* of each lane or queue that the list uses, in their order */
    int cursors;
    double sends_until, receives_until;
    int channel_of[ECH_CHANNELS];  /* 1 + which of engine.channel; 0: not asked yet */
    int arrived_before[ECH_LANES]; /* in the lane's open collective; -1: nobody */
    pushing push[ECH_LANES];
    int tally;       /* the TALLY of the list, behind all turns; 0: it has none */
    int last;        /* of a worker: the last turn that it has */
    int counts_from; /* with backup workers: its pushes of turns before that will be dropped */
    int announces;   /* its ANNOUNCE that waits for an answer */
    /* Of a server: */
    int *bound;          /* ech_rehearsal.served */
    ech_served *served;  /* [turns] what becomes of these */
    ech_serving serving; /* who is served next */
    int serves;          /* the SERVE that waits for a push; -1: none does */
    int taken;           /* pushes that the first server has taken */
} rank_state;

/* What calls [c, c + calls) of a block's program cost: the same for every micro-batch and rank. calls 0: not known. */
typedef struct known_cost {
    int calls;
    double cost;
} known_cost;

typedef struct engine {
    ech_rehearsal *out;
    const ech_costs *costs;
    rank_state *rank;                 /* [ranks] */
    int *members;                     /* [ranks] */
    known_cost *(*known)[ECH_PHASES]; /* [blocks]: [c]; NULL until a step of that program is met */
    ECH_LIST(channel) channel;
    ECH_LIST(event) heap;
    double now;
} engine;

/* ---- the heap ---- */

/* Ties go by rank, then step, so that results do not depend on the heap. */
static bool is_before(const event *x, const event *y)
{
    if (x->time < y->time || x->time > y->time) return x->time < y->time;
    if (x->rank != y->rank) return x->rank < y->rank;
    if (x->step != y->step) return x->step < y->step;
    return x->worker < y->worker;
}

static void push(engine *e, event new)
{
    ECH_PUSH(e->heap, new);
    size_t i = e->heap.n - 1;
    for (; i > 0 && is_before(&new, &e->heap.at[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap.at[i] = e->heap.at[(i - 1) / 2];
    e->heap.at[i] = new;
}

static event pop(engine *e)
{
    event first = e->heap.at[0], moved = e->heap.at[--e->heap.n];
    size_t i = 0, n = e->heap.n;
    for (size_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && is_before(&e->heap.at[child + 1], &e->heap.at[child])) child++;
        if (!is_before(&e->heap.at[child], &moved)) break;
        e->heap.at[i] = e->heap.at[child];
        i = child;
    }
    if (n) e->heap.at[i] = moved;
    return first;
}

/* ---- lanes ---- */

static const ech_step *step_of(const engine *e, int rank, int step)
{
    return &ech_rehearsal_list(e->out, rank)->step.at[step];
}

static int peer_of(const engine *e, int rank, const ech_step *step)
{
    return ech_list_peer(ech_rehearsal_list(e->out, rank), step);
}

static void end_in(engine *e, double cost, int rank, int step)
{
    push(e, (event){.time = e->now + cost, .rank = rank, .step = step, .worker = -1});
}

static cursor *cursor_of(const engine *e, int rank, const ech_step *step)
{
    const rank_state *state = &e->rank[rank];
    return &state->cursor[state->cursor_of[ech_rehearsal_queue(e->out, step)]];
}

static void begin_message(engine *e, int rank, int step)
{
    const ech_step *s = step_of(e, rank, step);
    int partner = e->out->pairing.partner[rank][step], peer = peer_of(e, rank, s);
    if (partner < 0 || e->out->begin[peer][partner] < 0) return;
    int from = rank, to = peer, send = step;
    if (ech_step_receives(s)) {
        from = peer;
        to = rank;
        send = partner;
    }
    double cost = ech_costs_of_step(e->costs, e->out->plans[from], step_of(e, from, send),
                                    (ech_participants){2, from, to});
    double *sends_until = &e->rank[from].sends_until, *receives_until = &e->rank[to].receives_until;
    double starts = fmax(e->now, fmax(*sends_until, *receives_until));
    *sends_until = *receives_until = starts + cost;
    push(e, (event){.time = starts + cost, .rank = from, .step = send});
}

/* The rank's channel for a step, made when it is first asked for; NULL: the rank is in no such group. */
static channel *find_channel(engine *e, int rank, const ech_step *step)
{
    int which = ech_step_channel(step), *slot = &e->rank[rank].channel_of[which];
    if (!*slot) {
        const ech_plan *plan = e->out->plans[rank];
        int n = ech_layout_members(plan->layout, plan->model, rank, step->group, e->members);
        ech_participants among = {.members = n};
        if (n) among = (ech_participants){n, e->members[0], e->members[n - 1]};
        ECH_PUSH(e->channel, (channel){.among = among, .last = -1});
        *slot = (int)e->channel.n;
        for (int i = 0; i < n; i++) e->rank[e->members[i]].channel_of[which] = (int)e->channel.n;
    }
    channel *c = &e->channel.at[*slot - 1];
    return c->among.members ? c : NULL;
}

static void begin_collective(engine *e, int rank, int step)
{
    const ech_step *s = step_of(e, rank, step);
    channel *c = find_channel(e, rank, s);
    if (!c) return;
    e->rank[rank].arrived_before[s->lane] = c->last;
    c->last = rank;
    if (++c->arrived < c->among.members) return;
    c->arrived = 0;
    c->last = -1;
    end_in(e, ech_costs_of_step(e->costs, e->out->plans[rank], s, c->among), rank, step);
}

/* Of a step that its rank does alone. */
static double cost_alone(engine *e, int rank, const ech_step *step)
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
        *of = (known_cost){step->calls, ech_costs_of_step(e->costs, plan, step, alone)};
    return of->cost;
}

/* What the rank does of a step for itself in a list of pushes: a server updates by the last push of a sum, and a worker does not
 * compute what will be dropped. */
static double cost_in_turn(engine *e, int rank, const ech_step *step)
{
    const ech_layout *layout = e->out->plans[rank]->layout;
    const rank_state *state = &e->rank[rank];
    double cost = cost_alone(e, rank, step);
    if (!layout->backups || e->out->kind != ECH_LIST_TRAIN) return cost;
    if (ech_layout_serves(layout, rank)) {
        bool updates = step->kind == ECH_STEP_NORM || step->kind == ECH_STEP_UPDATE;
        return updates && !state->served[step->turn].updates ? 0 : cost;
    }
    if (step->turn >= state->counts_from) return cost;
    if (step->kind == ECH_STEP_COUNT) return cost - ech_layout_delay(layout, rank);
    return ech_step_kind_phase(step->kind) < 0 ? cost : 0;
}

/* Fills workers[] with those for whom a server's step is, and returns how many; -1: its turn is nobody's so far. */
static int workers_of(const engine *e, int server, const ech_step *step, int *workers)
{
    const ech_served *served = e->rank[server].served;
    if (e->rank[server].bound[step->turn] < 0) return -1; /* of a list that is wrong */
    if (step->kind == ECH_STEP_GATHER_WEIGHTS)
        return ech_served_answered(served, step->turn, workers);
    workers[0] = served[step->turn].worker;
    return 1;
}

static bool is_for(const engine *e, int server, const ech_step *step, int worker)
{
    ECH_FREED int *workers = ech_calloc((size_t)e->out->ranks, sizeof *workers);
    int n = workers_of(e, server, step, workers);
    while (n > 0 && workers[n - 1] != worker) n--;
    return n > 0;
}

/* The server's part begins when both are there. */
static void try_to_meet(engine *e, int worker, int server, ech_lane lane)
{
    pushing *own = &e->rank[worker].push[lane], *theirs = &e->rank[server].push[lane];
    const ech_layout *layout = e->out->plans[worker]->layout;
    int number = server - ech_layout_workers(layout);
    if (own->step < 0 || own->met[number] || theirs->step < 0) return;
    const ech_step *step = step_of(e, server, theirs->step), *at = step_of(e, worker, own->step);
    /* A worker may be a bucket ahead of others that the server's step is for. */
    if (at->kind != step->kind || at->index != step->index) return;
    if (!is_for(e, server, step, worker)) return;
    ech_participants among = {1 + layout->servers, worker, layout->world - 1};
    double cost = ech_costs_of_step(e->costs, e->out->plans[server], step, among);
    own->met[number] = true;
    theirs->until = fmax(e->now, theirs->until) + cost;
    push(e, (event){theirs->until, server, theirs->step, worker});
}

static void begin_server(engine *e, int server, int step)
{
    const ech_step *s = step_of(e, server, step);
    ECH_FREED int *workers = ech_calloc((size_t)e->out->ranks, sizeof *workers);
    int n = workers_of(e, server, s, workers);
    e->rank[server].push[s->lane].left = n;
    for (int i = 0; i < n; i++) try_to_meet(e, workers[i], server, s->lane);
    if (n == 0) end_in(e, 0, server, step);
}

static void begin_pushed(engine *e, int rank, int step)
{
    const ech_layout *layout = e->out->plans[rank]->layout;
    const ech_step *s = step_of(e, rank, step);
    pushing *own = &e->rank[rank].push[s->lane];
    own->step = step;
    if (ech_layout_serves(layout, rank)) {
        begin_server(e, rank, step);
        return;
    }
    own->left = layout->servers;
    memset(own->met, 0, (size_t)layout->servers * sizeof *own->met);
    for (int server = ech_layout_workers(layout); server < layout->world; server++)
        try_to_meet(e, rank, server, s->lane);
}

/* Whose push the first server takes next, of those that have come; -1: nobody's. A bound list says whose. */
static int next_push(const engine *e, int first)
{
    const rank_state *state = &e->rank[first];
    const ech_list *list = ech_rehearsal_list(e->out, first);
    if (state->serves < 0 || state->taken == list->turns) return -1;
    if (!list->bound) return ech_serving_next(&state->serving);
    int worker = list->bound[state->taken].worker;
    return state->serving.came[worker] ? worker : -1;
}

/* Another server does as the first has done, once that has. */
static void try_to_follow(engine *e, int first, int server)
{
    rank_state *state = &e->rank[server];
    if (state->serves < 0) return;
    const ech_step *step = step_of(e, server, state->serves);
    if (step->turn >= e->rank[first].taken) return;
    state->bound[step->turn] = e->rank[first].bound[step->turn];
    state->served[step->turn] = e->rank[first].served[step->turn];
    end_in(e, cost_alone(e, server, step), server, state->serves);
    state->serves = -1;
}

/* Of a turn that the worker has no push for. */
static bool is_idle(const engine *e, int rank, int step)
{
    const rank_state *state = &e->rank[rank];
    return step < state->tally && step_of(e, rank, step)->turn > state->last;
}

static void finish(engine *e, int rank, int step);

/* Of the pushes that have come the first server takes the first that it may. */
static void try_to_serve(engine *e, int first)
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
        e->rank[worker].last = step_of(e, worker, e->rank[worker].announces)->turn;
    end_in(e, cost_alone(e, first, step_of(e, first, step)), first, step);
    finish(e, worker, e->rank[worker].announces);
    for (int server = first + 1; server < e->out->ranks; server++) try_to_follow(e, first, server);
}

static void serve(engine *e, int server, int step)
{
    int first = ech_layout_workers(e->out->plans[server]->layout);
    e->rank[server].serves = step;
    if (server == first)
        try_to_serve(e, server);
    else
        try_to_follow(e, first, server);
}

/* It ends when it is served. */
static void announce(engine *e, int worker, int step)
{
    int first = ech_layout_workers(e->out->plans[worker]->layout);
    e->rank[worker].announces = step;
    ech_serving_come(&e->rank[first].serving, worker);
    try_to_serve(e, first);
}

static void begin(engine *e, int rank, int step)
{
    const ech_step *s = step_of(e, rank, step);
    e->out->begin[rank][step] = e->now;
    bool is_message = ech_rehearsal_is_link(s->lane);
    if (!is_message || e->out->in_queues) cursor_of(e, rank, s)->running = step;
    if (is_message)
        begin_message(e, rank, step);
    else if (is_idle(e, rank, step))
        end_in(e, 0, rank, step);
    else if (s->group == ECH_GROUP_PUSHED)
        begin_pushed(e, rank, step);
    else if (ech_step_gathers(s))
        begin_collective(e, rank, step);
    else if (s->kind == ECH_STEP_SERVE)
        serve(e, rank, step);
    else
        end_in(e, cost_in_turn(e, rank, s), rank, step);
}

static bool is_ready(const engine *e, int rank, cursor *at)
{
    const ech_list *list = ech_rehearsal_list(e->out, rank);
    const ech_step *s = &list->step.at[at->next];
    for (; at->ready < s->afters; at->ready++)
        if (e->out->finish[rank][list->after.at[s->first_after + at->ready]] < 0) return false;
    return true;
}

static void advance(engine *e, int rank)
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

static void finish(engine *e, int rank, int step)
{
    e->out->finish[rank][step] = e->now;
    e->out->missing--;
    cursor_of(e, rank, step_of(e, rank, step))->running = -1;
    advance(e, rank);
}

/* rank: the member that arrived last. A member that has ended may at once arrive at its next collective. */
static void finish_collective(engine *e, int rank, const ech_step *step)
{
    for (int member = rank; member >= 0;) {
        int before = e->rank[member].arrived_before[step->lane];
        finish(e, member, cursor_of(e, member, step)->running);
        member = before;
    }
}

/* One of its parts fewer is left of the rank's step: whether it was the last. */
static bool end_part(engine *e, int rank, ech_lane lane)
{
    pushing *of = &e->rank[rank].push[lane];
    if (--of->left > 0) return false;
    of->step = -1;
    return true;
}

/* What a server and a worker have for each other; worker -1: the server has nothing for any. */
static void finish_pushed(engine *e, const event *ended)
{
    int server = ended->rank, worker = ended->worker;
    ech_lane lane = step_of(e, server, ended->step)->lane;
    int theirs = worker < 0 ? -1 : e->rank[worker].push[lane].step;
    bool last = end_part(e, server, lane);
    bool workers_last = worker >= 0 && end_part(e, worker, lane);
    if (last) finish(e, server, ended->step);
    if (workers_last) finish(e, worker, theirs);
}

static void handle(engine *e, const event *ended)
{
    const ech_step *s = step_of(e, ended->rank, ended->step);
    e->now = e->out->end = ended->time;
    if (is_idle(e, ended->rank, ended->step)) {
        finish(e, ended->rank, ended->step);
        return;
    }
    if (s->group == ECH_GROUP_PUSHED) {
        finish_pushed(e, ended);
        return;
    }
    if (s->kind == ECH_STEP_ANNOUNCE) {
        announce(e, ended->rank, ended->step);
        return;
    }
    if (ech_step_gathers(s)) {
        finish_collective(e, ended->rank, s);
        return;
    }
    finish(e, ended->rank, ended->step);
    if (ech_step_sends(s))
        finish(e, peer_of(e, ended->rank, s), e->out->pairing.partner[ended->rank][ended->step]);
}

/* The rank's cursors, each at the first step of its lane or queue. */
static void find_cursors(engine *e, int rank)
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

static void begin_serving(engine *e, int rank)
{
    const ech_plan *plan = e->out->plans[rank];
    rank_state *state = &e->rank[rank];
    size_t turns = (size_t)ech_rehearsal_list(e->out, rank)->turns;
    state->serves = -1;
    for (int lane = 0; lane < ECH_LANES; lane++) {
        size_t servers = (size_t)plan->layout->servers;
        state->push[lane] =
            (pushing){.step = -1, .met = ech_pool_alloc(e->out->pool, servers * sizeof(bool) + 1)};
    }
    const ech_list *list = ech_rehearsal_list(e->out, rank);
    bool pushes = plan->layout->pushes && list->kind == ECH_LIST_TRAIN;
    state->last = INT_MAX;
    while (pushes && list->step.at[state->tally].kind != ECH_STEP_TALLY) state->tally++;
    if (!pushes || !ech_layout_serves(plan->layout, rank)) return;
    state->bound = e->out->served[rank] =
        ech_pool_alloc(e->out->pool, turns * sizeof *state->bound);
    for (size_t turn = 0; turn < turns; turn++) state->bound[turn] = -1;
    state->served = ech_pool_alloc(e->out->pool, turns * sizeof *state->served);
    state->serving = ech_serving_begin(plan->schedule, plan->layout, e->out->pool);
}

static void allocate(engine *e)
{
    ech_rehearsal *out = e->out;
    ECH_ASSERT(out->plans[0]->layout->world == out->ranks);
    size_t ranks = (size_t)out->ranks;
    out->pool = ech_pool_create();
    out->pairing = ech_pairing_create(out->plans, out->ranks, out->kind, out->pool);
    out->begin = ech_pool_alloc(out->pool, ranks * sizeof *out->begin);
    out->finish = ech_pool_alloc(out->pool, ranks * sizeof *out->finish);
    out->served = ech_pool_alloc(out->pool, ranks * sizeof *out->served);
    e->rank = ech_calloc(ranks, sizeof *e->rank);
    e->members = ech_calloc(ranks, sizeof *e->members);
    e->known = ech_calloc(out->plans[0]->model->block.n, sizeof *e->known);
    for (int rank = 0; rank < out->ranks; rank++) {
        size_t steps = ech_rehearsal_list(e->out, rank)->step.n;
        out->missing += (int64_t)steps;
        out->begin[rank] = ech_pool_alloc(out->pool, steps * sizeof **out->begin);
        out->finish[rank] = ech_pool_alloc(out->pool, steps * sizeof **out->finish);
        for (size_t s = 0; s < steps; s++) out->begin[rank][s] = out->finish[rank][s] = -1;
        find_cursors(e, rank);
        begin_serving(e, rank);
    }
}

void ech_rehearse(const ech_plan *const *plans, int n, ech_list_kind list, const ech_costs *costs,
                  bool in_queues, ech_rehearsal *out)
{
    *out = (ech_rehearsal){.plans = plans, .ranks = n, .kind = list, .in_queues = in_queues};
    engine e = {.out = out, .costs = costs};
    allocate(&e);
    for (int rank = 0; rank < n; rank++) advance(&e, rank);
    while (e.heap.n) {
        event ended = pop(&e);
        handle(&e, &ended);
    }
    free(e.rank);
    free(e.members);
    free(e.known);
    free(e.channel.at);
    free(e.heap.at);
}

void ech_rehearsal_free(ech_rehearsal *rehearsal)
{
    ech_pool_destroy(rehearsal->pool);
    free(rehearsal->pairing.link.at);
    *rehearsal = (ech_rehearsal){0};
}

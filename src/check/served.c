/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker of pushes in bound lists of servers (ech_plan_bind). All servers serve each push of a
 * worker once, in the worker's order, and only as far ahead of others as the schedule allows. A
 * served worker begins another push if and only if the span has pushes that no worker has begun. A
 * push is computed with the weights that the previous one left. In a turn a server runs the same
 * collectives as its worker.
 */
#include "check/checker.h"

#include "schedule/print.h"
#include "schedule/reject.h"
#include "schedule/protocol/serving.h"

typedef struct served {
    const ech_plan *const *plans;
    int n, workers;
    int pushes;    /* of a span */
    int most;      /* turns of a worker's list: the most pushes that it can have */
    int *announce; /* [workers][most] the step that announces it; -1: none */
    int *by;       /* [workers][most] the turn in which the current server serves it; -1: none */
    int *serve;    /* [pushes] its SERVE of each turn; -1: none */
    int *number;   /* [pushes] index of a turn's push among its worker's */
    int *done;   /* [workers] pushes that it has served so far */
    int *stands; /* [workers] current position in a worker's list */
    int64_t *base; /* [workers] the clock of its first push */
    bool *ended;   /* [workers] after its last push none was left that it could have begun */
    int begun;     /* pushes that workers have begun so far */
} served;

static const ech_list *list_of(const served *c, int rank)
{
    return &c->plans[rank]->list[ECH_LIST_TRAIN];
}

#define REJECT(c, rank, step, ...)                                                                 \
    ech_plans_reject((c)->plans, (c)->n, ECH_LIST_TRAIN, rank, step, NULL, __VA_ARGS__)

/* ---- announcements and their serves ---- */

/* step[turns]: the rank's step of that kind in each turn. */
static ech_status find_steps(const served *c, int rank, ech_step_kind kind, int turns, int *step)
{
    const ech_list *list = list_of(c, rank);
    for (int turn = 0; turn < turns; turn++) step[turn] = -1;
    for (int s = 0; s < (int)list->step.n; s++) {
        int turn = list->step.at[s].turn;
        if (list->step.at[s].kind != kind) continue;
        if (turn < 0 || turn >= turns || step[turn] >= 0)
            return REJECT(c, rank, s, "is another one of turn %d, of %d", turn, turns);
        step[turn] = s;
    }
    return ECH_OK;
}

/* Appends to `why` what is wrong with the clock of the worker's next push. */
static void find_wrong_clock(const served *c, const ech_serve *push, ech_text *why)
{
    int w = push->worker;
    int64_t next = c->base[w] + c->done[w], number = push->clock - c->base[w];
    if (c->done[w] == 0 || push->clock == next) return;
    ech_text_append(why, "is of the push of rank %d in step %lld, ", w, (long long)push->clock + 1);
    if (push->clock > next)
        ech_text_append(why, "whose push in step %lld is not served before it",
                        (long long)next + 1);
    else if (number < 0)
        ech_text_append(why, "and the first one of the span is in step %lld",
                        (long long)c->base[w] + 1);
    else
        ech_text_append(why, "which is served in turn %d already", c->by[w * c->most + number]);
}

/* The same for the version that it has read, and for how far it gets ahead. */
static void find_wrong_version(const served *c, int64_t staleness, int turn, const ech_serve *push,
                               ech_text *why)
{
    int w = push->worker, least = c->done[w] + 1;
    int left = c->done[w] ? c->by[w * c->most + c->done[w] - 1] + 1 : 0;
    for (int other = 0; other < c->workers; other++)
        if (c->done[other] < least && other != w) least = c->done[other];
    if (push->read > turn)
        ech_text_append(why, "is of a push that has read version %d; the newest is %d", push->read,
                        turn);
    else if (push->read != left)
        ech_text_append(why,
                        "is of a push that has read version %d; its rank's push before has left "
                        "version %d",
                        push->read, left);
    else if (c->done[w] + 1 - least > staleness)
        ech_text_append(why, "takes rank %d %d steps ahead of the slowest; it may be %lld", w,
                        c->done[w] + 1 - least, (long long)staleness);
}

/* Appends to `why` what prevents a server from serving the push in that turn. */
static void find_fault(const served *c, const ech_schedule *schedule, int turn,
                       const ech_serve *push, ech_text *why)
{
    int w = push->worker;
    if (w < 0 || w >= c->workers) {
        ech_text_append(why, "is of a push of rank %d, which is no worker", w);
        return;
    }
    if (push->clock < 0) {
        ech_text_append(why, "is of no training step");
        return;
    }
    find_wrong_clock(c, push, why);
    if (why->n) return;
    if (c->ended[w])
        ech_text_append(why, "is of another push of rank %d, which has had its last of the span",
                        w);
    else if (c->announce[w * c->most + c->done[w]] < 0)
        ech_text_append(why, "is of push %d of rank %d, which makes no such push", c->done[w], w);
    else
        find_wrong_version(c, schedule->staleness, turn, push, why);
}

/* The server serves the push. Its worker begins another one if the span has one that no worker has
 * begun. */
static void take(served *c, int turn, const ech_serve *push)
{
    int w = push->worker;
    if (c->done[w] == 0) c->base[w] = push->clock;
    c->by[w * c->most + c->done[w]] = turn;
    c->number[turn] = c->done[w]++;
    bool more = c->begun < c->pushes && c->done[w] < c->most;
    c->begun += more;
    c->ended[w] = !more;
}

/* The server has no step for the push of that turn. */
static ech_status reject_unserved(const served *c, int server, int turn)
{
    int w = list_of(c, server)->bound[turn].worker, announce = -1;
    bool makes = w >= 0 && w < c->workers && !c->ended[w];
    if (makes) announce = c->announce[w * c->most + c->done[w]];
    return REJECT(c, announce < 0 ? server : w, announce,
                  "is a push that rank %d does not serve in turn %d", server, turn);
}

static ech_status check_order(served *c, int server)
{
    const ech_list *list = list_of(c, server), *first = list_of(c, c->workers);
    c->begun = c->workers;
    for (int w = 0; w < c->workers; w++) c->done[w] = c->ended[w] = 0;
    for (int i = 0; i < c->workers * c->most; i++) c->by[i] = -1;
    ECH_TRY(find_steps(c, server, ECH_STEP_SERVE, c->pushes, c->serve));
    for (int turn = 0; turn < c->pushes; turn++) {
        ECH_FREED_TEXT why = {0};
        const ech_serve *push = &list->bound[turn];
        if (c->serve[turn] < 0) return reject_unserved(c, server, turn);
        find_fault(c, c->plans[server]->schedule, turn, push, &why);
        if (!why.n && push->worker != first->bound[turn].worker)
            ech_text_append(&why, "is of another push than in the list of rank %d", c->workers);
        if (why.n) return REJECT(c, server, c->serve[turn], "%s", why.at);
        take(c, turn, push);
    }
    /* there are as many turns as pushes can be begun, and none is served twice: so all are */
    return ECH_OK;
}

/* ---- the steps of both in a turn ---- */

/* The next step from *s on over that channel, *s after it; -1: it belongs to another turn, or there
 * is none. */
static int next_of(const ech_list *list, int channel, int turn, int *s)
{
    while (*s < (int)list->step.n && (!ech_step_gathers(&list->step.at[*s]) ||
                                      ech_step_channel(&list->step.at[*s]) != channel))
        ++*s;
    return *s < (int)list->step.n && list->step.at[*s].turn == turn ? (*s)++ : -1;
}

static bool is_alike(const served *c, int server, int own, int worker, int theirs)
{
    if (own < 0 || theirs < 0) return false;
    const ech_step *x = &list_of(c, server)->step.at[own];
    const ech_step *y = &list_of(c, worker)->step.at[theirs];
    return x->kind == y->kind && ech_buckets_meet(c->plans[server], x, c->plans[worker], y);
}

/* Compares the server's turn over that channel with its worker's; at, theirs: positions in both
 * lists. */
static ech_status check_turn(const served *c, int server, int channel, int turn, int *at,
                             int *theirs)
{
    const ech_list *list = list_of(c, server);
    int worker = list->bound[turn].worker;
    int k = c->number[turn];
    for (;;) {
        int own = next_of(list, channel, turn, at);
        int met = next_of(list_of(c, worker), channel, k, theirs);
        if (own < 0 && met < 0) return ECH_OK;
        if (is_alike(c, server, own, worker, met)) continue;
        ECH_FREED_TEXT name = {0};
        int rank = own < 0 ? worker : server, partner = own < 0 ? server : worker;
        ech_text_append(&name, "%s", own < 0 || met < 0 ? "nothing" : "another collective, ");
        if (own >= 0 && met >= 0)
            ech_list_print_step(list_of(c, worker), &list_of(c, worker)->step.at[met], &name);
        return REJECT(c, rank, own < 0 ? met : own, "meets %s, on rank %d", name.at, partner);
    }
}

static ech_status check_channel(const served *c, int server, int channel)
{
    int at = 0;
    for (int w = 0; w < c->workers; w++) c->stands[w] = 0;
    for (int turn = 0; turn < c->pushes; turn++)
        ECH_TRY(check_turn(c, server, channel, turn, &at,
                           &c->stands[list_of(c, server)->bound[turn].worker]));
    return ECH_OK;
}

/* ---- the whole ---- */

static ech_status check_server(served *c, int server)
{
    if (!list_of(c, server)->bound)
        return REJECT(c, server, 0, "is in a list that is not bound to pushes, as others are");
    ECH_TRY(check_order(c, server));
    for (int lane = 0; lane < ECH_LANES; lane++)
        if (ech_lane_gathers((ech_lane)lane))
            ECH_TRY(check_channel(c, server, (int)ECH_GROUP_PUSHED * ECH_LANES + lane));
    return ECH_OK;
}

static void allocate(served *c, ech_pool *pool)
{
    size_t workers = (size_t)c->workers, pushes = (size_t)c->pushes;
    size_t own = workers * (size_t)c->most;
    c->announce = ech_pool_alloc(pool, own * sizeof *c->announce);
    c->by = ech_pool_alloc(pool, own * sizeof *c->by);
    c->serve = ech_pool_alloc(pool, pushes * sizeof *c->serve);
    c->number = ech_pool_alloc(pool, pushes * sizeof *c->number);
    c->done = ech_pool_alloc(pool, workers * sizeof *c->done);
    c->stands = ech_pool_alloc(pool, workers * sizeof *c->stands);
    c->base = ech_pool_alloc(pool, workers * sizeof *c->base);
    c->ended = ech_pool_alloc(pool, workers * sizeof *c->ended);
}

static ech_status check_all(served *c)
{
    for (int w = 0; w < c->workers; w++)
        ECH_TRY(find_steps(c, w, ECH_STEP_ANNOUNCE, c->most, c->announce + w * c->most));
    for (int server = c->workers; server < c->n; server++) ECH_TRY(check_server(c, server));
    return ECH_OK;
}

ech_status ech_check_served(const ech_plan *const *plans, int n, ech_list_kind kind)
{
    const ech_layout *layout = plans[0]->layout;
    bool bound = false;
    for (int rank = 0; rank < n && kind == ECH_LIST_TRAIN; rank++)
        bound |= plans[rank]->list[kind].bound != NULL;
    if (!bound) return ECH_OK;
    served c = {.plans = plans, .n = n, .workers = ech_layout_workers(layout)};
    c.pushes = c.workers * plans[0]->schedule->turns;
    c.most = plans[0]->list[kind].turns;
    ECH_CLEANUP(ech_pool_destroy_at) ech_pool *pool = ech_pool_create();
    allocate(&c, pool);
    return check_all(&c);
}

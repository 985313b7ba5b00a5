/* SPDX-License-Identifier: Apache-2.0
 *
 * Pushes: where servers update at each worker's gradient by itself. ANNOUNCE sends the first server what the update must know besides,
 * SERVE takes the next that may be served (schedule/serving.h): from then on the turn is that worker's, and its sums and gathers are
 * over the group of that worker and all servers. The first server tells the others, so all have one order: with two, two workers could
 * wait for each other's server. It tells the worker whether that has another push in the span: a list has turns for the most that
 * can be, and those that it has no push for do nothing. TALLY tells all how far each worker has come.
 */
#include <limits.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "exec/state.h"

enum { TAG = (1 << 20) - 2 }; /* of announcements, their answers and tallies */
enum { NAP_NS = 20000, LONGEST_NAP_NS = 500000 };

/* What a worker announces, and the first server passes on. */
typedef struct announced {
    int worker;
    int64_t step; /* the training step whose samples its gradient is of */
    double loss_scale, clip, withheld;
    ech_pushed_step counts; /* its part of a training step */
} announced;

struct ech_server {
    ech_serving serving;
    ech_request *request;   /* [workers] of the next announcement */
    announced *announced;   /* [workers] */
    bool *asked;            /* [workers] its receive is under way */
    int *bound;             /* [turns] whose push each is */
    ech_serve *log;         /* [turns] */
    ech_pushed_step *step;  /* [training steps of a span] */
    ech_serve_order *order; /* NULL: as they come */
    void *order_context;
    ech_group **channel; /* [workers * ECH_LANES] */
};

static const ech_layout *layout_of(const ech_exec *exec)
{
    return exec->plan->layout;
}

static bool serves(const ech_exec *exec)
{
    return layout_of(exec)->pushes && ech_layout_serves(layout_of(exec), exec->plan->rank);
}

/* ---- the groups ---- */

/* Lanes of the train list's pushes. */
static unsigned find_lanes(const ech_plan *plan)
{
    unsigned lanes = 0;
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].group == ECH_GROUP_PUSHED) lanes |= 1u << list->step.at[s].lane;
    return lanes;
}

static ech_status make_group(ech_exec *exec, int worker, ech_group **channel)
{
    const ech_layout *layout = layout_of(exec);
    ECH_FREED int *members = ech_calloc((size_t)layout->servers + 1, sizeof *members);
    ech_group *group;
    int n = ech_layout_members(layout, exec->plan->model, worker, ECH_GROUP_PUSHED, members);
    unsigned lanes = find_lanes(exec->plan);
    ECH_TRY(
        ech_group_create(exec->comm, ech_layout_group_name(ECH_GROUP_PUSHED), members, n, &group));
    ech_group_set_stores(group, layout->servers);
    for (int lane = 0; lane < ECH_LANES; lane++)
        if (lanes & 1u << lane) channel[lane] = ech_group_open(group, lane + 1);
    ech_group_destroy(group);
    return ECH_OK;
}

ech_status ech_exec_make_pushed(ech_exec *exec)
{
    int workers = ech_layout_workers(layout_of(exec));
    if (!layout_of(exec)->pushes || !exec->plan->list[ECH_LIST_TRAIN].step.n) return ECH_OK;
    if (!serves(exec)) return make_group(exec, exec->plan->rank, exec->channel[ECH_GROUP_PUSHED]);
    for (int w = 0; w < workers; w++)
        ECH_TRY(make_group(exec, w, &exec->server->channel[w * ECH_LANES]));
    return ECH_OK;
}

ech_group *ech_exec_channel(const ech_exec *exec, const ech_step *step)
{
    if (step->group != ECH_GROUP_PUSHED || !exec->server)
        return exec->channel[step->group][step->lane];
    return exec->server->channel[exec->server->bound[step->turn] * ECH_LANES + (int)step->lane];
}

ech_group *ech_exec_pushed_channel(const ech_exec *exec, int i)
{
    int n = exec->server ? exec->server->serving.workers * (int)ECH_LANES : 0;
    return i < n ? exec->server->channel[i] : NULL;
}

int ech_exec_pushed_channels(const ech_exec *exec)
{
    return exec->server ? exec->server->serving.workers * (int)ECH_LANES : 0;
}

static void create_server(ech_exec *exec, size_t workers, size_t turns)
{
    ech_server *server = exec->server = ech_pool_alloc(exec->pool, sizeof *server);
    exec->workers = (int)workers;
    server->serving = ech_serving_begin(exec->plan->schedule, layout_of(exec), exec->pool);
    server->request = ech_pool_alloc(exec->pool, workers * sizeof *server->request);
    server->announced = ech_pool_alloc(exec->pool, workers * sizeof *server->announced);
    server->asked = ech_pool_alloc(exec->pool, workers * sizeof *server->asked);
    server->bound = ech_pool_alloc(exec->pool, turns * sizeof *server->bound);
    server->log = ech_pool_alloc(exec->pool, turns * sizeof *server->log);
    server->step = ech_pool_alloc(exec->pool, turns / workers * sizeof *server->step);
    server->channel = ech_pool_alloc(exec->pool, workers * ECH_LANES * sizeof *server->channel);
}

void ech_exec_create_pushes(ech_exec *exec)
{
    const ech_list *train = &exec->plan->list[ECH_LIST_TRAIN];
    size_t workers = (size_t)ech_layout_workers(layout_of(exec));
    exec->pushes.last = INT_MAX;
    if (!layout_of(exec)->pushes || !train->step.n) return;
    exec->pushes.clock = ech_pool_alloc(exec->pool, workers * sizeof *exec->pushes.clock);
    while (train->step.at[exec->pushes.tally].kind != ECH_STEP_TALLY) exec->pushes.tally++;
    if (serves(exec)) create_server(exec, workers, (size_t)train->turns);
}

/* ---- clocks ---- */

void ech_exec_begin_pushes(ech_exec *exec)
{
    exec->pushes.last = INT_MAX;
}

int64_t ech_exec_clock(const ech_exec *exec, int turn)
{
    bool own = exec->pushes.clock && !exec->server && exec->list->kind == ECH_LIST_TRAIN;
    return own ? exec->pushes.clock[exec->plan->rank] + turn : exec->step + turn / exec->workers;
}

const int64_t *ech_exec_clocks(const ech_exec *exec)
{
    return exec->pushes.clock;
}

void ech_exec_set_clocks(ech_exec *exec, const int64_t *clocks, int n, int64_t step)
{
    int workers = ech_layout_workers(layout_of(exec));
    for (int w = 0; exec->pushes.clock && w < workers; w++)
        exec->pushes.clock[w] = n == workers ? clocks[w] : step;
}

/* ---- ANNOUNCE ---- */

ech_status ech_handle_ANNOUNCE(ech_exec *exec, const ech_step *step)
{
    int first = ech_layout_workers(layout_of(exec));
    const ech_scalar_row *row;
    ech_request request[2];
    bool more;
    ECH_TRY(ech_scalars_await(exec, step, &row));
    announced what = {.worker = exec->plan->rank,
                      .step = row->step,
                      .loss_scale = row->loss_scale,
                      .clip = row->clip,
                      .withheld = row->withheld,
                      .counts = {.loss = row->loss,
                                 .loss_weight = row->loss_weight,
                                 .squares = row->squares_sum,
                                 .idle = row->idle}};
    ECH_TRY(ech_comm_send_start(exec->comm, first, TAG, &what, sizeof what, &request[0]));
    ECH_TRY(ech_comm_receive_start(exec->comm, first, TAG, &more, sizeof more, &request[1]));
    ECH_TRY(ech_comm_wait(exec->comm, request, 2));
    if (!more) exec->pushes.last = step->turn;
    return ECH_OK;
}

/* ---- SERVE ---- */

/* Who has pushes left in the span will announce another one. */
static ech_status ask(ech_exec *exec, int worker)
{
    ech_server *server = exec->server;
    bool waits = server->asked[worker] || server->serving.came[worker];
    if (waits || server->serving.ended[worker]) return ECH_OK;
    server->asked[worker] = true;
    return ech_comm_receive_start(exec->comm, worker, TAG, &server->announced[worker],
                                  sizeof *server->announced, &server->request[worker]);
}

static ech_status look(ech_exec *exec, bool *progress)
{
    ech_server *server = exec->server;
    for (int w = 0; w < server->serving.workers; w++) {
        bool done = false;
        ECH_TRY(ask(exec, w));
        if (server->asked[w]) ECH_TRY(ech_comm_test(exec->comm, &server->request[w], &done));
        if (!done) continue;
        server->asked[w] = false;
        ech_serving_come(&server->serving, w);
        *progress = true;
    }
    return ECH_OK;
}

/* Nobody has come: says for whom the server waits, and fails at the deadline. */
static ech_status rest(ech_exec *exec, double idle, long *nap)
{
    ech_server *server = exec->server;
    const double report_seconds = 0.1;
    for (int w = 0; w < server->serving.workers && idle > report_seconds; w++) {
        if (!server->asked[w]) continue;
        ech_comm_set_wait(exec->comm, w);
        ECH_TRY(ech_comm_overdue(exec->comm, &server->request[w], idle));
        break;
    }
    nanosleep(&(struct timespec){.tv_nsec = *nap}, NULL);
    *nap = *nap * 2 < LONGEST_NAP_NS ? *nap * 2 : LONGEST_NAP_NS;
    return ECH_OK;
}

/* Whom the run's order has next, if any. */
static int wanted(const ech_exec *exec, const ech_step *step)
{
    ech_server *server = exec->server;
    const ech_serving *serving = &server->serving;
    if (!server->order) return ech_serving_next(serving);
    int worker = server->order(server->order_context, exec->step, step->turn);
    bool has_come = worker >= 0 && worker < serving->workers && serving->came[worker] > 0;
    return has_come ? worker : -1;
}

static ech_status wait_for_push(ech_exec *exec, const ech_step *step, announced *what)
{
    double since = ech_clock_now();
    long nap = NAP_NS;
    int worker;
    for (;;) {
        bool progress = false;
        if (ech_exec_has_failed(exec)) return ECH_EABORTED;
        ECH_TRY(look(exec, &progress));
        worker = wanted(exec, step);
        if (worker >= 0) break;
        double now = ech_clock_now();
        if (progress) since = now, nap = NAP_NS;
        ECH_TRY(rest(exec, now - since, &nap));
    }
    ech_comm_set_wait(exec->comm, -1);
    *what = exec->server->announced[worker];
    return ECH_OK;
}

static ech_status answer(ech_exec *exec, int worker)
{
    bool more = ech_serving_take(&exec->server->serving, worker);
    ech_request request;
    ECH_TRY(ech_comm_send_start(exec->comm, worker, TAG, &more, sizeof more, &request));
    return ech_comm_wait(exec->comm, &request, 1);
}

/* The first server tells the others whose push it takes. */
static ech_status agree(ech_exec *exec, const ech_step *step, announced *what)
{
    const ech_layout *layout = layout_of(exec);
    int first = ech_layout_workers(layout), others = layout->servers - 1;
    ECH_FREED ech_request *told = ech_calloc((size_t)others + 1, sizeof *told);
    if (exec->plan->rank > first) {
        ECH_TRY(ech_comm_receive_start(exec->comm, first, TAG, what, sizeof *what, told));
        return ech_comm_wait(exec->comm, told, 1);
    }
    ECH_TRY(wait_for_push(exec, step, what));
    ECH_TRY(answer(exec, what->worker));
    for (int s = 0; s < others; s++)
        ECH_TRY(ech_comm_send_start(exec->comm, first + 1 + s, TAG, what, sizeof *what, &told[s]));
    return ech_comm_wait(exec->comm, told, others);
}

/* Which version a push has read: what the one before of its worker has left, counted from the span's beginning. */
static int read_by(const ech_server *server, int turn, int worker)
{
    while (--turn >= 0)
        if (server->bound[turn] == worker) return turn + 1;
    return 0;
}

static void add_counts(ech_server *server, int turn, const ech_pushed_step *of)
{
    ech_pushed_step *step = &server->step[turn / server->serving.workers];
    step->loss += of->loss;
    step->loss_weight += of->loss_weight;
    step->squares += of->squares;
    step->idle += of->idle;
    step->staleness += turn - server->log[turn].read;
}

static void begin_span(ech_exec *exec)
{
    ech_serving_reset(&exec->server->serving);
    memset(exec->server->step, 0, (size_t)exec->plan->schedule->turns * sizeof *exec->server->step);
}

ech_status ech_handle_SERVE(ech_exec *exec, const ech_step *step)
{
    ech_server *server = exec->server;
    announced what;
    if (step->turn == 0) begin_span(exec);
    ECH_TRY(agree(exec, step, &what));
    server->bound[step->turn] = what.worker;
    server->log[step->turn] = (ech_serve){.worker = what.worker,
                                          .clock = what.step,
                                          .read = read_by(server, step->turn, what.worker),
                                          .withheld = what.withheld > 0};
    add_counts(server, step->turn, &what.counts);
    ech_scalars_put(exec, step,
                    &(ech_scalar_row){.loss_scale = what.loss_scale,
                                      .clip = what.clip,
                                      .withheld = what.withheld,
                                      .step = what.step});
    return ECH_OK;
}

/* ---- TALLY ---- */

/* The first server tells all. */
static ech_status tell_clocks(ech_exec *exec)
{
    int first = ech_layout_workers(layout_of(exec)), world = layout_of(exec)->world, n = 0;
    int64_t *clock = exec->pushes.clock;
    size_t bytes = (size_t)first * sizeof *clock;
    ECH_FREED ech_request *told = ech_calloc((size_t)world, sizeof *told);
    if (exec->plan->rank != first) {
        ECH_TRY(ech_comm_receive_start(exec->comm, first, TAG, clock, bytes, told));
        return ech_comm_wait(exec->comm, told, 1);
    }
    for (int w = 0; w < first; w++) clock[w] += exec->server->serving.done[w];
    for (int rank = 0; rank < world; rank++)
        if (rank != first)
            ECH_TRY(ech_comm_send_start(exec->comm, rank, TAG, clock, bytes, &told[n++]));
    return ech_comm_wait(exec->comm, told, n);
}

ech_status ech_handle_TALLY(ech_exec *exec, const ech_step *step)
{
    bool first = exec->plan->rank == ech_layout_workers(layout_of(exec));
    ECH_TRY(tell_clocks(exec));
    ech_scalars_tally(exec, step, first ? exec->server->step : NULL);
    return ECH_OK;
}

const ech_serve *ech_exec_serves(const ech_exec *exec, int *n)
{
    *n = exec->server ? exec->plan->list[ECH_LIST_TRAIN].turns : 0;
    return exec->server ? exec->server->log : NULL;
}

void ech_exec_order_serves(ech_exec *exec, ech_serve_order *order, void *context)
{
    if (!exec->server) return;
    exec->server->order = order;
    exec->server->order_context = context;
}

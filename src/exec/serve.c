/* SPDX-License-Identifier: Apache-2.0
 *
 * Pushes: parameter servers that update at each worker's gradient. ANNOUNCE sends the first server
 * the scalars of the update. SERVE takes the next push that may be served
 * (schedule/protocol/serving.h): from then on the turn is that worker's, and its sums and gathers
 * use the group of that worker and all servers. The first server passes its choice to the others,
 * so all have one order; otherwise two workers could wait for each other's server. It answers the
 * worker whether it has another push in the span: a list has the most turns that are possible, and
 * surplus turns do nothing. TALLY reports each worker's clock to all.
 *
 * With backup workers a turn adds its push to the sum of its clock, or discards it, and the last
 * push of the sum triggers the update: only then do all of its workers get weights. A worker is
 * told which of its turns can count next, and skips the compute of earlier ones; it then pushes the
 * current content of its memory.
 */
#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "exec/state.h"

enum { TAG = (1 << 20) - 2 }; /* of announcements, their answers and tallies */
enum { NAP_NS = 20000, LONGEST_NAP_NS = 500000 };

/* A worker's announcement, which the first server passes on. */
typedef struct announced {
    int worker;
    int64_t step; /* training step whose samples gave the gradient */
    double loss_scale, clip, withheld;
    ech_pushed_step counts; /* its part of a training step */
    double step_tokens;     /* divisor of its gradient */
    bool lost;              /* the worker has died */
} announced;

/* The answer to the worker. */
typedef struct answered {
    bool more; /* it has another push in the span */
    int next;  /* ech_served.next */
} answered;

struct ech_server {
    ech_serving serving;
    ech_request *request;   /* [workers] of the next announcement */
    announced *announced;   /* [workers] */
    bool *asked;            /* [workers] its receive is in flight */
    ech_served *served;     /* [turns] the worker of each push, and the push's fate */
    int *read;              /* [workers] pushes applied to the weights that it has */
    double tokens;          /* of the incomplete sum */
    ech_serve *log;         /* [turns] */
    ech_pushed_step *step;  /* [training steps of a span] */
    ech_serve_order *order; /* NULL: in order of arrival */
    void *order_context;
    ech_group **channel; /* [workers * ECH_LANES] */
    /* Preallocated, so that no step allocates: */
    int *answered;      /* [workers] for the gather lane */
    int *reads;         /* [workers] for SERVE */
    ech_request *told;  /* [ranks] for SERVE and TALLY */
    ech_answer *answer; /* [workers] for the gather lane */
};

static const ech_layout *layout_of(const ech_exec *exec)
{
    return exec->plan->layout;
}

/* The list's first step of that kind; after its last step if there is none. */
static int find_kind(const ech_list *list, ech_step_kind kind)
{
    int s = 0;
    while (s < (int)list->step.n && list->step.at[s].kind != kind) s++;
    return s;
}

static bool serves(const ech_exec *exec)
{
    const ech_list *train = &exec->plan->list[ECH_LIST_TRAIN];
    return find_kind(train, ECH_STEP_SERVE) < (int)train->step.n;
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
    if (!find_lanes(exec->plan)) return ECH_OK;
    if (!serves(exec)) return make_group(exec, exec->plan->rank, exec->channel[ECH_GROUP_PUSHED]);
    for (int w = 0; w < workers; w++)
        ECH_TRY(make_group(exec, w, &exec->server->channel[w * ECH_LANES]));
    return ECH_OK;
}

ech_group *ech_exec_channel(const ech_exec *exec, const ech_step *step)
{
    if (step->group != ECH_GROUP_PUSHED || !exec->server)
        return exec->channel[step->group][step->lane];
    int worker = exec->server->served[step->turn].worker;
    return exec->server->channel[worker * (int)ECH_LANES + (int)step->lane];
}

int ech_exec_answered(const ech_exec *exec, const ech_step *step, ech_answer **to)
{
    ech_server *server = exec->server;
    bool answers =
        server && step->group == ECH_GROUP_PUSHED && step->kind == ECH_STEP_GATHER_WEIGHTS;
    if (!answers) return -1;
    if (!to) return ech_served_answered(server->served, step->turn, NULL);
    int *workers = server->answered;
    int n = ech_served_answered(server->served, step->turn, workers);
    for (int i = 0; i < n; i++)
        server->answer[i].channel = server->channel[workers[i] * (int)ECH_LANES + (int)step->lane];
    *to = server->answer;
    return n;
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
    if (exec->pushes.clock) exec->workers = (int)workers;
    server->serving = ech_serving_begin(exec->plan->schedule, layout_of(exec), exec->pool);
    server->request = ech_pool_alloc(exec->pool, workers * sizeof *server->request);
    server->announced = ech_pool_alloc(exec->pool, workers * sizeof *server->announced);
    server->asked = ech_pool_alloc(exec->pool, workers * sizeof *server->asked);
    server->served = ech_pool_alloc(exec->pool, turns * sizeof *server->served);
    server->read = ech_pool_alloc(exec->pool, workers * sizeof *server->read);
    server->log = ech_pool_alloc(exec->pool, turns * sizeof *server->log);
    server->step = ech_pool_alloc(exec->pool, turns / workers * sizeof *server->step);
    server->channel = ech_pool_alloc(exec->pool, workers * ECH_LANES * sizeof *server->channel);
    server->answered = ech_pool_alloc(exec->pool, workers * sizeof *server->answered);
    server->reads = ech_pool_alloc(exec->pool, workers * sizeof *server->reads);
    server->told =
        ech_pool_alloc(exec->pool, (size_t)layout_of(exec)->world * sizeof *server->told);
    server->answer = ech_pool_alloc(exec->pool, workers * sizeof *server->answer);
}

void ech_exec_create_pushes(ech_exec *exec)
{
    const ech_list *train = &exec->plan->list[ECH_LIST_TRAIN];
    size_t workers = (size_t)ech_layout_workers(layout_of(exec));
    exec->pushes.last = INT_MAX;
    size_t clocks = (size_t)ech_protocol_of(layout_of(exec))->clocks(layout_of(exec));
    if (!find_lanes(exec->plan)) return;
    if (clocks)
        exec->pushes.clock = ech_pool_alloc(exec->pool, clocks * sizeof *exec->pushes.clock);
    exec->pushes.tally = find_kind(train, ECH_STEP_TALLY);
    if (serves(exec)) create_server(exec, workers, (size_t)train->turns);
}

/* ---- clocks ---- */

void ech_exec_begin_pushes(ech_exec *exec)
{
    exec->pushes.last = INT_MAX;
    exec->pushes.next = 0;
}

/* Turns per training step: on a server, one per push. */
static int per_step(const ech_exec *exec)
{
    return exec->server ? ech_layout_workers(layout_of(exec)) : 1;
}

int64_t ech_exec_clock(const ech_exec *exec, int turn)
{
    bool own = exec->pushes.clock && !exec->server && exec->list->kind == ECH_LIST_TRAIN;
    return own ? exec->pushes.clock[exec->plan->rank] + turn : exec->step + turn / per_step(exec);
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
    answered heard;
    double delay = ech_protocol_delay(exec->plan, ECH_STEP_ANNOUNCE);
    if (delay > 0) ech_clock_sleep_until(ech_clock_now() + delay);
    ECH_TRY(ech_scalars_await(exec, step, &row));
    announced what = {.worker = exec->plan->rank,
                      .step = row->step,
                      .loss_scale = row->loss_scale,
                      .clip = row->clip,
                      .withheld = row->withheld,
                      .step_tokens = row->tokens,
                      .counts = {.loss = row->loss,
                                 .loss_weight = row->loss_weight,
                                 .squares = row->squares_sum,
                                 .idle = row->idle}};
    ECH_TRY(ech_comm_send_start(exec->comm, first, TAG, &what, sizeof what, &request[0]));
    ECH_TRY(ech_comm_receive_start(exec->comm, first, TAG, &heard, sizeof heard, &request[1]));
    ECH_TRY(ech_comm_wait(exec->comm, request, 2));
    exec->pushes.next = heard.next;
    if (!heard.more) exec->pushes.last = step->turn;
    return ECH_OK;
}

/* ---- SERVE ---- */

/* Workers with more pushes in the span will announce again. */
static ech_status ask(ech_exec *exec, int worker)
{
    ech_server *server = exec->server;
    bool waits =
        server->asked[worker] || server->serving.came[worker] || server->serving.lost[worker];
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
        if (server->request[w].lost)
            ech_serving_lose(&server->serving, w);
        else
            ech_serving_come(&server->serving, w);
        *progress = true;
    }
    return ECH_OK;
}

/* No push has arrived: shows for whom the server waits, and fails at the deadline. */
static ech_status rest(ech_exec *exec, double idle, unsigned heard, long *nap)
{
    ech_server *server = exec->server;
    const double report_seconds = 0.1;
    for (int w = 0; w < server->serving.workers && idle > report_seconds; w++) {
        if (!server->asked[w]) continue;
        ech_comm_set_wait(exec->comm, w);
        ECH_TRY(ech_comm_overdue(exec->comm, &server->request[w], idle));
        break;
    }
    ech_comm_listen(exec->comm, heard, ech_comm_rings(exec->comm) ? ECH_COMM_LONG_NAP_NS : *nap);
    *nap = *nap * 2 < LONGEST_NAP_NS ? *nap * 2 : LONGEST_NAP_NS;
    return ECH_OK;
}

static int prescribed(const ech_exec *exec, const ech_step *step)
{
    return exec->server->order(exec->server->order_context, exec->step, step->turn);
}

/* The next worker of the prescribed order, if any. */
static int wanted(const ech_exec *exec, const ech_step *step)
{
    const ech_serving *serving = &exec->server->serving;
    if (!exec->server->order) return ech_serving_next(serving);
    int worker = prescribed(exec, step);
    bool has_come = worker >= 0 && worker < serving->workers && serving->came[worker] > 0;
    return has_come ? worker : -1;
}

static ech_status wait_for_push(ech_exec *exec, const ech_step *step, announced *what)
{
    double since = ech_clock_now(), looked_at = since;
    long nap = NAP_NS;
    int worker;
    for (;;) {
        bool progress = false;
        unsigned heard = ech_comm_heard(exec->comm);
        if (ech_exec_has_failed(exec)) return ECH_EABORTED;
        ECH_TRY(look(exec, &progress));
        worker = wanted(exec, step);
        if (worker >= 0) break;
        double now = ech_clock_now();
        since += ech_clock_take_gap(&looked_at, now);
        if (progress) since = now, nap = NAP_NS;
        ECH_TRY(rest(exec, now - since, heard, &nap));
    }
    ech_comm_set_wait(exec->comm, -1);
    *what = exec->server->announced[worker];
    what->worker = worker;
    if (exec->server->serving.lost[worker])
        *what = (announced){.worker = worker,
                            .step = exec->pushes.clock[worker] + exec->server->serving.done[worker],
                            .loss_scale = 1,
                            .withheld = 1,
                            .lost = true};
    return ECH_OK;
}

static ech_status answer(ech_exec *exec, const ech_served *served)
{
    answered heard = {.more = served->more, .next = served->next};
    ech_request request;
    ECH_TRY(ech_comm_send_start(exec->comm, served->worker, TAG, &heard, sizeof heard, &request));
    return ech_comm_wait(exec->comm, &request, 1);
}

/* The first server passes its choice to the others, so that the push has the same fate on all. */
static ech_status agree(ech_exec *exec, const ech_step *step, announced *what, ech_served *served)
{
    const ech_layout *layout = layout_of(exec);
    int first = ech_layout_workers(layout), others = layout->servers - 1;
    ech_request *told = exec->server->told;
    if (exec->plan->rank > first) {
        ECH_TRY(ech_comm_receive_start(exec->comm, first, TAG, what, sizeof *what, told));
        ECH_TRY(ech_comm_wait(exec->comm, told, 1));
        if (exec->server->order) what->worker = prescribed(exec, step);
        if (what->lost) ech_serving_lose(&exec->server->serving, what->worker);
        *served = ech_serving_take(&exec->server->serving, what->worker);
        return ECH_OK;
    }
    ECH_TRY(wait_for_push(exec, step, what));
    *served = ech_serving_take(&exec->server->serving, what->worker);
    ECH_TRY(answer(exec, served));
    for (int s = 0; s < others; s++)
        ECH_TRY(ech_comm_send_start(exec->comm, first + 1 + s, TAG, what, sizeof *what, &told[s]));
    return ech_comm_wait(exec->comm, told, others);
}

/* Workers that get weights in the turn have read its result. */
static void note_read(ech_server *server, int turn)
{
    int n = ech_served_answered(server->served, turn, server->reads);
    for (int i = 0; i < n; i++) server->read[server->reads[i]] = turn + 1;
}

static void add_counts(ech_server *server, int turn, const ech_pushed_step *of)
{
    const ech_served *served = &server->served[turn];
    bool sums = server->serving.drops;
    ech_pushed_step *step = &server->step[sums ? served->clock : turn / server->serving.workers];
    step->idle += of->idle;
    if (served->dropped) return;
    step->loss += of->loss;
    step->loss_weight += of->loss_weight;
    if (sums) return; /* their norm is unknown yet, and they are of the newest weights */
    step->squares += of->squares;
    step->staleness += turn - server->log[turn].read;
}

/* Sums a push of a training step's gradient, which is divided by all of its tokens: this acts like
 * a smaller loss scale on the mean over its own tokens. Only the last push of the sum updates. */
static void put_sum(ech_server *server, const ech_served *served, const announced *what,
                    ech_scalar_row *row)
{
    if (served->first) server->tokens = 0;
    if (!served->dropped) server->tokens += what->counts.loss_weight;
    if (server->tokens > 0) row->loss_scale *= server->tokens / what->step_tokens;
    row->loss = server->step[served->clock].loss; /* an update is withheld if it is not finite */
    row->withheld = !served->updates;
}

static void put_scalars(ech_exec *exec, const ech_step *step, const announced *what)
{
    ech_server *server = exec->server;
    const ech_served *served = &server->served[step->turn];
    bool sums = server->serving.drops;
    ech_scalar_row row = {.loss_scale = what->loss_scale,
                          .clip = what->clip,
                          .withheld = what->withheld,
                          .step = what->step};
    if (sums) put_sum(server, served, what, &row);
    ech_scalars_put(exec, step, sums ? served->clock : step->turn, &row);
}

static void begin_span(ech_exec *exec)
{
    ech_serving_reset(&exec->server->serving);
    memset(exec->server->read, 0,
           (size_t)exec->server->serving.workers * sizeof *exec->server->read);
    memset(exec->server->step, 0, (size_t)exec->plan->schedule->turns * sizeof *exec->server->step);
}

ech_status ech_handle_SERVE(ech_exec *exec, const ech_step *step)
{
    ech_server *server = exec->server;
    announced what;
    double delay = ech_protocol_delay(exec->plan, ECH_STEP_SERVE) / per_step(exec);
    if (step->turn == 0) begin_span(exec);
    if (delay > 0) ech_clock_sleep_until(ech_clock_now() + delay);
    ECH_TRY(agree(exec, step, &what, &server->served[step->turn]));
    server->log[step->turn] = (ech_serve){.worker = what.worker,
                                          .clock = what.step,
                                          .read = server->read[what.worker],
                                          .dropped = server->served[step->turn].dropped,
                                          .withheld = what.withheld > 0,
                                          .time = ech_clock_wall()};
    note_read(server, step->turn);
    add_counts(server, step->turn, &what.counts);
    put_scalars(exec, step, &what);
    return ECH_OK;
}

/* ---- fates of pushes ---- */

ech_delivery ech_exec_delivery(const ech_exec *exec, const ech_step *step)
{
    if (!exec->server || step->group != ECH_GROUP_PUSHED)
        return step->adds ? ECH_DELIVER_ADDED : ECH_DELIVER_OVER;
    const ech_served *served = &exec->server->served[step->turn];
    if (served->dropped) return ECH_DELIVER_DROPPED;
    return served->first ? ECH_DELIVER_OVER : ECH_DELIVER_ADDED;
}

/* Nothing is applied of parts that have not arrived; other buckets' parts that have arrived may
 * be. */
void ech_exec_lose_push(ech_exec *exec, const ech_step *step)
{
    static const double one = 1;
    if (!exec->server || step->group != ECH_GROUP_PUSHED) return;
    exec->server->log[step->turn].dropped = true;
    exec->device->copy(ech_exec_queue(exec, step), &ech_exec_row(exec, step->turn)->withheld, &one,
                       sizeof one);
}

bool ech_exec_updates_in(const ech_exec *exec, int turn)
{
    return !exec->server || exec->list->kind != ECH_LIST_TRAIN ||
           exec->server->served[turn].updates;
}

/* ---- TALLY ---- */

/* The first server sends the clocks to all. */
static ech_status tell_clocks(ech_exec *exec)
{
    int first = ech_layout_workers(layout_of(exec)), world = layout_of(exec)->world, n = 0;
    int64_t *clock = exec->pushes.clock;
    size_t bytes = (size_t)first * sizeof *clock;
    if (exec->plan->rank != first) {
        ech_request heard;
        ECH_TRY(ech_comm_receive_start(exec->comm, first, TAG, clock, bytes, &heard));
        return ech_comm_wait(exec->comm, &heard, 1);
    }
    ech_request *told = exec->server->told;
    for (int w = 0; w < first; w++) clock[w] += exec->server->serving.done[w];
    for (int rank = 0; rank < world; rank++)
        if (rank != first)
            ECH_TRY(ech_comm_send_start(exec->comm, rank, TAG, clock, bytes, &told[n++]));
    return ech_comm_wait(exec->comm, told, n);
}

/* For sums, the squares and the withheld flag are the servers' own. Turns without a push have
 * updated nothing. */
static ech_status take_sums(ech_exec *exec, const ech_step *step)
{
    ech_server *server = exec->server;
    bool withheld = false;
    if (!server || !server->serving.drops) return ECH_OK;
    ECH_TRY(ech_scalars_await_all(exec, step));
    for (int turn = exec->list->turns - 1; turn >= 0; turn--) {
        const ech_served *served = &server->served[turn];
        const ech_scalar_row *row = ech_scalars_staged(exec, turn);
        if (served->updates) {
            server->step[served->clock].squares = row->squares_sum;
            withheld = row->withheld > 0;
        }
        server->log[turn].withheld = withheld && !served->dropped;
    }
    return ECH_OK;
}

ech_status ech_handle_TALLY(ech_exec *exec, const ech_step *step)
{
    bool first = exec->plan->rank == ech_layout_workers(layout_of(exec));
    /* rows of scalars, and loads of turns without a push, which read the clocks */
    ECH_TRY(ech_queue_wait(exec, step));
    if (exec->pushes.clock) ECH_TRY(tell_clocks(exec));
    ECH_TRY(take_sums(exec, step));
    return ech_scalars_tally(exec, step, first ? exec->server->step : NULL);
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

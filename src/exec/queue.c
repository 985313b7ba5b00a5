/* SPDX-License-Identifier: Apache-2.0
 *
 * The queues of a rank. On a device that is not immediate a step is complete, for the threads of
 * the lanes, when all of its work has been queued. Its queue waits for the events of the step's
 * dependencies, its handler queues its work, and its own event is recorded after that. At the
 * list's end the host waits once, for all of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "exec/state.h"

/* How long the host sleeps before it checks again whether the list has ended. */
enum { NAP_NS = 20000 };
/* Seconds without progress until the board shows which ranks the device waits for. */
static const double report_seconds = 10e-3;

/* ---- choice of the queue ---- */

static int count_queues(const ech_exec *exec)
{
    return ech_queues_of(exec->plan->model->block.n);
}

ech_queue *ech_exec_queue(const ech_exec *exec, const ech_step *step)
{
    return exec->on[ech_step_queue(step)].queue;
}

static ech_status make_queue(const ech_exec *exec, int queue)
{
    ech_comm_queue *on = &exec->on[queue];
    if (on->queue) return ECH_OK;
    on->device = exec->device;
    on->blocks = ech_queue_blocks(queue);
    ECH_TRY(exec->device->queue_create(&on->queue));
    if (on->blocks && exec->device->prefer) exec->device->prefer(on->queue);
    ECH_TRY(exec->device->event_create(&on->mark));
    /* by this thread first: a device may create it now */
    exec->device->record(on->mark, on->queue);
    return ECH_OK;
}

/* Transfers of several queues are under way at once, in an order that differs between ranks, and
 * each holds thread blocks of its GPU until the other side's has come. They end only if all of them
 * run at once, so a GPU must have room for all, and for kernels besides. */
static ech_status check_blocks(const ech_exec *exec)
{
    enum { KERNELS = 16 };
    int blocks = 0, most = exec->device->multiprocessors ? exec->device->multiprocessors() : 0;
    for (int q = 0; q < count_queues(exec); q++)
        blocks += exec->on[q].queue ? exec->on[q].blocks : 0;
    if (!most || !ech_comm_joins(exec->comm) || blocks <= most - KERNELS) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "parallel.comm = nccl: rank %d may have %d thread blocks of messages and collectives "
             "on its GPU at once, and of its %d multiprocessors %d are for kernels; use fewer "
             "virtual stages (parallel.virtual_stages) or a shorter pipeline",
             exec->plan->rank, blocks, most, KERNELS);
}

static ech_status make_queues(ech_exec *exec)
{
    const ech_plan *plan = exec->plan;
    exec->on = ech_pool_alloc(exec->pool, (size_t)count_queues(exec) * sizeof *exec->on);
    ECH_TRY(make_queue(exec, ECH_LANE_COMPUTE));
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t s = 0; s < plan->list[l].step.n; s++)
            ECH_TRY(make_queue(exec, ech_step_queue(&plan->list[l].step.at[s])));
    return check_blocks(exec);
}

/* ---- events ---- */

static ech_status make_events(ech_exec *exec, size_t n, ech_event ***out)
{
    ech_event **events = ech_pool_alloc(exec->pool, (n + 1) * sizeof *events); /* then NULL */
    *out = events;
    for (size_t i = 0; i < n; i++) ECH_TRY(exec->device->event_create(&events[i]));
    return ECH_OK;
}

static void destroy_events(const ech_exec *exec, ech_event **events)
{
    for (; events && *events; events++) exec->device->event_destroy(*events);
}

/* For a queue that is a thread. */
static void prepare_thread(void *argument)
{
    const ech_exec *exec = *(ech_exec **)argument;
    ech_log_set_rank(exec->plan->rank);
    ech_kernel_context_enter(exec->context);
}

ech_status ech_queues_create(ech_exec *exec, size_t steps, size_t ticks)
{
    ech_events *events = &exec->events;
    ECH_TRY(make_queues(exec));
    if (exec->device->is_immediate) return ECH_OK;
    ECH_TRY(exec->device->event_create(&events->began));
    ECH_TRY(make_events(exec, (size_t)count_queues(exec), &events->queue));
    ECH_TRY(make_events(exec, steps, &events->begins));
    ECH_TRY(make_events(exec, steps, &events->ends));
    ECH_TRY(make_events(exec, ticks, &events->marks));
    for (int q = 0; q < count_queues(exec); q++)
        if (exec->on[q].queue)
            exec->device->call(exec->on[q].queue, prepare_thread, &exec, sizeof exec);
    events->peers =
        ech_pool_alloc(exec->pool, (size_t)(ECH_LANES + 1) * (size_t)exec->plan->layout->world *
                                       sizeof *events->peers);
    events->marked.at = ech_grow(NULL, &events->marked.capacity, ticks, sizeof(int));
    return ECH_OK;
}

void ech_queues_destroy(ech_exec *exec)
{
    for (int q = 0; exec->on && q < count_queues(exec); q++) {
        ech_comm_disconnect(exec->comm, &exec->on[q]);
        exec->device->queue_destroy(exec->on[q].queue);
        exec->device->event_destroy(exec->on[q].mark);
    }
    if (!exec->device->is_immediate) exec->device->event_destroy(exec->events.began);
    destroy_events(exec, exec->events.queue);
    destroy_events(exec, exec->events.begins);
    destroy_events(exec, exec->events.ends);
    destroy_events(exec, exec->events.marks);
    free(exec->events.marked.at);
}

/* ---- peers of a queue of messages ---- */

static void find_met(const ech_exec *exec, int queue, bool *met)
{
    const ech_plan *plan = exec->plan;
    memset(met, 0, (size_t)plan->layout->world * sizeof *met);
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t s = 0; s < plan->list[l].step.n; s++) {
            const ech_step *step = &plan->list[l].step.at[s];
            if (ech_step_queue(step) == queue) met[step->peer] = true;
        }
}

/* By queue, then by peer, so that all pairs of ranks, (lower, higher), join in one order. */
ech_status ech_queues_join(ech_exec *exec)
{
    int world = exec->plan->layout->world, rank = exec->plan->rank;
    if (exec->device->is_immediate) return ECH_OK;
    ECH_FREED bool *met = ech_calloc((size_t)world, sizeof *met);
    for (int q = ECH_LANES; q < count_queues(exec); q++) {
        char name[64];
        snprintf(name, sizeof name, "%s at block %d", ech_message_name(ech_queue_message(q)),
                 ech_queue_boundary(q));
        if (exec->on[q].queue) find_met(exec, q, met);
        for (int peer = 0; peer < world && exec->on[q].queue; peer++) {
            int pair[] = {peer < rank ? peer : rank, peer < rank ? rank : peer};
            if (met[peer]) ECH_TRY(ech_comm_join(exec->comm, &exec->on[q], name, pair, 2));
        }
    }
    return ECH_OK;
}

/* ---- a step ---- */

void ech_queue_await(ech_exec *exec, const ech_step *step)
{
    ech_queue *queue = ech_exec_queue(exec, step);
    for (int i = 0; i < step->afters && !exec->device->is_immediate; i++) {
        int after = exec->list->after.at[step->first_after + i];
        if (queue != ech_exec_queue(exec, &exec->list->step.at[after]))
            exec->device->wait(queue, exec->events.ends[after]);
    }
}

void ech_queue_record(ech_exec *exec, int step, bool ends)
{
    const ech_step *of = &exec->list->step.at[step];
    ech_event **events = ends ? exec->events.ends : exec->events.begins;
    exec->device->record(events[step], ech_exec_queue(exec, of));
    if (ends && of->lane == ECH_LANE_COMPUTE) exec->events.put = (size_t)step + 1;
}

void ech_queue_mark(ech_exec *exec, int tick)
{
    exec->device->record(exec->events.marks[tick], exec->on[ECH_LANE_COMPUTE].queue);
    exec->events.marked.at[exec->events.marked.n++] = tick;
}

/* ---- a run ---- */

void ech_queues_begin(ech_exec *exec)
{
    ech_queue *compute = exec->on[ECH_LANE_COMPUTE].queue;
    exec->events.put = exec->events.shown = exec->events.marked.n = 0;
    exec->device->record(exec->events.began, compute);
    for (int q = 0; q < count_queues(exec); q++)
        if (exec->on[q].queue) exec->device->wait(exec->on[q].queue, exec->events.began);
}

/* ---- waits of the host ---- */

static bool is_reached(const ech_exec *exec, int step)
{
    bool reached;
    return exec->device->query(exec->events.ends[step], &reached) != ECH_OK || reached;
}

/* Shows on the board the step that the compute queue has reached, which remains if the device
 * fails. True: it has changed. */
static bool show_position(ech_exec *exec)
{
    const ech_list *list = exec->list;
    size_t *at = &exec->events.shown, before = *at;
    for (bool reached = true; *at < exec->events.put; ++*at) {
        if (list->step.at[*at].lane != ECH_LANE_COMPUTE) continue;
        if (exec->device->query(exec->events.ends[*at], &reached) != ECH_OK || !reached) break;
    }
    if (*at < exec->events.put) ech_exec_show_position(exec, &list->step.at[*at]);
    return *at > before;
}

bool ech_queue_is_free(const ech_exec *exec, const ech_step *step)
{
    for (int i = 0; i < step->afters && !exec->device->is_immediate; i++)
        if (!is_reached(exec, exec->list->after.at[step->first_after + i])) return false;
    return true;
}

/* The first step of its queue that has not ended. */
static int first_of_queue(const ech_exec *exec, int step)
{
    const ech_step *steps = exec->list->step.at;
    int s = 0;
    while (s < step && (ech_step_queue(&steps[s]) != ech_step_queue(&steps[step]) ||
                        !ech_exec_is_complete(exec, s) || is_reached(exec, s)))
        s++;
    return s;
}

/* The step whose own work is not done, among the dependencies of the compute queue's current step;
 * once these are done, any other. NULL: none. */
static const ech_step *find_standing(const ech_exec *exec)
{
    const ech_list *list = exec->list;
    int s = (int)exec->events.shown, n = (int)list->step.n;
    if (exec->events.shown >= exec->events.put)
        for (s = 0; s < n && (!ech_exec_is_complete(exec, s) || is_reached(exec, s));) s++;
    for (int before = -1; s < n && s != before;) {
        const ech_step *step = &list->step.at[s = first_of_queue(exec, s)];
        before = s;
        for (int i = 0; i < step->afters; i++)
            if (!is_reached(exec, list->after.at[step->first_after + i]))
                s = list->after.at[step->first_after + i];
    }
    return s < n ? &list->step.at[s] : NULL;
}

/* The ranks with which the step communicates. */
static int find_peers(const ech_exec *exec, const ech_step *step, int *peers)
{
    const ech_plan *plan = exec->plan;
    int left = 0, n = 0;
    if (step && (ech_step_sends(step) || ech_step_receives(step))) {
        peers[0] = step->peer;
        return 1;
    }
    if (step && ech_step_gathers(step))
        n = ech_layout_members(plan->layout, plan->model, plan->rank, step->group, peers);
    for (int i = 0; i < n; i++)
        if (peers[i] != plan->rank) peers[left++] = peers[i];
    return left;
}

/* The device has reported the fault; this reports its location. */
static ech_status tell_fault(const ech_exec *exec)
{
    const ech_list *list = exec->list;
    size_t at = exec->events.shown < exec->events.put ? exec->events.shown : list->step.n - 1;
    ECH_FAIL(ECH_EIO,
             "the device %s fails in the list \"%s\" of step %lld; the last step known to have "
             "begun is %s; if it happens again, report it with the run file",
             exec->device->name, ech_list_name(list->kind), (long long)exec->step,
             exec->where[list->kind][at]);
}

/* step: as for wait_for. */
static ech_status report_stalled(const ech_exec *exec, const ech_step *step, double seconds)
{
    int room = step ? (int)step->lane : ECH_LANES;
    int *peers = exec->events.peers + room * exec->plan->layout->world;
    int n = find_peers(exec, step ? step : find_standing(exec), peers);
    return ech_comm_stalled(exec->comm, peers, n, seconds);
}

/* Waits on the thread of the step's lane; NULL: on the rank's thread, for the compute queue, which
 * makes progress. The run fails past the deadline without any progress. */
static ech_status wait_for(ech_exec *exec, ech_event *event, const ech_step *step)
{
    double progress_at = ech_clock_now(), looked_at = progress_at;
    bool shown = false;
    for (bool reached = false;;) {
        if (exec->device->query(event, &reached) != ECH_OK) return tell_fault(exec);
        if (reached) break;
        if (step && ech_exec_has_failed(exec)) return ECH_EABORTED;
        if (!step) ECH_TRY(ech_exec_watch_files(exec));
        double now = ech_clock_now();
        progress_at += ech_clock_take_gap(&looked_at, now);
        if (!step && show_position(exec)) progress_at = now;
        if (now - progress_at > report_seconds) {
            shown = true;
            ECH_TRY(report_stalled(exec, step, now - progress_at));
        }
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    if (shown) ech_comm_set_wait(exec->comm, -1);
    return ech_comm_check(exec->comm);
}

/* The step's event is recorded again after all of it. */
ech_status ech_queue_wait(ech_exec *exec, const ech_step *step)
{
    if (exec->device->is_immediate) return ECH_OK;
    ech_event *event = exec->events.ends[step - exec->list->step.at];
    exec->device->record(event, ech_exec_queue(exec, step));
    return wait_for(exec, event, step);
}

/* The list's times, from events. */
static void take_times(ech_exec *exec)
{
    const ech_events *events = &exec->events;
    ech_exec_times *times = &exec->times;
    double (*elapsed)(const ech_event *, const ech_event *) = exec->device->elapsed;
    for (size_t s = 0; s < exec->list->step.n; s++) {
        times->begins[s] = times->began + elapsed(events->began, events->begins[s]);
        times->ends[s] = times->began + elapsed(events->began, events->ends[s]);
    }
    for (size_t i = 0; i < events->marked.n; i++) {
        int tick = events->marked.at[i];
        times->marks[tick] = times->began + elapsed(events->began, events->marks[tick]);
    }
}

ech_status ech_queues_end(ech_exec *exec)
{
    ech_queue *compute = exec->on[ECH_LANE_COMPUTE].queue;
    ech_event **ends = exec->events.queue;
    for (int q = 0; q < count_queues(exec); q++) {
        if (!exec->on[q].queue || exec->on[q].queue == compute) continue;
        exec->device->record(ends[q], exec->on[q].queue);
        exec->device->wait(compute, ends[q]);
    }
    exec->device->record(ends[ECH_LANE_COMPUTE], compute);
    ECH_TRY(wait_for(exec, ends[ECH_LANE_COMPUTE], NULL));
    if (exec->records && !ech_exec_has_failed(exec)) take_times(exec);
    return ECH_OK;
}

bool ech_queues_are_idle(const ech_exec *exec)
{
    bool idle = true;
    ech_event *end = exec->events.queue ? exec->events.queue[ECH_LANE_COMPUTE] : NULL;
    return !end || (exec->device->query(end, &idle) == ECH_OK && idle);
}

/* ---- host work in the queue's order ---- */

typedef struct work {
    ech_exec *exec;
    const ech_step *step;
    ech_work *body;
} work;

static void do_work(void *argument)
{
    const work *w = argument;
    if (!ech_exec_has_failed(w->exec)) ech_exec_fail(w->exec, w->body(w->exec, w->step));
}

void ech_exec_put(ech_exec *exec, const ech_step *step, ech_work *body)
{
    work w = {exec, step, body};
    exec->device->call(ech_exec_queue(exec, step), do_work, &w, sizeof w);
}

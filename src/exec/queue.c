/* SPDX-License-Identifier: Apache-2.0
 *
 * The queues of a rank. On a device that is not immediate a step is complete, for the threads of the lanes, when all of its
 * work has been put: its queue waits for the events of the steps that it comes after, its handler puts its work there, and
 * its own event is recorded behind that. At the list's end the host waits once, for all of it.
 */
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "exec/state.h"

/* How long the host sleeps before it asks again whether the list has ended. */
enum { NAP_NS = 20000 };

/* ---- which queue ---- */

static int count_queues(const ech_exec *exec)
{
    return ECH_LANES + 2 * ((int)exec->plan->model->block.n + 1);
}

ech_queue *ech_exec_queue(const ech_exec *exec, const ech_step *step)
{
    return exec->on[ech_step_queue(step)].queue;
}

static ech_status make_queue(const ech_exec *exec, ech_comm_queue *on)
{
    if (on->queue) return ECH_OK;
    on->device = exec->device;
    ECH_TRY(exec->device->queue_create(&on->queue));
    return exec->device->event_create(&on->mark);
}

static ech_status make_queues(ech_exec *exec)
{
    const ech_plan *plan = exec->plan;
    exec->on = ech_pool_alloc(exec->pool, (size_t)count_queues(exec) * sizeof *exec->on);
    ECH_TRY(make_queue(exec, &exec->on[ECH_LANE_COMPUTE]));
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t s = 0; s < plan->list[l].step.n; s++)
            ECH_TRY(make_queue(exec, &exec->on[ech_step_queue(&plan->list[l].step.at[s])]));
    return ECH_OK;
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

/* A queue that is a thread. */
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
    events->marked.at = ech_grow(NULL, &events->marked.capacity, ticks, sizeof(int));
    return ECH_OK;
}

void ech_queues_destroy(ech_exec *exec)
{
    for (int q = 0; exec->on && q < count_queues(exec); q++) {
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

/* Puts on the board the step at which the compute queue is. */
static ech_status show_position(ech_exec *exec)
{
    const ech_list *list = exec->list;
    size_t *at = &exec->events.shown;
    for (bool reached = true; *at < exec->events.put; ++*at) {
        if (list->step.at[*at].lane != ECH_LANE_COMPUTE) continue;
        ECH_TRY(exec->device->query(exec->events.ends[*at], &reached));
        if (!reached) {
            ech_exec_show_position(exec, &list->step.at[*at]);
            return ECH_OK;
        }
    }
    return ECH_OK;
}

/* The host waits for the list's end. */
static ech_status wait_for_end(ech_exec *exec)
{
    for (bool reached = false;;) {
        ECH_TRY(exec->device->query(exec->events.queue[ECH_LANE_COMPUTE], &reached));
        if (reached) return ECH_OK;
        ECH_TRY(show_position(exec));
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
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
    ECH_TRY(wait_for_end(exec));
    if (exec->records && !ech_exec_has_failed(exec)) take_times(exec);
    return ECH_OK;
}

/* ---- what the host does in its turn ---- */

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

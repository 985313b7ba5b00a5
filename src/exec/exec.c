/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter's core: lanes, and one loop.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "device/cores.h"
#include "exec/state.h"

typedef ech_status (*handler)(ech_exec *exec, const ech_step *step);

static const handler handlers[ECH_STEPS] = {
#define X(name, ...) [ECH_STEP_##name] = ech_handle_##name,
#include "schedule/steps.def"
#undef X
};

ech_status ech_exec_handle(ech_exec *exec, const ech_step *step)
{
    if (step->lane != ECH_LANE_COMPUTE) ech_ledger_check(exec, step, true);
    return handlers[step->kind](exec, step);
}

/* The lane whose thread runs the steps of a lane: its own, except that sends and receives share
 * one. */
static ech_lane engine_of(const ech_step *step)
{
    return step->lane == ECH_LANE_RECEIVE ? ECH_LANE_SEND : step->lane;
}

void ech_exec_fail(ech_exec *exec, ech_status status)
{
    int none = 0;
    if (status == ECH_OK) return;
    if (atomic_compare_exchange_strong(&exec->failed, &none, (int)status)) {
        snprintf(exec->error, sizeof exec->error, "%s", ech_last_error());
        ech_comm_raise(exec->comm);
    }
    ech_exec_wake(exec);
}

void ech_exec_show_position(ech_exec *exec, const ech_step *step)
{
    ech_comm_set_position(exec->comm, ech_exec_clock(exec, step->turn),
                          exec->where[exec->list->kind][step - exec->list->step.at]);
}

/* Runs a step of the compute lane. Values that died in it are dead before other lanes, which may
 * reuse their memory, continue. */
static ech_status compute_step(ech_exec *exec, const ech_step *step)
{
    ech_exec_show_position(exec, step);
    ech_ledger_advance(exec, step->tick);
    ECH_TRY(ech_exec_handle(exec, step));
    if (exec->observer) exec->observer(exec->observer_context, exec, step);
    ech_ledger_advance(exec, step->tick + ech_step_ticks(step));
    return ECH_OK;
}

/* Waits until a step's dependencies are complete. False: the run has failed. */
static bool await(ech_exec *exec, const ech_step *step)
{
    for (int i = 0; i < step->afters; i++)
        if (!ech_exec_wait_for(exec, exec->list->after.at[step->first_after + i], step->lane))
            return false;
    if (!ech_exec_has_begun(exec, step)) ech_queue_await(exec, step);
    return !ech_exec_has_failed(exec);
}

/* Skips a step of a turn for which the worker has no push; it takes no time. */
static ech_status pass_over(ech_exec *exec, const ech_step *step)
{
    bool marks = step->lane == ECH_LANE_COMPUTE;
    for (int i = 0; i < ech_step_ticks(step) && marks; i++) ech_exec_mark(exec, step->tick + i);
    return ECH_OK;
}

/* Runs a lane's steps of the list, one after the other. */
static ech_status run_in_order(ech_exec *exec, ech_lane lane)
{
    const ech_list *list = exec->list;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (engine_of(step) != lane) continue;
        if (!await(exec, step)) return ECH_OK;
        ech_exec_begin(exec, (int)s);
        ECH_TRY(ech_exec_is_idle(exec, step) ? pass_over(exec, step)
                : lane == ECH_LANE_COMPUTE   ? compute_step(exec, step)
                                             : ech_exec_handle(exec, step));
        ech_exec_complete(exec, (int)s);
    }
    return ECH_OK;
}

static void run_engine(ech_exec *exec, ech_lane lane)
{
    ech_exec_fail(exec, lane == ECH_LANE_SEND ? ech_link_run(exec) : run_in_order(exec, lane));
}

static void *engine_main(void *argument)
{
    ech_lane_thread *engine = argument;
    ech_exec *exec = engine->exec;
    uint64_t seen = 0;
    ech_log_set_rank(exec->plan->rank);
    ech_cores_release();
    for (;;) {
        pthread_mutex_lock(&exec->lock);
        while (engine->run == seen && !exec->quit) pthread_cond_wait(&engine->woken, &exec->lock);
        seen = engine->run;
        bool quit = exec->quit;
        pthread_mutex_unlock(&exec->lock);
        if (quit) return NULL;
        run_engine(exec, engine->lane);
        pthread_mutex_lock(&exec->lock);
        if (--exec->busy <= exec->stuck) pthread_cond_signal(&exec->engine[ECH_LANE_COMPUTE].woken);
        pthread_mutex_unlock(&exec->lock);
    }
}

/* Starts threads for the lanes that some list uses. */
static ech_status start_engines(ech_exec *exec)
{
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t s = 0; s < exec->plan->list[l].step.n; s++)
            exec->engine[engine_of(&exec->plan->list[l].step.at[s])].used[l] = true;
    for (ech_lane lane = ECH_LANE_COMPUTE + 1; lane < ECH_LANES; lane++) {
        ech_lane_thread *engine = &exec->engine[lane];
        engine->exec = exec;
        engine->lane = lane;
        if (!memchr(engine->used, true, sizeof engine->used)) continue;
        if (pthread_create(&engine->thread, NULL, engine_main, engine) != 0)
            ECH_FAIL(ECH_EIO,
                     "cannot start another thread for the lanes of rank %d: " ECH_NO_THREAD,
                     exec->plan->rank);
        engine->started = true;
    }
    return ECH_OK;
}

/* Lanes on which this rank uses the group: lanes of steps, of the rank's own thread between lists,
 * and of the thread that writes checkpoints. One bit per lane. */
static unsigned find_lanes(const ech_plan *plan, ech_layout_group kind)
{
    unsigned lanes = 0;
    if (kind == ECH_GROUP_WORLD) lanes = 1u << ECH_LANE_COMPUTE | 1u << ECH_LANE_DISK;
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t s = 0; s < plan->list[l].step.n; s++) {
            const ech_step *step = &plan->list[l].step.at[s];
            if (ech_step_gathers(step) && step->group == kind) lanes |= 1u << step->lane;
        }
    return lanes;
}

/* Each channel of a sum or of a gather, lane by lane: all members have the same ones. */
static ech_status prepare_channels(ech_exec *exec, ech_layout_group kind)
{
    const ech_plan *plan = exec->plan;
    bool sums[ECH_LANES] = {0};
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t s = 0; s < plan->list[l].step.n; s++) {
            const ech_step *step = &plan->list[l].step.at[s];
            if (!ech_step_gathers(step) || step->group != kind) continue;
            sums[step->lane] |= ech_step_is_sum(step);
            if (ech_step_gathers_shards(plan, step))
                ech_group_prepare_gathers(exec->channel[kind][step->lane]);
        }
    for (int lane = 0; lane < ECH_LANES; lane++)
        if (sums[lane]) ECH_TRY(ech_group_prepare(exec->channel[kind][lane], plan->reduction));
    return ECH_OK;
}

/* Lane l has the group's channel l + 1; the channel that made the group is closed again. */
static ech_status make_group(ech_exec *exec, ech_layout_group kind, const int *members, int n)
{
    ech_group *group;
    unsigned lanes = find_lanes(exec->plan, kind);
    const ech_lineup *of = &exec->plan->lineup[kind];
    ECH_TRY(ech_group_create(exec->comm, ech_layout_group_name(kind), members, n, &group));
    if (of->machines) ech_group_set_machines(group, of->first, of->machines);
    if (of->stores) ech_group_set_stores(group, of->stores);
    for (int lane = 0; lane < ECH_LANES; lane++)
        if (lanes & 1u << lane) exec->channel[kind][lane] = ech_group_open(group, lane + 1);
    ech_group_destroy(group);
    return prepare_channels(exec, kind);
}
_Static_assert((int)ECH_LANES < (int)ECH_GROUP_LANES, "a channel for each lane");

static ech_status make_groups(ech_exec *exec)
{
    const ech_plan *plan = exec->plan;
    ECH_FREED int *members = ech_calloc((size_t)plan->layout->world, sizeof *members);
    for (ech_layout_group kind = 0; kind < ECH_GROUPS; kind++) {
        int n = ech_layout_members(plan->layout, plan->model, plan->rank, kind, members);
        if (kind == ECH_GROUP_PUSHED)
            ECH_TRY(ech_exec_make_pushed(exec));
        else if (n > 0)
            ECH_TRY(make_group(exec, kind, members, n));
    }
    ech_group_set_saves(exec->channel[ECH_GROUP_WORLD][ECH_LANE_DISK]);
    return ECH_OK;
}

/* Makes the texts that the board shows for steps once, so that steps cost only their work. */
static void name_positions(ech_exec *exec)
{
    ECH_FREED_TEXT text = {0};
    for (int l = 0; l < ECH_LIST_KINDS; l++) {
        const ech_list *list = &exec->plan->list[l];
        exec->where[l] = ech_pool_alloc(exec->pool, list->step.n * sizeof *exec->where[l]);
        for (size_t s = 0; s < list->step.n; s++) {
            text.n = 0;
            ech_step_print(&list->step.at[s], &text);
            snprintf(exec->where[l][s], ECH_POSITION_BYTES, "%s", text.at);
        }
    }
}

/* Records of each step, in arrays as long as the longest list. The number of messages in flight
 * depends on time, so there is room for all of a list. */
static ech_status allot_records(ech_exec *exec)
{
    size_t steps = 0, ticks = 0, messages = 1, requests = 1;
    for (int l = 0; l < ECH_LIST_KINDS; l++) {
        const ech_list *list = &exec->plan->list[l];
        size_t n = 0, transfers = 0;
        for (size_t s = 0; s < list->step.n; s++) {
            if (engine_of(&list->step.at[s]) != ECH_LANE_SEND) continue;
            n++;
            transfers += (size_t)list->step.at[s].accesses;
        }
        if (n > messages) messages = n;
        if (transfers > requests) requests = transfers;
        if (list->step.n > steps) steps = list->step.n;
        if ((size_t)list->ticks > ticks) ticks = (size_t)list->ticks;
    }
    exec->link_cursors =
        exec->device->is_immediate ? 2 : ech_queues_of(exec->plan->model->block.n) - ECH_LANES;
    exec->link_next =
        ech_pool_alloc(exec->pool, (size_t)exec->link_cursors * sizeof *exec->link_next);
    exec->link_wanted =
        ech_pool_alloc(exec->pool, (size_t)exec->link_cursors * sizeof *exec->link_wanted);
    exec->done = ech_pool_alloc(exec->pool, steps * sizeof *exec->done);
    exec->times.begins = ech_pool_alloc(exec->pool, steps * sizeof *exec->times.begins);
    exec->times.ends = ech_pool_alloc(exec->pool, steps * sizeof *exec->times.ends);
    exec->times.marks = ech_pool_alloc(exec->pool, ticks * sizeof *exec->times.marks);
    exec->posted.at = ech_grow(NULL, &exec->posted.capacity, messages, sizeof *exec->posted.at);
    exec->request = ech_pool_alloc(exec->pool, requests * sizeof *exec->request);
    return ech_queues_create(exec, steps, ticks);
}

/* The host arena is touched immediately, so that the first snapshot does not wait for page
 * faults. */
static ech_status take_arenas(ech_exec *exec)
{
    const int64_t *bytes = exec->plan->arena_bytes;
    void *device = NULL, *host = NULL;
    ECH_TRY(exec->device->alloc((size_t)bytes[ECH_SPACE_DEVICE], &device));
    exec->arena[ECH_SPACE_DEVICE] = device;
    ECH_TRY(exec->device->alloc_host((size_t)bytes[ECH_SPACE_HOST], &host));
    exec->arena[ECH_SPACE_HOST] = host;
    memset(host, 0, (size_t)bytes[ECH_SPACE_HOST]);
    ECH_TRY(ech_exec_map_shared(exec));
    return ech_exec_take_disk(exec);
}

static ech_status setup_exec(ech_exec *exec)
{
    const ech_plan *plan = exec->plan;
    size_t turns = (size_t)plan->list[ECH_LIST_TRAIN].turns;
    ECH_TRY(ech_exec_check_pace(exec));
    ech_exec_create_pushes(exec);
    ECH_TRY(make_groups(exec));
    ECH_TRY(ech_kernel_context_create(plan->threads, &exec->context));
    ECH_TRY(allot_records(exec));
    ech_kernel_context_defer(exec->context, exec->device, exec->on[ECH_LANE_COMPUTE].queue);
    exec->context->tf32 = exec->config->precision.tf32 == 1;
    for (int lane = 0; lane < ECH_LANES; lane++) {
        exec->lane_context[lane].threads = lane == ECH_LANE_HOST ? plan->host_threads : 1;
        ech_kernel_context_defer(&exec->lane_context[lane], exec->device, exec->on[lane].queue);
    }
    ECH_TRY(ech_collectives_create(exec));
    ECH_TRY(ech_queues_join(exec));
    ECH_TRY(ech_threads_bind(exec));
    ECH_TRY(take_arenas(exec));
    ech_threads_touch(exec);
    exec->list = &plan->list[ECH_LIST_INIT];
    ech_scalars_create(exec);
    exec->readings = ech_pool_alloc(exec->pool, turns * sizeof *exec->readings);
    ech_ledger_create(exec);
    ech_views_create(exec);
    ech_params_create(exec);
    name_positions(exec);
    ech_bounce_create(exec);
    return start_engines(exec);
}

ech_status ech_exec_create(const ech_exec_setup *setup, ech_exec **out)
{
    ECH_TRY(ech_comm_check_device(ech_comm_backend_of(setup->comm), setup->device,
                                  ech_comm_size(setup->comm)));
    ech_exec *exec = ech_calloc(1, sizeof *exec);
    exec->config = setup->config;
    exec->plan = setup->plan;
    exec->device = setup->device;
    exec->comm = setup->comm;
    exec->workers = 1;
    exec->replicas = 1;
    if (setup->plan->layout->sums != ECH_SUMS_ALL)
        ech_exec_set_replica(exec, setup->plan->layout->replicas[0],
                             setup->plan->layout->coordinates[setup->plan->rank].data);
    exec->curve = ech_curve_of(setup->config);
    exec->rate = -1;
    exec->clip_norm = setup->config->optimizer.clip_norm;
    exec->pool = ech_pool_create();
    ech_waits_create(exec);
    ech_status status = setup_exec(exec);
    if (status != ECH_OK) {
        ech_exec_destroy(exec);
        return status;
    }
    *out = exec;
    return ECH_OK;
}

void ech_exec_destroy(ech_exec *exec)
{
    if (!exec) return;
    pthread_mutex_lock(&exec->lock);
    exec->quit = true;
    pthread_mutex_unlock(&exec->lock);
    ech_exec_wake(exec);
    for (int i = 0; i < ECH_LANES; i++)
        if (exec->engine[i].started && !(exec->stuck && exec->watch[i].is_stuck))
            pthread_join(exec->engine[i].thread, NULL);
    ech_saver_free(&exec->saver);
    /* a device or a disk that hangs still uses all of it */
    if (exec->stuck || !ech_queues_are_idle(exec)) return;
    for (int i = 0; i < ECH_CHANNELS; i++)
        ech_group_destroy(exec->channel[i / ECH_LANES][i % ECH_LANES]);
    for (int i = 0; i < ech_exec_pushed_channels(exec); i++)
        ech_group_destroy(ech_exec_pushed_channel(exec, i));
    ech_kernel_context_destroy(exec->context);
    for (int lane = 0; lane < ECH_LANES; lane++)
        ech_kernel_context_destroy(exec->lane_context[lane].inner);
    ech_threads_unbind(exec);
    ech_queues_destroy(exec);
    exec->device->release(exec->arena[ECH_SPACE_DEVICE],
                          (size_t)exec->plan->arena_bytes[ECH_SPACE_DEVICE]);
    exec->device->release_host(exec->arena[ECH_SPACE_HOST],
                               (size_t)exec->plan->arena_bytes[ECH_SPACE_HOST]);
    if (exec->arena[ECH_SPACE_SHARED]) ech_comm_unmap_shared(exec->comm);
    ech_disk_destroy(exec->disk);
    free(exec->posted.at);
    ech_pool_destroy(exec->pool);
    ech_waits_destroy(exec);
    ech_kept_gradients_destroy(exec->gradients);
    free(exec);
}

/* Begins the list's other lanes; threads that it does not need continue to sleep. */
static void call_engines(ech_exec *exec)
{
    exec->busy = 0;
    for (int lane = ECH_LANE_COMPUTE + 1; lane < ECH_LANES; lane++) {
        if (!exec->engine[lane].used[exec->list->kind]) continue;
        exec->engine[lane].run = exec->run;
        exec->busy++;
        pthread_cond_signal(&exec->engine[lane].woken);
    }
}

ech_status ech_exec_run(ech_exec *exec, ech_list_kind kind, int64_t step)
{
    pthread_mutex_lock(&exec->lock);
    exec->list = &exec->plan->list[kind];
    exec->step = step;
    ech_exec_begin_pushes(exec);
    exec->posted.n = exec->requested = 0;
    memset(exec->begun_step, 0, sizeof exec->begun_step);
    atomic_store(&exec->awaited, -1);
    ech_ledger_begin(exec);
    if (exec->records) exec->times.began = ech_clock_now();
    if (!exec->device->is_immediate) ech_queues_begin(exec);
    exec->run++;
    call_engines(exec);
    pthread_mutex_unlock(&exec->lock);

    run_engine(exec, ECH_LANE_COMPUTE);
    ech_exec_set_awaited(exec, ECH_AWAITS_ALL);

    pthread_mutex_lock(&exec->lock);
    while (exec->busy > exec->stuck) ech_exec_rest(exec);
    pthread_mutex_unlock(&exec->lock);
    if (!exec->device->is_immediate) ech_exec_fail(exec, ech_queues_end(exec));
    if (exec->records) exec->times.ended = ech_clock_now();
    exec->counts.host_waits++;
    exec->version += exec->list->updates;
    ech_status status = (ech_status)atomic_load(&exec->failed);
    if (status != ECH_OK) {
        ech_set_last_error(exec->error);
        return status;
    }
    ech_scalars_take(exec);
    ech_logits_take(exec);
    return status;
}

void ech_exec_set_loader(ech_exec *exec, ech_purpose purpose, ech_loader *loader)
{
    bool pushes = exec->pushes.clock && !exec->server && purpose == ECH_TRAIN;
    exec->loader[purpose] = loader;
    if (pushes) ech_loader_rewind(loader, exec->pushes.clock[exec->plan->rank]);
}

void ech_exec_observe(ech_exec *exec, ech_observer observer, void *context)
{
    exec->observer = observer;
    exec->observer_context = context;
}

const double *ech_exec_logits(const ech_exec *exec)
{
    return ech_exec_look(exec, exec->plan->logits);
}

void ech_exec_ask(ech_exec *exec, bool stop, bool save_now)
{
    exec->ask_stop = stop;
    exec->ask_save = save_now;
}

ech_group *ech_exec_world(ech_exec *exec)
{
    return exec->channel[ECH_GROUP_WORLD][ECH_LANE_COMPUTE];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalars on the device: COUNT writes the host's numbers before a turn, REDUCE folds them, READ
 * fetches them, and the host reads them when the list has ended. State that outlives a list, such
 * as the number of updates and the scaler, is on the host and is advanced then.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "exec/state.h"

static size_t row_bytes(const ech_exec *exec)
{
    return (size_t)ech_plan_row(exec->plan) * sizeof(double);
}

void ech_scalars_create(ech_exec *exec)
{
    exec->scalars = ech_exec_look(exec, exec->plan->scalars);
    exec->staged = ech_exec_look(exec, exec->plan->staged);
}

ech_scalar_row *ech_exec_row(const ech_exec *exec, int turn)
{
    return (ech_scalar_row *)(void *)(exec->scalars + (size_t)turn * row_bytes(exec));
}

static ech_scalar_row *staged_row(const ech_exec *exec, int turn)
{
    return (ech_scalar_row *)(void *)(exec->staged + (size_t)turn * row_bytes(exec));
}

static void put_row(ech_exec *exec, const ech_step *step)
{
    exec->device->copy(ech_exec_queue(exec, step), ech_exec_row(exec, step->turn),
                       staged_row(exec, step->turn), row_bytes(exec));
}

static void fetch_row(ech_exec *exec, const ech_step *step)
{
    exec->device->copy(ech_exec_queue(exec, step), staged_row(exec, step->turn),
                       ech_exec_row(exec, step->turn), row_bytes(exec));
}

/* ---- COUNT ---- */

static bool is_asynchronous(const ech_exec *exec)
{
    return !ech_weights_are_synchronous(exec->plan->schedule->weights);
}

/* Number of ranks that each add a fraction of the step's learning rate. */
static int adders(const ech_exec *exec)
{
    return ech_protocol_of(exec->plan->layout)->adders(exec->plan->layout);
}

/* Of the step that makes that update. */
static double rate_of(const ech_exec *exec, int64_t update)
{
    return exec->rate < 0 ? ech_learning_rate(exec->config, exec->curve, update) : exec->rate;
}

void ech_exec_set_rate(ech_exec *exec, double rate)
{
    exec->rate = rate;
}

void ech_exec_set_clip_norm(ech_exec *exec, double norm)
{
    exec->clip_norm = norm;
}

/* W pushes belong to one step, and together move the weights as far as one update. */
static void number_update(const ech_exec *exec, int64_t number, ech_scalar_row *row)
{
    int64_t step = (number - 1) / exec->workers + 1;
    int64_t parts = (int64_t)exec->workers * adders(exec);
    row->updates = number;
    row->learning_rate = rate_of(exec, step) / (double)parts;
}

void ech_exec_set_workers(ech_exec *exec, int workers)
{
    exec->workers = workers;
}

void ech_exec_set_replica(ech_exec *exec, int replicas, int replica)
{
    exec->replicas = replicas;
    exec->replica = replica;
}

/* The updates of a span are numbered before it runs, since a withheld update counts, too. */
static void stage_update(const ech_exec *exec, int turn, ech_scalar_row *row)
{
    row->loss_scale = exec->scaler.scale;
    row->loss_factor = row->tokens > 0 ? row->loss_scale / row->tokens : 0;
    /* a replica that updates alone has a share of the step's samples */
    double samples = (double)exec->config->training.global_batch_size / exec->replicas;
    row->group_factor = row->loss_scale * (double)exec->config->model.moe_group_samples / samples;
    number_update(exec, exec->updates + 1 + turn, row);
    row->withheld = exec->scanning;
}

static void put_flags(const ech_exec *exec, ech_scalar_row *row)
{
    row->stop = exec->ask_stop;
    row->save_now = exec->ask_save;
    row->save_failed = ech_saver_has_failed(&exec->saver);
}

/* With queues the host does not know. */
static double take_idle(ech_exec *exec)
{
    if (ech_layout_serves(exec->plan->layout, exec->plan->rank)) return 0; /* only for workers */
    if (!exec->device->is_immediate) return (double)NAN;
    double now = ech_clock_now(), since = now - exec->counted_at, waited = exec->waited;
    bool known = exec->counted_at > 0 && since > 0;
    exec->counted_at = now;
    exec->waited = 0;
    return known ? waited / since : (double)NAN;
}

/* Runs on the queue, since the loader keeps a turn's batch until the next turn's is requested. */
static ech_status stage_row(ech_exec *exec, const ech_step *step)
{
    ech_scalar_row *row = staged_row(exec, step->turn);
    const ech_batch *batch;
    ECH_TRY(ech_exec_find_batch(exec, step, &batch));
    memset(row, 0, row_bytes(exec));
    row->tokens = batch->step_tokens;
    row->step = ech_exec_clock(exec, step->turn);
    put_flags(exec, row);
    if (!ech_list_kind_trains(exec->list->kind)) return ECH_OK;
    row->idle = take_idle(exec);
    stage_update(exec, step->turn, row);
    double delay = ech_protocol_delay(exec->plan, ECH_STEP_COUNT);
    if (delay > 0 && !ech_exec_is_void(exec, step->turn))
        ech_clock_sleep_until(ech_clock_now() + delay);
    return ECH_OK;
}

ech_status ech_handle_COUNT(ech_exec *exec, const ech_step *step)
{
    ech_exec_put(exec, step, stage_row);
    ech_exec_mark(exec, step->tick);
    put_row(exec, step);
    return ECH_OK;
}

/* For sampling, whose lists have no COUNT. */
void ech_scalars_put_position(ech_exec *exec, const ech_step *step)
{
    staged_row(exec, step->turn)->position = exec->position;
    exec->device->copy(ech_exec_queue(exec, step), &ech_exec_row(exec, step->turn)->position,
                       &staged_row(exec, step->turn)->position, sizeof exec->position);
}

/* ---- updates ---- */

static ech_update update_of(const ech_scalar_row *row)
{
    return (ech_update){.rate = &row->learning_rate,
                        .number = &row->updates,
                        .grad_scale = 1,
                        .clip = &row->clip,
                        .withheld = &row->withheld};
}

ech_update ech_scalars_update(const ech_exec *exec, int turn)
{
    return update_of(ech_exec_row(exec, turn));
}

ech_update ech_scalars_update_on_host(const ech_exec *exec, int turn)
{
    return update_of(staged_row(exec, turn));
}

ech_status ech_handle_READ_UPDATE(ech_exec *exec, const ech_step *step)
{
    fetch_row(exec, step);
    return ECH_OK;
}

/* ---- pushes ---- */

ech_status ech_scalars_await(ech_exec *exec, const ech_step *step, const ech_scalar_row **out)
{
    fetch_row(exec, step);
    ECH_TRY(ech_queue_wait(exec, step));
    *out = staged_row(exec, step->turn);
    return ECH_OK;
}

ech_status ech_scalars_await_all(ech_exec *exec, const ech_step *step)
{
    exec->device->copy(ech_exec_queue(exec, step), exec->staged, exec->scalars,
                       (size_t)exec->list->turns * row_bytes(exec));
    return ech_queue_wait(exec, step);
}

const ech_scalar_row *ech_scalars_staged(const ech_exec *exec, int turn)
{
    return staged_row(exec, turn);
}

void ech_scalars_put(ech_exec *exec, const ech_step *step, int update, const ech_scalar_row *row)
{
    ech_scalar_row *staged = staged_row(exec, step->turn);
    memset(staged, 0, row_bytes(exec));
    *staged = *row;
    number_update(exec, exec->updates * exec->workers + 1 + update, staged);
    put_row(exec, step);
}

/* The total of squares for the norm is in the first parameter's place. */
static void tally_step(const ech_pushed_step *of, ech_scalar_row *row)
{
    row->loss = of->loss;
    row->loss_weight = of->loss_weight;
    row->squares[0] = of->squares;
    row->idle = of->idle;
    row->staleness = of->staleness;
}

/* A worker's turns are training steps, with layers' reports in its rows; a server's turns are
 * pushes. */
static ech_status keep_reports(ech_exec *exec, const ech_step *step)
{
    const ech_plan *plan = exec->plan;
    size_t others = row_bytes(exec) - (size_t)plan->model->reports * sizeof(double);
    bool works = plan->model->reports > 0 && !ech_layout_serves(plan->layout, plan->rank);
    if (works) ECH_TRY(ech_scalars_await_all(exec, step));
    for (int turn = 0; turn < plan->schedule->turns; turn++)
        memset(staged_row(exec, turn), 0, works ? others : row_bytes(exec));
    return ECH_OK;
}

ech_status ech_scalars_tally(ech_exec *exec, const ech_step *step, const ech_pushed_step *steps)
{
    size_t n = (size_t)exec->plan->schedule->turns;
    ECH_TRY(keep_reports(exec, step));
    for (int turn = 0; turn < (int)n; turn++) {
        ech_scalar_row *row = staged_row(exec, turn);
        number_update(exec, exec->updates + 1 + turn, row);
        row->loss_scale = exec->scaler.scale;
        put_flags(exec, row);
        if (steps) tally_step(&steps[turn], row);
    }
    exec->device->copy(ech_exec_queue(exec, step), exec->scalars, exec->staged,
                       n * row_bytes(exec));
    return ECH_OK;
}

double ech_exec_scalar(ech_exec *exec, int index)
{
    double value;
    ech_exec_copy(exec, &value, (double *)ech_exec_row(exec, 0) + index, sizeof value);
    return value;
}

void ech_exec_set_scalar(ech_exec *exec, int index, double value)
{
    ech_exec_copy(exec, (double *)ech_exec_row(exec, 0) + index, &value, sizeof value);
}

/* ---- REDUCE: member 0 gathers the numbers, folds them in member order, and sends the result to
 * all ---- */

static double *reduced(const ech_exec *exec, const ech_step *step)
{
    ech_exec_address(exec, step, exec->plan->scalars);
    return (double *)ech_exec_row(exec, step->turn) + step->index;
}

static ech_status gather(ech_exec *exec, const ech_step *step)
{
    return ech_group_gather(exec->channel[step->group][step->lane],
                            ech_exec_address(exec, step, step->scratch), reduced(exec, step),
                            (size_t)step->count * sizeof(double));
}

static ech_status spread(ech_exec *exec, const ech_step *step)
{
    return ech_group_broadcast(exec->channel[step->group][step->lane], 0, reduced(exec, step),
                               (size_t)step->count * sizeof(double));
}

/* Tensor ranks have the same loss; only the first counts it. */
static void count_own_loss(ech_exec *exec, const ech_step *step)
{
    ech_scalar_row *row = ech_exec_row(exec, step->turn);
    bool counts = exec->plan->layout->coordinates[exec->plan->rank].tensor == 0;
    int loss = ECH_SCALAR_LOSS;
    if (counts || step->index > loss || loss >= step->index + step->count) return;
    exec->device->fill(ech_exec_queue(exec, step), &row->loss, 0, ECH_LOSS_SUMS * sizeof(double));
}

/* A lost member adds nothing, and does not take part in a maximum. */
static void leave_out(ech_exec *exec, const ech_step *step, const ech_tensor *all, int member)
{
    size_t bytes = (size_t)step->count * sizeof(double);
    char *row = (char *)all->data + (size_t)member * bytes;
    if (step->maximum)
        exec->device->copy(ech_exec_queue(exec, step), row, all->data, bytes);
    else
        exec->device->fill(ech_exec_queue(exec, step), row, 0, bytes);
}

static ech_status reduce(ech_exec *exec, const ech_step *step)
{
    const ech_group *group = exec->channel[step->group][step->lane];
    ech_tensor all = ech_tensor_2d(ech_exec_address(exec, step, step->scratch), ECH_F64,
                                   ech_group_size(group), step->count);
    ech_tensor one = ech_tensor_1d(reduced(exec, step), ECH_F64, step->count);
    if (step->group != ECH_GROUP_REPLICAS) count_own_loss(exec, step);
    ECH_TRY(gather(exec, step));
    for (int m = 1; ech_group_index(group) == 0 && m < ech_group_size(group); m++)
        if (ech_group_has_missed(group, m)) leave_out(exec, step, &all, m);
    if (ech_group_index(group) == 0)
        exec->plan->kernels->fold(&exec->lane_context[step->lane], &all, step->maximum, &one);
    return spread(exec, step);
}

ECH_HANDLE_BY(REDUCE, reduce)

/* ---- READ ---- */

/* The norm over all parameters. Under asynchronous schedules the row's own norm is a stage's. For
 * diverging replicas, the root mean square. */
static double whole_norm(const ech_exec *exec, const ech_scalar_row *row)
{
    double sum = 0;
    for (size_t i = 0; i < exec->plan->model->param.n; i++) sum += row->squares[i];
    const ech_layout *layout = exec->plan->layout;
    return sqrt(layout->alone ? sum / layout->replicas[0] : sum);
}

/* True if only the gradient is not finite, so that a smaller loss scale may help the next step. The
 * scaler of every rank sees the same folded numbers. */
static bool take_overflow(ech_exec *exec, const ech_scalar_row *s)
{
    bool overflow = !isfinite(s->squares_sum);
    if (!ech_scaler_is_dynamic(exec->config) || exec->scanning || !isfinite(s->loss) ||
        (overflow && s->loss_scale <= 1))
        return false;
    ech_scaler_take(&exec->scaler, overflow);
    return overflow;
}

/* In a span the host learns about a withheld step only at the end. */
static bool is_span(const ech_exec *exec)
{
    return is_asynchronous(exec) || exec->plan->schedule->weights == ECH_WEIGHTS_PULLED ||
           ech_list_is_delayed(exec->plan, exec->list);
}

/* A withheld step advances neither the optimizer's count nor the curve. In a span it does, since
 * under asynchronous schedules each stage withholds separately, and the count is the same
 * everywhere. A scan repeats a step that was withheld, and leaves it withheld even if the second
 * run finds nothing. */
static void read_update(ech_exec *exec, const ech_scalar_row *s, ech_readings *r)
{
    bool withheld = s->withheld > 0;
    if (!withheld || is_span(exec)) exec->updates = s->updates;
    r->grad_norm = ech_unsigned_nan(whole_norm(exec, s));
    double rate = s->learning_rate; /* the row has a fraction of it if several ranks add */
    if (adders(exec) > 1) rate = rate_of(exec, exec->updates);
    r->learning_rate = withheld ? 0 : rate;
    r->loss_scale = s->loss_scale;
    r->idle = s->idle / ech_layout_workers(exec->plan->layout);
    r->staleness = s->staleness / ech_layout_workers(exec->plan->layout);
    r->factored = s->ranks[ECH_RANK_MATRICES] > 0;
    if (r->factored) {
        r->rank = s->ranks[ECH_RANK_COLUMNS] / s->ranks[ECH_RANK_MATRICES];
        r->rank_short = s->ranks[ECH_RANK_SHORT] / s->ranks[ECH_RANK_MATRICES];
    }
    r->reports = &s->squares[exec->plan->model->param.n];
    r->clip = s->clip * s->loss_scale;
    r->updates = exec->updates;
    r->withheld = !isfinite(r->grad_norm) || !isfinite(r->loss);
    r->overflow = take_overflow(exec, s);
    r->save_now = s->save_now > 0;
    r->save_failed = s->save_failed > 0;
}

static void read_turn(ech_exec *exec, int turn)
{
    const ech_scalar_row *s = staged_row(exec, turn);
    ech_readings *r = &exec->readings[turn];
    r->loss_sum = ech_unsigned_nan(s->loss);
    r->tokens = s->loss_weight;
    r->loss = r->tokens > 0 ? r->loss_sum / r->tokens : 0;
    r->hits = s->hits;
    r->hits_of_5 = s->hits_of_5;
    r->stop = s->stop > 0;
    if (ech_list_kind_trains(exec->list->kind)) read_update(exec, s, r);
}

static void read_hashes(const ech_exec *exec, ech_readings *r)
{
    r->hash_differs = false;
    for (size_t s = 0; s < exec->list->step.n; s++) {
        const ech_step *step = &exec->list->step.at[s];
        if (step->kind != ECH_STEP_HASH) continue;
        const double *hash = (const double *)staged_row(exec, 0) + step->index;
        for (int i = 0; i < ECH_HASH_SCALARS / 2; i++)
            r->hash_differs |= hash[i] != -hash[ECH_HASH_SCALARS / 2 + i];
    }
}

void ech_scalars_take(ech_exec *exec)
{
    const ech_list *list = exec->list;
    int steps = exec->plan->schedule->turns; /* a server has more turns: pushes */
    if (!exec->fetched) return;
    exec->fetched = false;
    if (list->kind == ECH_LIST_CHECK)
        read_hashes(exec, exec->readings);
    else
        for (int turn = 0; turn < list->turns && turn < steps; turn++) read_turn(exec, turn);
}

/* The last step of its lane. */
ech_status ech_handle_READ(ech_exec *exec, const ech_step *step)
{
    exec->device->copy(ech_exec_queue(exec, step), exec->staged, exec->scalars,
                       (size_t)exec->list->turns * row_bytes(exec));
    exec->fetched = true;
    return ECH_OK;
}

/* ---- results ---- */

const ech_readings *ech_exec_readings(const ech_exec *exec)
{
    return exec->readings;
}

int64_t ech_exec_updates(const ech_exec *exec)
{
    return exec->updates;
}

void ech_exec_set_updates(ech_exec *exec, int64_t updates)
{
    exec->updates = updates;
}

ech_scaler ech_exec_scaler(const ech_exec *exec)
{
    return exec->scaler;
}

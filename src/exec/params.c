/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters, their gradients and optimizer states: INIT, NORM, STASH, HASH, and views of them.
 */

#include "exec/state.h"
#include "schedule/operands.h"
#include "schedule/states.h"

/* The shape of this rank's shard, with that data. */
static void set_view(const ech_exec *exec, int param, ech_dtype dtype, void *data, ech_tensor *out)
{
    *out = exec->param_view[param];
    out->dtype = dtype;
    out->data = data;
}

ech_tensor ech_exec_part(const ech_tensor *all, int64_t first, int64_t n, void *data)
{
    int64_t count = ech_tensor_count(all), row = n && n < count ? count / all->shape[0] : 1;
    ech_tensor rows = *all;
    rows.data = data;
    if (n == 0 || first % row || n % row) return ech_tensor_1d(data, all->dtype, n);
    if (n < count) rows.shape[0] = n / row;
    return rows;
}

/* Version k is in slot k mod versions; the version before the first is in the last slot. */
int ech_exec_weight_slot(const ech_exec *exec, const ech_bucket *bucket, int version)
{
    return ech_bucket_slot(bucket, exec->version + version);
}

void ech_exec_set_weights(const ech_exec *exec, int param, char *weights, ech_tensor *out)
{
    const ech_plan_param *p = &exec->plan->param[param];
    ech_dtype dtype = exec->plan->bucket.at[p->bucket].weight_dtype;
    set_view(exec, param, dtype, weights + (size_t)p->bucket_offset * ech_dtype_bytes(dtype), out);
}

/* This rank's part of a parameter; `memory` begins with element `from` of its bucket. */
static ech_tensor own_part(const ech_exec *exec, int param, ech_dtype dtype, char *memory,
                           int64_t from)
{
    const ech_plan_param *p = &exec->plan->param[param];
    int64_t first, n = ech_plan_own(exec->plan, param, &first);
    int64_t at = n ? p->bucket_offset + first - from : 0;
    char *data = memory + (size_t)at * ech_dtype_bytes(dtype);
    ech_tensor all;
    set_view(exec, param, dtype, NULL, &all);
    return ech_exec_part(&all, first, n, data);
}

ech_tensor ech_exec_part_used(ech_exec *exec, const ech_step *step, int param, ech_used_as use,
                              int number, ech_dtype dtype)
{
    const ech_plan *plan = exec->plan;
    const ech_plan_param *p = &plan->param[param];
    int value = ech_step_uses(exec->list, step, use, number);
    int64_t updated, part, first, n = ech_step_part_of(plan, step, param, &first);
    int64_t item = (int64_t)ech_dtype_bytes(dtype);
    int64_t elements = ech_plan_value(plan, exec->list, value)->bytes / item;
    ech_bucket_updated(&plan->bucket.at[p->bucket], &updated);
    ech_step_part(plan, step, &part);
    int64_t at = n ? p->bucket_offset + first - updated - part : 0;
    at += ech_step_part_in(plan, step, elements);
    ech_tensor all;
    set_view(exec, param, dtype, NULL, &all);
    return ech_exec_part(&all, first, n,
                         (char *)ech_exec_used(exec, step, use, number) + (size_t)(at * item));
}

ech_tensor ech_exec_param_at(const ech_exec *exec, int param, int version)
{
    ech_tensor view;
    ECH_ASSERT(exec->plan->param[param].bucket >= 0);
    const ech_bucket *bucket = &exec->plan->bucket.at[exec->plan->param[param].bucket];
    char *weights =
        ech_exec_look(exec, bucket->weights + ech_exec_weight_slot(exec, bucket, version));
    if (ech_bucket_holds_shard(bucket))
        return own_part(exec, param, bucket->weight_dtype, weights, ech_bucket_first_kept(bucket));
    ech_exec_set_weights(exec, param, weights, &view);
    return view;
}

ech_tensor ech_exec_param(const ech_exec *exec, int param)
{
    return ech_exec_param_at(exec, param, 0);
}

ech_tensor ech_exec_state(const ech_exec *exec, int param, int state)
{
    return exec->state_view[exec->plan->param[param].first_state + state];
}

void ech_exec_set_gradient(const ech_exec *exec, int param, char *gradients, ech_tensor *out)
{
    const ech_plan_param *p = &exec->plan->param[param];
    const ech_bucket *bucket = &exec->plan->bucket.at[p->bucket];
    set_view(exec, param, bucket->dtype,
             gradients + (size_t)p->bucket_offset * ech_dtype_bytes(bucket->dtype), out);
}

static ech_tensor whole_gradient(const ech_exec *exec, int param, int turn)
{
    ech_tensor view;
    int bucket = exec->plan->param[param].bucket;
    ECH_ASSERT(ech_list_kind_trains(exec->list->kind) &&
               !ech_bucket_scatters_each(&exec->plan->bucket.at[bucket]));
    int value = ech_list_summed(exec->plan, exec->list, bucket, turn);
    ech_exec_set_gradient(exec, param, ech_exec_look(exec, value), &view);
    return view;
}

ech_tensor ech_exec_gradient(const ech_exec *exec, int param)
{
    return whole_gradient(exec, param, 0);
}

ech_tensor ech_exec_own_gradient(const ech_exec *exec, int param, int turn)
{
    int index = exec->plan->param[param].bucket;
    const ech_bucket *bucket = &exec->plan->bucket.at[index];
    ECH_ASSERT(ech_list_kind_trains(exec->list->kind));
    if (!ech_bucket_is_sharded(bucket)) return whole_gradient(exec, param, turn);
    return own_part(exec, param, bucket->dtype,
                    ech_exec_look(exec, ech_list_summed(exec->plan, exec->list, index, turn)),
                    ech_bucket_sums_shard(bucket) ? bucket->own : 0);
}

ech_tensor ech_exec_own_param(const ech_exec *exec, int param, int version)
{
    ech_tensor weights = ech_exec_param_at(exec, param, version);
    int64_t first, n = ech_plan_own(exec->plan, param, &first);
    const ech_bucket *bucket = &exec->plan->bucket.at[exec->plan->param[param].bucket];
    bool cut = ech_bucket_is_sharded(bucket) && !ech_bucket_holds_shard(bucket);
    return cut ? ech_exec_elements(&weights, first, n) : weights;
}

void ech_exec_clear_padding(const ech_exec *exec, int param, const ech_tensor *of)
{
    size_t bytes = (size_t)exec->plan->param[param].padding * ech_dtype_bytes(of->dtype);
    char *end = (char *)of->data + ech_tensor_bytes(of);
    if (bytes) exec->device->fill(exec->on[ECH_LANE_COMPUTE].queue, end, 0, bytes);
}

static void clear_value(ech_exec *exec, int persistent)
{
    const ech_value *value = &exec->plan->persistent.at[persistent];
    ech_space space = ech_memory_space(value->kind);
    if (space == ECH_SPACE_DISK || space == ECH_SPACE_SHARED) return; /* zero from the start */
    exec->device->fill(exec->on[ECH_LANE_COMPUTE].queue, ech_exec_at(exec, value), 0,
                       (size_t)value->bytes);
}

void ech_params_create(ech_exec *exec)
{
    const ech_plan *plan = exec->plan;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        for (int v = 0; v < bucket->versions; v++) clear_value(exec, bucket->weights + v);
        for (int s = 0; s < bucket->states && plan->state.n; s++)
            clear_value(exec, bucket->state[s].value);
    }
}

void ech_exec_copy_weights(ech_exec *exec, int param, int from, int to)
{
    ech_tensor source = ech_exec_param_at(exec, param, from);
    ech_tensor target = ech_exec_param_at(exec, param, to);
    exec->device->copy(exec->on[ECH_LANE_COMPUTE].queue, target.data, source.data,
                       ech_tensor_bytes(&source));
}

/* The rows of x as the heads of one token. */
static ech_tensor as_heads(const ech_tensor *x)
{
    ech_tensor rows = ech_tensor_matrix(x);
    return ech_tensor_view(x->data, x->dtype, 4, (int64_t[]){1, 1, rows.shape[0], rows.shape[1]});
}

static void round_into(ech_exec *exec, const ech_tensor *wide, const ech_tensor *weights)
{
    if (ech_tensor_count(wide) == 0) return;
    ech_tensor from = as_heads(wide), to = as_heads(weights);
    exec->plan->kernels->copy(exec->context, &from, &to);
}

void ech_exec_round_weights(ech_exec *exec, int param, int version)
{
    int master = exec->plan->param[param].master;
    const ech_plan *plan = exec->plan;
    if (master < 0 || plan->states == ECH_SPACE_DISK || plan->weights == ECH_SPACE_DISK) return;
    ech_tensor wide = ech_exec_state(exec, param, master);
    ech_tensor weights = ech_exec_own_param(exec, param, version);
    round_into(exec, &wide, &weights);
}

/* ---- data on disk, for steps of the compute lane: through buffers of the host, which the host
 * waits for ---- */

static char *weights_buffer(ech_exec *exec, const ech_step *step)
{
    return ech_exec_touch(exec, step->scratch);
}

static char *state_buffer(ech_exec *exec, const ech_step *step)
{
    return weights_buffer(exec, step) + ech_plan_weights_room(exec->plan);
}

/* A state, or weights, where the device can access it: itself, or the buffer. */
static ech_tensor in_reach(ech_exec *exec, const ech_tensor *x, char *buffer)
{
    int64_t offset;
    ech_tensor view = *x;
    if (ech_disk_has(exec->disk, x->data, &offset)) view.data = buffer;
    return view;
}

/* Reads the buffer from there, or writes it there. */
static ech_status move(ech_exec *exec, const ech_step *step, const ech_tensor *x, char *buffer,
                       bool writes)
{
    int64_t offset;
    size_t bytes = (size_t)ech_tensor_bytes(x);
    if (!ech_disk_has(exec->disk, x->data, &offset) || bytes == 0) return ECH_OK;
    ECH_TRY(ech_device_settle(exec->device, ech_exec_queue(exec, step)));
    return writes ? ech_disk_put(exec->disk, offset, buffer, bytes)
                  : ech_disk_get(exec->disk, offset, buffer, bytes);
}

/* ---- INIT ---- */

static void fill_run(const ech_exec *exec, const ech_param *param, ech_random_key key,
                     int64_t first, const ech_tensor *x)
{
    const ech_kernels *kernels = exec->plan->kernels;
    if (param->initializer == ECH_INIT_UNIFORM)
        kernels->fill_uniform(exec->context, x, key, first, -param->std, param->std);
    else if (param->initializer == ECH_INIT_TRUNCATED)
        kernels->fill_truncated(exec->context, x, key, first, 0, param->std);
    else
        kernels->fill_normal(exec->context, x, key, first, 0, param->std);
}

/* Draws random numbers, run by run, each as a part of the whole. Padding is zero, and stays so: it
 * has no gradient. */
static void fill_random(ech_exec *exec, int index, const ech_held *held, const ech_tensor *x)
{
    const ech_plan *plan = exec->plan;
    const ech_param *param = &plan->model->param.at[index];
    ech_random_key key = {.seed = (uint64_t)exec->config->training.seed,
                          .stream = ech_random_stream((uint32_t)param->block,
                                                      ECH_SITE_PARAMETER + (uint32_t)param->site)};
    plan->kernels->fill(exec->context, x, 0);
    for (int b = 0; b < held->boxes; b++) {
        ech_box_runs runs = ech_box_split(param->shape.dims, param->shape.size, &held->box[b]);
        for (int64_t i = 0; i < runs.count; i++) {
            ech_box_offset at = ech_box_run_at(&runs, i);
            char *data = (char *)x->data + (size_t)at.in_memory * ech_dtype_bytes(x->dtype);
            ech_tensor run = ech_tensor_1d(data, x->dtype, runs.length);
            fill_run(exec, param, key, at.in_whole, &run);
        }
    }
}

/* x: elements of this rank's shard of a parameter, from `first` on. */
static void init_elements(ech_exec *exec, int index, int64_t first, const ech_tensor *x)
{
    const ech_param *param = &exec->plan->model->param.at[index];
    ech_held held = ech_plan_elements(exec->plan, index, first, ech_tensor_count(x));
    if (param->initializer != ECH_INIT_ZERO && param->initializer != ECH_INIT_ONE)
        fill_random(exec, index, &held, x);
    else
        exec->plan->kernels->fill(exec->context, x, param->initializer == ECH_INIT_ONE ? 1 : 0);
}

/* The elements processed at a time, from element `at` on. */
static ech_tensor part_from(const ech_exec *exec, const ech_tensor *x, int64_t at)
{
    int64_t rest = ech_tensor_count(x) - at, most = exec->plan->at_once;
    return ech_exec_elements(x, at, rest < most ? rest : most);
}

/* Sets a part of the weights, from element `at` on, to the rounded `wide`. */
static ech_status round_part(ech_exec *exec, const ech_step *step, const ech_tensor *wide,
                             const ech_tensor *weights, int64_t at)
{
    char *buffer = step->scratch < 0 ? NULL : weights_buffer(exec, step);
    ech_tensor part = ech_exec_elements(weights, at, ech_tensor_count(wide));
    ech_tensor rounded = in_reach(exec, &part, buffer);
    round_into(exec, wide, &rounded);
    return move(exec, step, &part, buffer, true);
}

/* weights: this rank's weights of the state's elements; NULL: they are not rounded from the
 * state. */
static ech_status init_state(ech_exec *exec, const ech_step *step, int index, int s,
                             const ech_tensor *weights)
{
    const ech_plan_state *of = &exec->plan->state.at[exec->plan->param[index].first_state + s];
    bool is_master = s == exec->plan->param[index].master;
    ech_tensor own = ech_exec_state(exec, index, s), part;
    char *buffer = step->scratch < 0 ? NULL : state_buffer(exec, step);
    for (int64_t at = 0; at < ech_tensor_count(&own); at += ech_tensor_count(&part)) {
        part = part_from(exec, &own, at);
        ech_tensor state = in_reach(exec, &part, buffer);
        exec->device->fill(exec->on[ECH_LANE_COMPUTE].queue, state.data, 0,
                           ech_tensor_bytes(&state));
        if (is_master || of->is.role == ECH_STATE_ANCHOR)
            init_elements(exec, index, of->from + at, &state);
        if (weights) ECH_TRY(round_part(exec, step, &state, weights, at));
        ECH_TRY(move(exec, step, &part, buffer, true));
    }
    if (of->is.role == ECH_STATE_BASIS) ech_compression_init_basis(exec, index, s, &own);
    return ECH_OK;
}

/* Draws whole weights that have masters. */
static ech_status draw_whole(ech_exec *exec, const ech_step *step, int index,
                             const ech_tensor *weights)
{
    ech_tensor part;
    for (int64_t at = 0; at < ech_tensor_count(weights); at += ech_tensor_count(&part)) {
        part = part_from(exec, weights, at);
        ech_tensor wide = part;
        wide.dtype = exec->plan->types.wide;
        wide.data = state_buffer(exec, step);
        init_elements(exec, index, at, &wide);
        ECH_TRY(round_part(exec, step, &wide, weights, at));
    }
    return ECH_OK;
}

/* Draws weights without masters; first: of their elements. */
static ech_status init_weights(ech_exec *exec, const ech_step *step, int index, int64_t first,
                               const ech_tensor *weights)
{
    ech_tensor part;
    char *buffer = step->scratch < 0 ? NULL : weights_buffer(exec, step);
    for (int64_t at = 0; at < ech_tensor_count(weights); at += ech_tensor_count(&part)) {
        part = part_from(exec, weights, at);
        ech_tensor drawn = in_reach(exec, &part, buffer);
        init_elements(exec, index, first + at, &drawn);
        ECH_TRY(move(exec, step, &part, buffer, true));
    }
    return ECH_OK;
}

/* Draws as if whole, so that it is the same under every layout. */
static ech_status init_param(ech_exec *exec, const ech_step *step, int index)
{
    const ech_plan *plan = exec->plan;
    const ech_plan_param *p = &plan->param[index];
    bool draws_whole = ech_plan_draws_whole(plan, index);
    ech_tensor kept = ech_exec_param(exec, index), own = ech_exec_own_param(exec, index, 0);
    for (int s = 0; s < p->states; s++)
        ECH_TRY(init_state(exec, step, index, s, s == p->master && !draws_whole ? &own : NULL));
    int64_t first = 0;
    if (ech_bucket_holds_shard(&plan->bucket.at[p->bucket])) ech_plan_own(plan, index, &first);
    if (p->master < 0) ECH_TRY(init_weights(exec, step, index, first, &kept));
    if (draws_whole) ECH_TRY(draw_whole(exec, step, index, &kept));
    for (int v = 1; v < plan->versions; v++) ech_exec_copy_weights(exec, index, 0, v);
    return ECH_OK;
}

ech_status ech_handle_INIT(ech_exec *exec, const ech_step *step)
{
    if (step->scratch >= 0) ech_exec_touch(exec, step->scratch);
    for (int b = 0; b < (int)exec->plan->bucket.n; b++)
        for (int v = 0; v < exec->plan->versions; v++)
            ech_ledger_expect(exec, step, ech_plan_weights(exec->plan, b, v));
    for (int i = 0; i < (int)exec->plan->model->param.n; i++)
        if (exec->plan->param[i].bucket >= 0) ECH_TRY(init_param(exec, step, i));
    exec->updates = 0;
    ech_scaler_begin(exec->config, &exec->scaler);
    return ECH_OK;
}

const int *ech_exec_bucket_params(const ech_exec *exec, const ech_step *step, int *n)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    *n = bucket->params;
    return &exec->plan->bucket_param.at[bucket->first_param];
}

static void square_sums(ech_exec *exec, const ech_step *step, const ech_tensor *gradient,
                        const ech_tensor *sums)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    if (!ech_bucket_is_listed(bucket)) {
        exec->plan->kernels->square_sums(exec->context, gradient, sums);
        return;
    }
    ech_tensor rows = ech_exec_rows_listed(exec, bucket, step->turn), listed = *gradient;
    ech_exec_see_listed(bucket, &listed);
    exec->plan->kernels->square_sums_rows(exec->context, &listed, &rows, sums);
}

ech_status ech_handle_NORM(ech_exec *exec, const ech_step *step)
{
    const ech_plan *plan = exec->plan;
    double *partials = ech_exec_touch(exec, plan->partials);
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    bool compressed = plan->bucket.at[step->index].compressed;
    for (int i = 0; i < n && compressed; i++) ech_compression_norm(exec, step, params[i]);
    if (compressed) return ECH_OK;
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    /* A worker that pushes has its own gradients; servers have none of them yet. */
    bool whole = ech_bucket_is_served(bucket), sharded = ech_bucket_is_sharded(bucket) && !whole;
    char *sum = ech_exec_used(exec, step, ECH_USE_SUM, 0);
    if (!ech_exec_updates_in(exec, step->turn)) return ECH_OK;
    for (int i = 0; i < n; i++) {
        const ech_plan_param *p = &plan->param[params[i]];
        int64_t first, own = ech_plan_own(plan, params[i], &first);
        ech_tensor gradient;
        if (whole) {
            ech_exec_set_gradient(exec, params[i], sum, &gradient);
            first = 0, own = p->elements;
        } else {
            gradient = ech_exec_part_used(exec, step, params[i], ECH_USE_SUM, 0, bucket->dtype);
        }
        ech_tensor part = ech_exec_elements(&gradient, sharded ? 0 : first, own);
        ech_tensor sums = ech_tensor_1d(&partials[p->norm_first], ECH_F64,
                                        (own + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK);
        if (exec->scanning && (own || !sharded))
            ech_scan_tensor(exec, step, "the sum over ranks of the gradient of",
                            plan->model->param.at[params[i]].name, sharded ? &part : &gradient);
        if (own == 0) continue; /* COUNT has written a zero */
        square_sums(exec, step, &part, &sums);
        ech_scalars_count_squares(exec, step->turn, params[i], &sums,
                                  exec->share[params[i]].counts);
    }
    return ECH_OK;
}

ech_status ech_handle_STASH(ech_exec *exec, const ech_step *step)
{
    const ech_plan *plan = exec->plan;
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    if (ech_plan_has_masters(plan, bucket)) return ECH_OK;
    int64_t first, n = ech_bucket_updated(bucket, &first);
    size_t item = ech_dtype_bytes(bucket->weight_dtype), at = (size_t)first * item;
    char *from = ech_exec_used(exec, step, ECH_USE_WEIGHTS, 0);
    char *to = ech_exec_used(exec, step, ECH_USE_NEXT, 0);
    exec->device->copy(ech_exec_queue(exec, step), to + at, from + at, (size_t)n * item);
    return ECH_OK;
}

/* `index`: among all hashed tensors; each has places of its own. */
static ech_status add_hash(ech_exec *exec, const ech_step *step, const ech_tensor *x, char *buffer,
                           int64_t index, const ech_tensor *sum)
{
    enum { PLACES = 40 }; /* bits */
    ech_tensor part;
    for (int64_t at = 0; at < ech_tensor_count(x); at += ech_tensor_count(&part)) {
        part = part_from(exec, x, at);
        ech_tensor here = in_reach(exec, &part, buffer);
        ECH_TRY(move(exec, step, &part, buffer, false));
        ech_tensor flat = ech_tensor_flat(&here);
        exec->plan->kernels->hash(exec->context, &flat, (index << PLACES) + at, sum);
    }
    return ECH_OK;
}

/* True if all members of the step's group hold equal copies of a parameter's weights, or of its
 * master. For sharded tensors, members with the same shard do. */
static bool is_alike(const ech_exec *exec, const ech_step *step, int param, int master)
{
    const ech_plan *plan = exec->plan;
    const ech_plan_param *p = &plan->param[param];
    const ech_bucket *bucket = &plan->bucket.at[p->bucket];
    const ech_shape *shape = master < 0 ? NULL : &plan->state.at[p->first_state + master].is.shape;
    ech_mesh both = ech_layout_group_axes(step->group) & ech_layout_group_axes(bucket->group);
    if (both && (master < 0 ? ech_bucket_holds_shard(bucket) : ech_bucket_is_sharded(bucket)))
        return false;
    return ech_layout_is_alike(plan->layout, plan->model, plan->rank, step->group, param,
                               master < 0 ? ECH_HELD_WEIGHTS : ECH_HELD_STATE, shape);
}

/* Hashes equal copies: ranks that differ in one bit differ in the hash. */
ech_status ech_handle_HASH(ech_exec *exec, const ech_step *step)
{
    const ech_plan *plan = exec->plan;
    ech_scalar_row *row = ech_exec_row(exec, step->turn);
    ech_tensor sum = ech_tensor_view(&row->hash_sum, ECH_I64, 0, NULL);
    ech_tensor parts = ech_tensor_1d((double *)row + step->index, ECH_F64, ECH_HASH_SCALARS);
    exec->device->fill(ech_exec_queue(exec, step), sum.data, 0, sizeof row->hash_sum);
    char *weights = step->scratch < 0 ? NULL : weights_buffer(exec, step);
    char *states = step->scratch < 0 ? NULL : state_buffer(exec, step);
    for (int i = 0; i < (int)plan->model->param.n; i++) {
        int master = plan->param[i].master;
        if (plan->param[i].bucket < 0) continue;
        if (is_alike(exec, step, i, -1)) {
            ech_tensor kept = ech_exec_param(exec, i);
            ech_ledger_expect(exec, step, ech_plan_weights(plan, plan->param[i].bucket, 0));
            ECH_TRY(add_hash(exec, step, &kept, weights, 2 * i, &sum));
        }
        if (master >= 0 && is_alike(exec, step, i, master)) {
            ech_tensor own = ech_exec_state(exec, i, master);
            ECH_TRY(add_hash(exec, step, &own, states, 2 * i + 1, &sum));
        }
    }
    plan->kernels->hash_parts(exec->context, &sum, &parts);
    return ECH_OK;
}

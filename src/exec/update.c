/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer. STATISTICS and UPDATE, and the same on the host, pass each parameter of a bucket
 * to it (layer states commit themselves). FOLD combines the ranks' results for their shards into
 * the statistics of the whole.
 */
#include <string.h>

#include "exec/state.h"
#include "schedule/operands.h"
#include "schedule/states.h"

ech_tensor ech_exec_state_view(const ech_exec *exec, const ech_state *state, ech_sharding sharding,
                               void *data)
{
    int64_t size[ECH_MAX_DIMS];
    ech_shape_resolve(&state->shape, ech_extent_of_params(sharding), size);
    return ech_tensor_view(data, ech_plan_state_dtype(exec->plan, state), state->shape.dims, size);
}

/* ---- STATISTICS, UPDATE ---- */

/* The unit passed to an optimizer: n elements of a parameter, or of matrix number `one` of this
 * rank's stack of it; the step's part. */
typedef struct piece {
    int param, one;
    int64_t at;    /* index of the first element in this rank's shard of the parameter */
    int64_t first; /* ... and in the shard of the matrix */
    int64_t n;
} piece;

static piece piece_of(const ech_exec *exec, const ech_step *step, int param, int one)
{
    const ech_plan_param *p = &exec->plan->param[param];
    piece of = {.param = param, .one = one};
    of.n = ech_step_part_of_one(exec->plan, step, param, one, &of.first);
    of.at = one * (p->elements / p->stacked) + of.first;
    return of;
}

/* Matrix number `one` of a stack with that shape. */
static ech_tensor one_of(const ech_exec *exec, const ech_state *state, ech_sharding sharding,
                         char *data, int one)
{
    ech_state of = *state;
    of.shape = ech_shape_of_one(&state->shape);
    ech_tensor view = ech_exec_state_view(exec, &of, sharding, data);
    view.data = data + (size_t)one * ech_tensor_bytes(&view);
    return view;
}

/* The piece of the weights or gradients that the step works on, whose first element is element
 * `first`. */
static ech_tensor piece_of_param(const ech_exec *exec, const piece *of, int64_t first,
                                 const ech_tensor *all)
{
    ech_state whole = {.shape = exec->plan->model->param.at[of->param].shape};
    ech_tensor one = one_of(exec, &whole, exec->plan->layout->sharding, NULL, 0);
    one.dtype = all->dtype;
    size_t before = of->n ? (size_t)(of->at - first) * ech_dtype_bytes(all->dtype) : 0;
    return ech_exec_part(&one, of->first, of->n, (char *)all->data + before);
}

/* The piece of the numbers of a state or statistic; `data` holds this rank's shard from number
 * `begin` on. */
static ech_tensor piece_of_state(const ech_exec *exec, const piece *of, const ech_state *state,
                                 int64_t begin, char *data)
{
    ech_state own = ech_state_of_replica(state);
    int64_t from, n = ech_plan_state_numbers(exec->plan, of->param, &own, of->at, of->n, &from);
    ech_tensor one = one_of(exec, &own, exec->plan->layout->sharding, NULL, 0);
    size_t before = n ? (size_t)(from - begin) * ech_dtype_bytes(one.dtype) : 0;
    return ech_exec_part(&one, n ? from - of->one * ech_tensor_count(&one) : 0, n, data + before);
}

/* In the rounds after its own a gathered statistic is whole; a result computed by one rank is then
 * its whole shard. */
static ech_tensor piece_of_statistic(const ech_exec *exec, const piece *of,
                                     const ech_plan_statistic *s, int round, char *statistics)
{
    bool gathered = s->is.fold == ECH_SHARDS_GATHER && round > s->is.round;
    bool made = s->is.fold == ECH_SHARDS_OWNER && round == s->is.round;
    bool whole = gathered && s->whole != s->at;
    ech_sharding sharding = whole ? (ech_sharding){0} : exec->plan->layout->sharding;
    char *data = statistics + (whole ? s->whole : s->at);
    if (gathered || made) return one_of(exec, &s->is.is, sharding, data, of->one);
    return piece_of_state(exec, of, &s->is.is, 0, data);
}

/* What a step does to the parameters of its bucket. */
typedef struct work {
    const ech_step *step;
    const ech_kernels *kernels;
    ech_kernel_context *context;
    char *statistics;
    int round; /* of STATISTICS; ECH_MAX_ROUNDS: the update */
    ech_update update;
    void (*fill)(ech_exec *exec, const ech_step *step, char *at, size_t bytes); /* with zeros */
} work;

/* True if a later piece has elements of this matrix. */
static bool continues(const ech_plan *plan, const piece *of)
{
    const ech_plan_param *p = &plan->param[of->param];
    const ech_bucket *bucket = &plan->bucket.at[p->bucket];
    int64_t first, all = ech_bucket_updated(bucket, &first), each = p->elements / p->stacked;
    int64_t end = first + all - p->bucket_offset, matrix = (of->one + 1) * each;
    return of->at + of->n < (end < matrix ? end : matrix);
}

static void work_on_piece(const ech_exec *exec, const work *w, const piece *of,
                          const ech_tensor *weights, const ech_tensor *gradient,
                          const ech_tensor *state)
{
    const ech_plan *plan = exec->plan;
    const ech_plan_param *p = &plan->param[of->param];
    const ech_param *param = &plan->model->param.at[of->param];
    ech_tensor statistic[ECH_MAX_STATISTICS], kept[ECH_MAX_STATES];
    int64_t first, n = ech_step_part_of(plan, w->step, of->param, &first);
    ech_tensor own_weights, own_gradient = piece_of_param(exec, of, first, gradient);
    if (weights) own_weights = piece_of_param(exec, of, first, weights);
    for (int i = 0; i < p->states; i++) {
        int64_t begin;
        const ech_plan_state *s = &plan->state.at[p->first_state + i];
        kept[i] = (ech_tensor){0};
        if (s->is.role != ECH_STATE_OPTIMIZER || !state[i].data) continue; /* it is not used */
        begin = s->from;
        if (ech_state_is_element_wise(&s->is))
            ech_plan_state_numbers(plan, of->param, &s->is, first, n, &begin);
        kept[i] = piece_of_state(exec, of, &s->is, begin, state[i].data);
    }
    for (int i = 0; i < p->statistics; i++)
        statistic[i] = piece_of_statistic(exec, of, &plan->statistic.at[p->first_statistic + i],
                                          w->round, w->statistics);
    ech_update update = w->update;
    update.learning_rate = param->rate;
    update.weight_decay = param->decay ? exec->config->optimizer.weight_decay : 0;
    ech_param one = ech_optimizer_one(param);
    ech_optimizer_work tensors = {.row = plan->optimizer,
                                  .config = exec->config,
                                  .kernels = w->kernels,
                                  .context = w->context,
                                  .of = &one,
                                  .whole = param,
                                  .param = p->master >= 0 ? &kept[p->master]
                                           : weights      ? &own_weights
                                                          : NULL,
                                  .rounded = p->master >= 0 && weights ? &own_weights : NULL,
                                  .gradient = &own_gradient,
                                  .state = kept,
                                  .statistic = statistic,
                                  .box = exec->share[of->param].box,
                                  .boxes = exec->share[of->param].boxes,
                                  .continues = continues(plan, of),
                                  .update = &update};
    if (w->round == ECH_MAX_ROUNDS)
        plan->optimizer->update(&tensors);
    else if (p->statistics)
        plan->optimizer->round(&tensors, w->round);
}

static void work_on_tensors(const ech_exec *exec, const work *w, int index,
                            const ech_tensor *weights, const ech_tensor *gradient,
                            const ech_tensor *state)
{
    const ech_param *of = &exec->plan->model->param.at[index];
    if (of->commit) {
        of->commit(&(ech_commit){of, w->kernels, w->context, weights, gradient, &w->update});
        return;
    }
    for (int one = 0; one < exec->plan->param[index].stacked; one++) {
        if (!ech_step_takes_part(exec->plan, w->step, index, one, w->round)) continue;
        piece at = piece_of(exec, w->step, index, one);
        work_on_piece(exec, w, &at, weights, gradient, state);
    }
}

/* True if the step works on any of it. */
static bool takes_part(const ech_plan *plan, const work *w, int param)
{
    for (int one = 0; one < plan->param[param].stacked; one++)
        if (ech_step_takes_part(plan, w->step, param, one, w->round)) return true;
    return false;
}

/* A state of a parameter, in the value that the step uses. */
static ech_tensor state_used(ech_exec *exec, const ech_step *step, int param, int index)
{
    const ech_plan_state *state =
        &exec->plan->state.at[exec->plan->param[param].first_state + index];
    int number = ech_step_state_use(exec->plan, step, state->number);
    if (number < 0) return (ech_tensor){0};
    ech_tensor view = ech_exec_state(exec, param, index);
    if (ech_state_is_element_wise(&state->is))
        return ech_exec_part_used(exec, step, param, ECH_USE_STATE, number, view.dtype);
    view.data = (char *)ech_exec_used(exec, step, ECH_USE_STATE, number) +
                (size_t)state->first * ech_dtype_bytes(view.dtype);
    return view;
}

static void work_on(ech_exec *exec, const ech_step *step, const work *w, int index)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    ech_tensor weights, gradient, state[ECH_MAX_STATES];
    bool has_weights = ech_step_uses(exec->list, step, ECH_USE_WEIGHTS, 0) >= 0;
    if (!takes_part(exec->plan, w, index)) return;
    gradient = ech_exec_part_used(exec, step, index, ECH_USE_SUM, 0, bucket->dtype);
    if (has_weights)
        weights = ech_exec_part_used(exec, step, index, ECH_USE_WEIGHTS, 0, bucket->weight_dtype);
    for (int s = 0; s < exec->plan->param[index].states; s++)
        state[s] = state_used(exec, step, index, s);
    work_on_tensors(exec, w, index, has_weights ? &weights : NULL, &gradient, state);
}

/* The statistics that ranks fold after the step's round. */
static char *folded_of(const ech_exec *exec, const ech_step *step, char *statistics, size_t *bytes)
{
    const struct ech_folded *first = exec->plan->bucket.at[step->index].folded[step->count];
    const struct ech_folded *last = &first[ECH_FOLD_TENSOR];
    *bytes = (size_t)(last->at + last->bytes - first->at);
    return statistics + first->at;
}

/* w: kernels, their context, the round, and the turn's update. In a withheld step zeros are folded,
 * since ranks communicate in any case. */
static void work_on_bucket(ech_exec *exec, const ech_step *step, work *w)
{
    const ech_plan *plan = exec->plan;
    size_t bytes;
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    w->step = step;
    w->statistics = ech_exec_used(exec, step, ECH_USE_STATISTICS, 0);
    if (step->scratch >= 0) {
        bool host = step->lane == ECH_LANE_HOST;
        w->context->scratch = host ? ech_exec_address(exec, step, step->scratch)
                                   : ech_exec_touch(exec, step->scratch);
        w->context->scratch_bytes = (size_t)ech_plan_value(plan, exec->list, step->scratch)->bytes;
    }
    plan->optimizer->configure(exec->config, &w->update);
    if (w->round < ECH_MAX_ROUNDS) {
        char *folded = folded_of(exec, step, w->statistics, &bytes);
        w->fill(exec, step, folded, bytes);
    }
    for (int i = 0; i < n; i++) work_on(exec, step, w, params[i]);
}

static void fill_on_device(ech_exec *exec, const ech_step *step, char *at, size_t bytes)
{
    exec->device->fill(ech_exec_queue(exec, step), at, 0, bytes);
}

/* work.round of a step. */
static int round_of(const ech_step *step)
{
    bool updates = step->kind == ECH_STEP_UPDATE || step->kind == ECH_STEP_UPDATE_ON_HOST;
    return updates ? ECH_MAX_ROUNDS : step->count;
}

static ech_status work_on_device(ech_exec *exec, const ech_step *step)
{
    work w = {.kernels = exec->plan->kernels,
              .context = exec->context,
              .round = round_of(step),
              .update = ech_scalars_update(exec, step->turn),
              .fill = fill_on_device};
    work_on_bucket(exec, step, &w);
    return ECH_OK;
}

ECH_HANDLE_BY(UPDATE, work_on_device)
ECH_HANDLE_BY(STATISTICS, work_on_device)

/* ---- on the host: STATISTICS_ON_HOST, UPDATE_ON_HOST ---- */

static void fill_on_host(ech_exec *exec, const ech_step *step, char *at, size_t bytes)
{
    (void)exec;
    (void)step;
    memset(at, 0, bytes);
}

static ech_status work_on_host(ech_exec *exec, const ech_step *step)
{
    work w = {.kernels = ech_kernels_fast(exec->plan->kernels->dtype),
              .context = exec->lane_context[step->lane].inner,
              .round = round_of(step),
              .update = ech_scalars_update_on_host(exec, step->turn),
              .fill = fill_on_host};
    ech_kernel_context_enter(w.context);
    work_on_bucket(exec, step, &w);
    return ECH_OK;
}

static ech_status put_on_host(ech_exec *exec, const ech_step *step)
{
    ech_exec_put(exec, step, work_on_host);
    return ECH_OK;
}

ECH_HANDLE_BY(STATISTICS_ON_HOST, put_on_host)
ECH_HANDLE_BY(UPDATE_ON_HOST, put_on_host)

/* The compute lane has waited, so the update's memory on the host is free. */
ech_status ech_handle_ROOM(ech_exec *exec, const ech_step *step)
{
    (void)exec;
    (void)step;
    return ECH_OK;
}

/* ---- FOLD ---- */

typedef struct folding {
    ech_exec *exec;
    ech_fold_over over;
    int members, index; /* this rank's */
    int64_t at, bytes;  /* of the folded statistics */
    char *gathered;     /* [members][bytes] */
    char *statistics;
} folding;

static void *part_of(const folding *f, const ech_plan_statistic *s, int member)
{
    return f->gathered + member * f->bytes + (s->at - f->at);
}

/* Tensor ranks with the same shard are adjacent; each uses the copies at its own position among
 * them. */
static void combine(folding *f, const ech_plan_statistic *s)
{
    int64_t n = ech_plan_state_bytes(f->exec->plan, &s->is.is) / (int64_t)sizeof(double);
    int shards = s->shards[f->over], copies = f->members / shards;
    ech_tensor to = ech_tensor_1d(f->statistics + s->at, ECH_F64, n);
    ech_tensor parts = ech_tensor_2d(part_of(f, s, f->index % copies), ECH_F64, shards, n);
    parts.stride[0] = copies * f->bytes / (int64_t)sizeof(double);
    f->exec->plan->kernels->fold(&f->exec->lane_context[ECH_LANE_REDUCE], &parts,
                                 s->is.fold == ECH_SHARDS_MAXIMUM, &to);
}

static void put_together(folding *f, const ech_plan_statistic *s)
{
    const ech_plan *plan = f->exec->plan;
    ech_shape shape = ech_plan_put_together(plan, &s->is.is);
    ech_dtype dtype = ech_plan_state_dtype(plan, &s->is.is);
    ech_shard_at at = ech_layout_shard_at(plan->layout, plan->rank);
    for (int m = 0; m < f->members; m++) {
        ech_box box[ECH_MOST_BOXES];
        at.tensor = m;
        int n = ech_shape_boxes(&shape, plan->layout->sharding, at, box);
        for (int b = 0; b < n; b++) {
            ech_tensor from = ech_box_in_memory(shape.dims, &box[b], part_of(f, s, m), dtype);
            ech_tensor to =
                ech_box_in_whole(shape.dims, shape.size, &box[b], f->statistics + s->whole, dtype);
            plan->kernels->copy(&f->exec->lane_context[ECH_LANE_REDUCE], &from, &to);
        }
    }
}

/* For statistics laid out like the bucket: each member has its shard, and gets the others' shards,
 * or the owners' parts of it. */
static ech_status fold_flat(ech_exec *exec, const ech_step *step, const struct ech_folded *folded)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    ech_group *group = exec->channel[step->group][step->lane];
    ech_dtype wide = exec->plan->types.wide;
    size_t item = ech_dtype_bytes(wide);
    char *data = ech_exec_used(exec, step, ECH_USE_STATISTICS, 0);
    data += folded->at;
    char *own = data + (size_t)bucket->own * item;
    if (folded->flat == ECH_SHARDS_GATHER)
        return ech_group_all_gather(group, data, own, item, bucket->elements);
    ech_tensor all = ech_tensor_1d(data, wide, bucket->elements);
    return ech_group_reduce_scatter(group, &all, own, ech_exec_address(exec, step, step->scratch));
}

static ech_status fold(ech_exec *exec, const ech_step *step)
{
    const ech_plan *plan = exec->plan;
    ech_fold_over over = ech_step_fold(plan, step);
    const struct ech_folded *folded = &plan->bucket.at[step->index].folded[step->count][over];
    if (folded->flat) return fold_flat(exec, step, folded);
    ech_group *group = exec->channel[step->group][step->lane];
    char *gathered = ech_exec_address(exec, step, step->scratch);
    folding f = {.exec = exec,
                 .over = over,
                 .members = ech_group_size(group),
                 .index = ech_group_index(group),
                 .at = folded->at,
                 .bytes = folded->bytes,
                 .gathered = gathered,
                 .statistics = ech_exec_used(exec, step, ECH_USE_STATISTICS, 0)};
    ECH_TRY(ech_group_all_gather(group, gathered, f.statistics + f.at, 1, f.members * f.bytes));
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    for (int i = 0; i < n; i++) {
        const ech_plan_param *p = &plan->param[params[i]];
        for (int k = 0; k < p->statistics; k++) {
            const ech_plan_statistic *s = &plan->statistic.at[p->first_statistic + k];
            if (!ech_plan_statistic_folds(s, over, step->count)) continue;
            if (s->is.fold == ECH_SHARDS_GATHER)
                put_together(&f, s);
            else
                combine(&f, s);
        }
    }
    return ECH_OK;
}

ECH_HANDLE_BY(FOLD, fold)

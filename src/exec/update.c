/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer: STATISTICS and UPDATE hand it each parameter of a bucket, FOLD makes what ranks have computed of their
 * shards the statistics of the whole.
 */
#include "exec/state.h"

ech_tensor ech_exec_state_view(const ech_exec *exec, const ech_state *state, ech_sharding sharding,
                               void *data)
{
    int64_t size[ECH_MAX_DIMS];
    ech_shape_resolve(&state->shape, ech_extent_of_params(sharding), size);
    return ech_tensor_view(data, ech_plan_state_dtype(exec->plan, state), state->shape.dims, size);
}

/* ---- STATISTICS, UPDATE ---- */

/* In the rounds that come after its own a gathered statistic is whole. */
static ech_tensor statistic_view(const ech_exec *exec, const ech_plan_statistic *s, int round,
                                 char *statistics)
{
    bool whole = s->whole != s->at && round > s->is.round;
    ech_sharding sharding = whole ? (ech_sharding){0} : exec->plan->layout->sharding;
    return ech_exec_state_view(exec, &s->is.is, sharding, statistics + (whole ? s->whole : s->at));
}

/* Those of the step's bucket; NULL: it has none. */
static char *statistics_of(ech_exec *exec, const ech_step *step)
{
    int value = ech_list_statistics(exec->plan, exec->list, step);
    return value < 0 ? NULL : ech_exec_touch(exec, value);
}

/* round: of STATISTICS; ECH_MAX_ROUNDS: the update. */
static void work_on(ech_exec *exec, const ech_step *step, char *statistics, int index, int round,
                    const ech_update *update)
{
    const ech_plan *plan = exec->plan;
    const ech_plan_param *p = &plan->param[index];
    const ech_param *of = &plan->model->param.at[index];
    bool updates = round == ECH_MAX_ROUNDS;
    ech_tensor weights = ech_exec_own_param(exec, index, step->version);
    ech_tensor gradient = ech_exec_own_gradient(exec, index);
    if (ech_tensor_count(&weights) == 0) return; /* others' shards have it all */
    ech_tensor state[ECH_MAX_STATES], statistic[ECH_MAX_STATISTICS];
    for (int i = 0; i < p->states; i++) {
        ech_ledger_expect(exec, step, plan->state.at[p->first_state + i].value);
        state[i] = ech_exec_state(exec, index, i);
    }
    for (int i = 0; i < p->statistics; i++)
        statistic[i] =
            statistic_view(exec, &plan->statistic.at[p->first_statistic + i], round, statistics);
    ech_update own = *update;
    own.learning_rate = of->rate;
    own.weight_decay = of->decay ? exec->config->optimizer.weight_decay : 0;
    ech_optimizer_work work = {.kernels = plan->kernels,
                               .context = exec->context,
                               .of = of,
                               .param = p->master < 0 ? &weights : &state[p->master],
                               .rounded = p->master < 0 ? NULL : &weights,
                               .gradient = &gradient,
                               .state = state,
                               .statistic = statistic,
                               .box = exec->share[index].box,
                               .boxes = exec->share[index].boxes,
                               .update = &own};
    if (updates)
        plan->optimizer->update(&work);
    else if (p->statistics)
        plan->optimizer->round(&work, round);
}

static ech_status work_on_bucket(ech_exec *exec, const ech_step *step, char *statistics, int round)
{
    if (step->scratch >= 0) {
        exec->context->scratch = ech_exec_touch(exec, step->scratch);
        exec->context->scratch_bytes =
            (size_t)ech_plan_value(exec->plan, exec->list, step->scratch)->bytes;
    }
    ech_update update = ech_scalars_update(exec, step->turn);
    exec->plan->optimizer->configure(exec->config, &update);
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    ech_ledger_expect(exec, step, ech_plan_weights(exec->plan, step->index, step->version));
    for (int i = 0; i < n; i++) work_on(exec, step, statistics, params[i], round, &update);
    return ECH_OK;
}

ech_status ech_handle_UPDATE(ech_exec *exec, const ech_step *step)
{
    ech_exec_touch(exec, exec->plan->bucket.at[step->index].value);
    char *statistics = statistics_of(exec, step);
    return work_on_bucket(exec, step, statistics, ECH_MAX_ROUNDS);
}

/* Of a withheld step zeros are folded: ranks meet all the same. */
ech_status ech_handle_STATISTICS(ech_exec *exec, const ech_step *step)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    ech_exec_touch(exec, bucket->value);
    char *statistics = statistics_of(exec, step);
    const struct ech_folded *folded = &bucket->folded[step->count];
    exec->device->fill(ech_exec_queue(exec, step), statistics + folded->at, 0,
                       (size_t)folded->bytes);
    return work_on_bucket(exec, step, statistics, step->count);
}

/* ---- FOLD ---- */

typedef struct folding {
    ech_exec *exec;
    int members;
    int64_t at, bytes; /* of the statistics that are folded */
    char *gathered;    /* [members][bytes] */
    char *statistics;
} folding;

static void *part_of(const folding *f, const ech_plan_statistic *s, int member)
{
    return f->gathered + member * f->bytes + (s->at - f->at);
}

/* Members with the same shard are neighbours, and count once. */
static void combine(folding *f, const ech_plan_statistic *s)
{
    int64_t n = ech_plan_state_bytes(f->exec->plan, &s->is.is) / (int64_t)sizeof(double);
    ech_tensor to = ech_tensor_1d(f->statistics + s->at, ECH_F64, n);
    ech_tensor parts = ech_tensor_2d(part_of(f, s, 0), ECH_F64, s->shards, n);
    parts.stride[0] = f->members / s->shards * f->bytes / (int64_t)sizeof(double);
    f->exec->plan->kernels->fold(&f->exec->lane_context[ECH_LANE_REDUCE], &parts,
                                 s->is.fold == ECH_SHARDS_MAXIMUM, &to);
}

static void put_together(folding *f, const ech_plan_statistic *s)
{
    const ech_plan *plan = f->exec->plan;
    const ech_shape *shape = &s->is.is.shape;
    ech_dtype dtype = ech_plan_state_dtype(plan, &s->is.is);
    for (int m = 0; m < f->members; m++) {
        ech_box box[ECH_MOST_BOXES];
        int n = ech_shape_boxes(shape, plan->layout->sharding, m, box);
        for (int b = 0; b < n; b++) {
            ech_tensor from = ech_box_in_memory(shape->dims, &box[b], part_of(f, s, m), dtype);
            ech_tensor to = ech_box_in_whole(shape->dims, shape->size, &box[b],
                                             f->statistics + s->whole, dtype);
            plan->kernels->copy(&f->exec->lane_context[ECH_LANE_REDUCE], &from, &to);
        }
    }
}

static ech_status fold(ech_exec *exec, const ech_step *step)
{
    const ech_plan *plan = exec->plan;
    const struct ech_folded *folded = &plan->bucket.at[step->index].folded[step->count];
    ech_group *group = exec->channel[step->group][step->lane];
    char *gathered = ech_exec_address(exec, step, step->scratch);
    folding f = {.exec = exec,
                 .members = ech_group_size(group),
                 .at = folded->at,
                 .bytes = folded->bytes,
                 .gathered = gathered,
                 .statistics =
                     ech_exec_address(exec, step, ech_list_statistics(plan, exec->list, step))};
    ECH_TRY(ech_group_all_gather(group, gathered, f.statistics + f.at, 1, f.members * f.bytes));
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    for (int i = 0; i < n; i++) {
        const ech_plan_param *p = &plan->param[params[i]];
        for (int k = 0; k < p->statistics; k++) {
            const ech_plan_statistic *s = &plan->statistic.at[p->first_statistic + k];
            if (!ech_plan_statistic_folds(s, step->count)) continue;
            if (s->is.fold == ECH_SHARDS_GATHER)
                put_together(&f, s);
            else
                combine(&f, s);
        }
    }
    return ECH_OK;
}

ECH_HANDLE_BY(FOLD, fold)

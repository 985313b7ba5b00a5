/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer's declarations in a plan. Element-wise states are persistent values of a bucket;
 * other states, and copies of both for checkpoints, are values of a parameter. The statistics of a
 * bucket are one value that lives from the first round to the update.
 */
#include "schedule/passes.h"
#include "schedule/operands.h"
#include "schedule/states.h"

ech_dtype ech_plan_state_dtype(const ech_plan *plan, const ech_state *state)
{
    return ech_type_dtype(state->type, state->fixed, plan->types);
}

static int64_t bytes_of(const ech_plan *plan, const ech_state *state, ech_sharding sharding)
{
    return ech_shape_count(&state->shape, ech_extent_of_params(sharding)) *
           (int64_t)ech_dtype_bytes(ech_plan_state_dtype(plan, state));
}

int64_t ech_plan_state_bytes(const ech_plan *plan, const ech_state *state)
{
    return bytes_of(plan, state, plan->layout->sharding);
}

void ech_plan_states(ech_plan *plan, const ech_config *config, int param)
{
    const ech_param *of = &plan->model->param.at[param];
    ech_optimizer_needs needs = ech_optimizer_needs_of(config, of);
    ech_plan_param *p = &plan->param[param];
    p->first_state = (int)plan->state.n;
    p->states = needs.states;
    p->master = needs.master;
    p->first_statistic = (int)plan->statistic.n;
    p->statistics = needs.statistics;
    p->rank = ech_compression_rank(config, of);
    p->chosen = ech_compression_chosen(config, of);
    p->stacked = 1;
    if (ech_shape_is_stack(&of->shape))
        p->stacked =
            (int)ech_axis_local(of->shape.axis[0], of->shape.size[0], plan->layout->sharding);
    for (int i = 0; i < needs.states; i++)
        ECH_PUSH(plan->state, (ech_plan_state){.is = needs.state[i], .value = -1, .snapshot = -1});
    for (int i = 0; i < needs.statistics; i++) {
        int shards = ech_statistic_shards(&needs.statistic[i], of, plan->layout->sharding);
        ech_plan_statistic s = {.is = needs.statistic[i], .shards = {1, shards}};
        ECH_PUSH(plan->statistic, s);
    }
}

static int64_t item_of(const ech_plan *plan, const ech_state *state)
{
    return (int64_t)ech_dtype_bytes(ech_plan_state_dtype(plan, state));
}

static ech_memory_kind kind_of_states(const ech_plan *plan)
{
    static const ech_memory_kind kinds[ECH_SPACES] = {
        [ECH_SPACE_DEVICE] = ECH_MEMORY_OPTIMIZER,
        [ECH_SPACE_HOST] = ECH_MEMORY_OPTIMIZER_ON_HOST,
        [ECH_SPACE_DISK] = ECH_MEMORY_OPTIMIZER_ON_DISK};
    return kinds[plan->states];
}

/* Returns its number. */
static int add_value(ech_plan *plan, int bucket, int value)
{
    ECH_PUSH(plan->state_value, value);
    return plan->bucket.at[bucket].state_values++;
}

/* The element-wise ones belong to the bucket, in the order in which each of its parameters declares
 * them. */
static void plan_values(ech_plan *plan, const ech_bucket *bucket, int param)
{
    const ech_plan_param *p = &plan->param[param];
    int64_t begin;
    ech_bucket_updated(bucket, &begin);
    for (int s = 0, flat = 0; s < p->states; s++) {
        ech_plan_state *state = &plan->state.at[p->first_state + s];
        state->elements = ech_plan_state_part(plan, plan->rank, param, s, &state->from);
        if (ech_state_is_element_wise(&state->is)) {
            state->number = flat;
            state->value = bucket->state[flat++].value;
            if (state->elements) state->first = p->bucket_offset + state->from - begin;
        } else {
            state->value = ech_plan_add_persistent(plan, kind_of_states(plan), param,
                                                   state->elements * item_of(plan, &state->is));
            state->number = add_value(plan, plan->param[param].bucket, state->value);
        }
    }
}

void ech_plan_state_values(ech_plan *plan, int index)
{
    ech_bucket *bucket = &plan->bucket.at[index];
    int64_t first, elements = ech_bucket_updated(bucket, &first);
    bucket->first_state_value = (int)plan->state_value.n;
    for (int s = 0; s < bucket->states; s++) {
        bucket->state[s].value =
            ech_plan_add_persistent(plan, kind_of_states(plan), index,
                                    elements * (int64_t)ech_dtype_bytes(bucket->state[s].dtype));
        add_value(plan, index, bucket->state[s].value);
    }
    for (int i = 0; i < bucket->params; i++)
        plan_values(plan, bucket, plan->bucket_param.at[bucket->first_param + i]);
}

int ech_plan_weights(const ech_plan *plan, int bucket, int version)
{
    const ech_bucket *of = &plan->bucket.at[bucket];
    return of->weights + ech_bucket_slot(of, version);
}

bool ech_plan_has_masters(const ech_plan *plan, const ech_bucket *bucket)
{
    return plan->param[plan->bucket_param.at[bucket->first_param]].master >= 0;
}

/* ---- copies for checkpoints ---- */

bool ech_plan_writes(const ech_plan *plan, int rank, int param, int state)
{
    if (plan->param[param].bucket < 0) return false;
    ech_held_kind kind = state < 0 ? ECH_HELD_WEIGHTS : ECH_HELD_STATE;
    return ech_plan_held(plan, rank, param, kind, state).writes;
}

/* Bytes that `rank` writes of a state, or of the weights (-1): the size of its copy. */
static int64_t written_bytes(const ech_plan *plan, int rank, int param, int state)
{
    if (!ech_plan_writes(plan, rank, param, state)) return 0;
    const ech_plan_param *p = &plan->param[param];
    const ech_bucket *bucket = &plan->bucket.at[p->bucket];
    int64_t from;
    if (state >= 0)
        return ech_plan_state_part(plan, rank, param, state, &from) *
               item_of(plan, &plan->state.at[p->first_state + state].is);
    if (!ech_bucket_holds_shard(bucket) && !ech_bucket_is_served(bucket))
        return ech_plan_param_bytes(plan, param);
    return ech_plan_part(plan, rank, param, &from) * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
}

void ech_plan_snapshot(ech_plan *plan, int index)
{
    ech_plan_param *p = &plan->param[index];
    int64_t bytes = written_bytes(plan, plan->rank, index, -1);
    if (bytes && p->master < 0)
        p->snapshot = ech_plan_add_persistent(plan, ECH_MEMORY_SNAPSHOT, index, bytes);
    for (int s = 0; s < p->states; s++) {
        ech_plan_state *state = &plan->state.at[p->first_state + s];
        int64_t written = written_bytes(plan, plan->rank, index, s);
        if (written)
            state->snapshot = ech_plan_add_persistent(plan, ECH_MEMORY_SNAPSHOT, index, written);
    }
    if (bytes && ech_weights_keep_previous(plan->schedule->weights))
        p->previous = ech_plan_add_persistent(plan, ECH_MEMORY_SNAPSHOT, index, bytes);
}

static int64_t snapshot_bytes(const ech_plan *plan, int rank, int index)
{
    const ech_plan_param *p = &plan->param[index];
    int64_t copies = (p->master < 0) + (ech_weights_keep_previous(plan->schedule->weights));
    int64_t bytes =
        copies * ech_plan_align(plan, ECH_MEMORY_SNAPSHOT, written_bytes(plan, rank, index, -1));
    for (int s = 0; s < p->states; s++)
        bytes += ech_plan_align(plan, ECH_MEMORY_SNAPSHOT, written_bytes(plan, rank, index, s));
    return bytes;
}

int64_t ech_plan_snapshot_bytes(const ech_plan *plan, int rank)
{
    int64_t bytes = 0;
    for (int i = 0; i < (int)plan->model->param.n && plan->snapshots; i++)
        bytes += snapshot_bytes(plan, rank, i);
    return bytes;
}

/* ---- statistics ---- */

ech_fold_over ech_step_fold(const ech_plan *plan, const ech_step *step)
{
    return step->group == plan->bucket.at[step->index].group ? ECH_FOLD_SHARDS : ECH_FOLD_TENSOR;
}

bool ech_plan_statistic_folds(const ech_plan_statistic *statistic, ech_fold_over fold, int round)
{
    return statistic->shards[fold] > 1 && statistic->is.round == round;
}

static int64_t take(const ech_plan *plan, ech_bucket *bucket, int64_t bytes)
{
    int64_t at = bucket->statistics_bytes;
    bucket->statistics_bytes += ech_plan_align(plan, ECH_MEMORY_STATISTICS, bytes);
    return at;
}

static bool is_flat(const ech_plan_statistic *s)
{
    return s->is.fold == ECH_SHARDS_GATHER || s->is.fold == ECH_SHARDS_OWNER;
}

/* True if tensor ranks fold the statistic, or if it is laid out like the bucket and they fold
 * another such statistic of its round. */
static bool folds_tensor(const ech_plan *plan, const ech_bucket *bucket,
                         const ech_plan_statistic *s)
{
    bool folds = s->shards[ECH_FOLD_TENSOR] > 1;
    for (int i = 0; is_flat(s) && i < bucket->params; i++) {
        const ech_plan_param *p = &plan->param[plan->bucket_param.at[bucket->first_param + i]];
        for (int k = 0; k < p->statistics; k++) {
            const ech_plan_statistic *other = &plan->statistic.at[p->first_statistic + k];
            folds |=
                is_flat(other) && ech_plan_statistic_folds(other, ECH_FOLD_TENSOR, s->is.round);
        }
    }
    return folds;
}

/* Places the statistics of a round with exactly these folds. */
static void place(ech_plan *plan, ech_bucket *bucket, int round, bool shards, bool tensor)
{
    int64_t flat = -1, item = (int64_t)ech_dtype_bytes(plan->types.wide);
    for (int i = 0; i < bucket->params; i++) {
        const ech_plan_param *p = &plan->param[plan->bucket_param.at[bucket->first_param + i]];
        for (int k = 0; k < p->statistics; k++) {
            ech_plan_statistic *s = &plan->statistic.at[p->first_statistic + k];
            if (s->is.round != round || (s->shards[ECH_FOLD_SHARDS] > 1) != shards ||
                folds_tensor(plan, bucket, s) != tensor)
                continue;
            if (is_flat(s) && flat < 0) flat = take(plan, bucket, bucket->elements * item);
            s->at = s->whole = is_flat(s)
                                   ? flat + p->bucket_offset * item
                                   : take(plan, bucket, ech_plan_state_bytes(plan, &s->is.is));
            if (is_flat(s)) bucket->folded[round][ECH_FOLD_SHARDS].flat = s->is.fold;
            bucket->owned |= ech_bucket_is_sharded(bucket) && s->is.fold == ECH_SHARDS_OWNER;
            if (round >= bucket->rounds) bucket->rounds = round + 1;
        }
    }
}

ech_shape ech_plan_put_together(const ech_plan *plan, const ech_state *state)
{
    ech_shape shape = state->shape;
    if (!ech_shape_is_stack(&shape)) return shape;
    shape.size[0] = ech_axis_local(shape.axis[0], shape.size[0], plan->layout->sharding);
    shape.axis[0] = ECH_AXIS_NONE;
    return shape;
}

static int64_t whole_bytes(const ech_plan *plan, const ech_state *state)
{
    ech_shape shape = ech_plan_put_together(plan, state);
    return ech_shape_whole(&shape) * item_of(plan, state);
}

static void place_gathered(ech_plan *plan, ech_bucket *bucket)
{
    for (int i = 0; i < bucket->params; i++) {
        const ech_plan_param *p = &plan->param[plan->bucket_param.at[bucket->first_param + i]];
        for (int k = 0; k < p->statistics; k++) {
            ech_plan_statistic *s = &plan->statistic.at[p->first_statistic + k];
            if (s->shards[ECH_FOLD_TENSOR] > 1 && s->is.fold == ECH_SHARDS_GATHER)
                s->whole = take(plan, bucket, whole_bytes(plan, &s->is.is));
        }
    }
}

/* In a sharded bucket, rounds compute statistics of this rank's shard, and members fold those taken
 * over the shards. */
static void cut_statistics(ech_plan *plan, const ech_bucket *bucket, int param)
{
    const ech_plan_param *p = &plan->param[param];
    for (int k = 0; k < p->statistics; k++) {
        ech_plan_statistic *s = &plan->statistic.at[p->first_statistic + k];
        if (ech_bucket_is_sharded(bucket) &&
            ech_optimizer_first_is_in(&plan->model->param.at[param], s->is.over))
            s->shards[ECH_FOLD_SHARDS] = (int)(bucket->elements / bucket->shard);
    }
}

/* The member with the least work so far becomes the owner of a product; all members find the
 * same. */
static void find_owners(ech_plan *plan)
{
    for (int group = 0; group < ECH_GROUPS && plan->optimizer->flops; group++) {
        ech_membership m =
            ech_layout_membership(plan->layout, plan->model, plan->rank, (ech_layout_group)group);
        ECH_FREED double *load = ech_calloc((size_t)m.size + 1, sizeof *load);
        for (size_t i = 0; i < plan->bucket_param.n; i++) {
            int param = plan->bucket_param.at[i];
            ech_plan_param *p = &plan->param[param];
            if ((int)plan->bucket.at[p->bucket].group != group) continue;
            ech_param of = ech_optimizer_one(&plan->model->param.at[param]);
            double flops = plan->optimizer->flops(&of);
            p->first_owner = (int)plan->owner.n;
            for (int one = 0; one < p->stacked; one++) {
                int least = 0;
                for (int k = 1; k < m.size; k++)
                    if (load[k] < load[least]) least = k;
                load[least] += flops;
                ECH_PUSH(plan->owner, least);
            }
        }
    }
}

int64_t ech_step_part_of_one(const ech_plan *plan, const ech_step *step, int param, int one,
                             int64_t *first)
{
    const ech_plan_param *p = &plan->param[param];
    int64_t begin, n = ech_step_part_of(plan, step, param, &begin);
    int64_t each = p->elements / p->stacked, before = one * each;
    int64_t end = begin + n < before + each ? begin + n : before + each;
    if (begin < before) begin = before;
    *first = end > begin ? begin - before : 0;
    return end > begin ? end - begin : 0;
}

bool ech_step_takes_part(const ech_plan *plan, const ech_step *step, int param, int one, int round)
{
    const ech_plan_param *p = &plan->param[param];
    const ech_bucket *bucket = &plan->bucket.at[p->bucket];
    int64_t first;
    for (int k = 0; k < p->statistics && ech_bucket_is_sharded(bucket); k++) {
        const ech_statistic *s = &plan->statistic.at[p->first_statistic + k].is;
        if (s->fold == ECH_SHARDS_OWNER && s->round == round)
            return plan->owner.at[p->first_owner + one] == (int)(bucket->own / bucket->shard);
    }
    return ech_step_part_of_one(plan, step, param, one, &first) > 0;
}

double ech_step_round_flops(const ech_plan *plan, const ech_step *step, int param)
{
    double flops = 0;
    ech_param of = ech_optimizer_one(&plan->model->param.at[param]);
    for (int one = 0; one < plan->param[param].stacked && plan->optimizer->flops; one++)
        if (ech_step_takes_part(plan, step, param, one, step->count))
            flops += plan->optimizer->flops(&of);
    return flops;
}

void ech_pass_statistics(ech_plan *plan)
{
    find_owners(plan);
    for (size_t b = 0; b < plan->bucket.n; b++) {
        ech_bucket *bucket = &plan->bucket.at[b];
        bucket->statistics = -1;
        for (int i = 0; i < bucket->params; i++)
            cut_statistics(plan, bucket, plan->bucket_param.at[bucket->first_param + i]);
        for (int round = 0; round < ECH_MAX_ROUNDS; round++) {
            struct ech_folded *folded = bucket->folded[round];
            folded[ECH_FOLD_SHARDS].at = bucket->statistics_bytes;
            place(plan, bucket, round, true, false);
            folded[ECH_FOLD_TENSOR].at = bucket->statistics_bytes;
            place(plan, bucket, round, true, true);
            folded[ECH_FOLD_SHARDS].bytes = bucket->statistics_bytes - folded[ECH_FOLD_SHARDS].at;
            place(plan, bucket, round, false, true);
            folded[ECH_FOLD_TENSOR].bytes = bucket->statistics_bytes - folded[ECH_FOLD_TENSOR].at;
            place(plan, bucket, round, false, false);
        }
        place_gathered(plan, bucket);
    }
}

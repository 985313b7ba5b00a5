/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of gradient compression. Factors: RESIDUAL, TRANSFORM, REDUCE_LEFT, TRANSFORM_BACK,
 * REDUCE_RIGHT, DECOMPRESS. Selections: RESIDUAL, CHOOSE, GATHER_CHOSEN, DECOMPRESS. The first step
 * that touches the factors or selections makes their value; each step touches it first.
 */
#include "schedule/step/step.h"
#include "schedule/states.h"

static ech_bucket *bucket_of(const ech_accessor *a)
{
    return &a->plan->bucket.at[a->step->index];
}

static int param_of(const ech_plan *plan, const ech_bucket *bucket, int i)
{
    return plan->bucket_param.at[bucket->first_param + i];
}

static void touch_gradients(ech_accessor *a, bool write)
{
    ech_access_sum(a, write);
}

static void touch_states(ech_accessor *a, ech_state_role role, bool write)
{
    for (int i = 0; i < bucket_of(a)->params; i++) {
        int param = param_of(a->plan, bucket_of(a), i);
        int state = a->plan->param[param].first_state + ech_plan_state_of(a->plan, param, role);
        ech_access_as(a, ECH_USE_STATE, a->plan->state.at[state].value, write);
    }
}

/* ---- scratch ---- */

int ech_plan_selections(const ech_plan *plan, const ech_bucket *bucket)
{
    return ech_layout_group_size(plan->layout, plan->model, plan->rank, bucket->group);
}

int64_t ech_plan_sent_room(const ech_plan *plan, int param)
{
    int64_t bytes = plan->param[param].elements * (int64_t)ech_dtype_bytes(plan->types.wide);
    return ech_align(bytes, plan->alignment[ECH_SPACE_DEVICE]);
}

int64_t ech_plan_orthogonal_room(const ech_plan *plan, int param)
{
    int64_t size[2], rank = plan->param[param].rank;
    ech_plan_matrix(plan, param, size);
    int64_t numbers = rank * (size[0] + ECH_ORTHOGONAL_ROOM);
    return ech_align(numbers * (int64_t)sizeof(double), plan->alignment[ECH_SPACE_DEVICE]);
}

/* Products of gradients with right factors, of transposed gradients with left factors, and of both
 * factors. */
typedef enum product { TO_LEFT, TO_RIGHT, BACK } product;

/* The most scratch that any product of a bucket's matrices with a factor needs, for each box of
 * this rank. */
static size_t scratch_of_products(const ech_plan *plan, const ech_bucket *bucket, product kind)
{
    size_t most = 0;
    for (int i = 0; i < bucket->params; i++) {
        int param = param_of(plan, bucket, i);
        ech_shape one = ech_shape_of_one(&plan->model->param.at[param].shape);
        ech_box box[ECH_MOST_BOXES];
        int boxes = ech_shape_boxes(&one, plan->layout->sharding,
                                    ech_layout_shard_at(plan->layout, plan->rank), box);
        for (int b = 0; b < boxes; b++) {
            int64_t n = box[b].size[0], m = box[b].size[1], rank = plan->param[param].rank;
            const int64_t dims[][7] = {[TO_LEFT] = {n, rank, m, 0, 0, 0, 1},
                                       [TO_RIGHT] = {m, rank, n, 1, 0, 0, 1},
                                       [BACK] = {n, m, rank, 0, 1, 0, 0}};
            size_t bytes =
                ech_kernel_scratch(plan->kernels->wide, ECH_OP_matmul, plan->threads, dims[kind]);
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

static int64_t room_of(const ech_plan *plan, const ech_bucket *bucket)
{
    int64_t most = 0;
    for (int i = 0; i < bucket->params; i++) {
        int64_t room = ech_plan_orthogonal_room(plan, param_of(plan, bucket, i));
        if (room > most) most = room;
    }
    return most;
}

/* ---- steps ---- */

static void touch_residual(ech_accessor *a)
{
    touch_gradients(a, true);
    touch_states(a, ECH_STATE_RESIDUAL, false);
}

static void touch_new(ech_accessor *a, int64_t elements)
{
    ech_bucket *bucket = bucket_of(a);
    int64_t bytes = elements * (int64_t)ech_dtype_bytes(bucket->dtype);
    bucket->factors = ech_access_new_plain(a, ECH_MEMORY_FACTORS, a->step->index, bytes);
    ech_access_as(a, ECH_USE_FACTORS, bucket->factors, true);
    touch_gradients(a, false);
}

static void touch_transform(ech_accessor *a)
{
    ech_bucket *bucket = bucket_of(a);
    touch_new(a, bucket->left + bucket->right);
    touch_states(a, ECH_STATE_BASIS, false);
    ech_access_scratch(a, scratch_of_products(a->plan, bucket, TO_LEFT));
}

static void touch_choose(ech_accessor *a)
{
    touch_new(a, ech_plan_selections(a->plan, bucket_of(a)) * bucket_of(a)->chosen);
}

static void touch_gather(ech_accessor *a)
{
    ech_access_as(a, ECH_USE_FACTORS, bucket_of(a)->factors, true);
}

static int64_t elements_of(const ech_plan *plan, const ech_step *step)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    if (step->kind == ECH_STEP_GATHER_CHOSEN)
        return ech_plan_selections(plan, bucket) * bucket->chosen;
    return step->kind == ECH_STEP_REDUCE_LEFT ? bucket->left : bucket->right;
}

static void touch_reduce(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a);
    ech_access_as(a, ECH_USE_FACTORS, bucket->factors, true);
    ech_access_sum_scratch(
        a, ech_reduction_part_scratch(a->plan->reduction, ECH_REDUCTION_WHOLE, bucket->wire,
                                      elements_of(a->plan, a->step),
                                      a->plan->lineup[a->step->group]));
}

static void touch_transform_back(ech_accessor *a)
{
    ech_access_as(a, ECH_USE_FACTORS, bucket_of(a)->factors, true);
    touch_gradients(a, false);
    ech_access_scratch(a, (size_t)room_of(a->plan, bucket_of(a)) +
                              scratch_of_products(a->plan, bucket_of(a), TO_RIGHT));
}

static void touch_decompress(ech_accessor *a)
{
    ech_access_as(a, ECH_USE_FACTORS, bucket_of(a)->factors, false);
    touch_gradients(a, true);
    touch_states(a, ECH_STATE_RESIDUAL, true);
    if (bucket_of(a)->chosen) return;
    touch_states(a, ECH_STATE_BASIS, true);
    ech_access_scratch(a, scratch_of_products(a->plan, bucket_of(a), BACK));
}

/* ---- cost ---- */

/* Gradients are read or written `times` times; a product with factors multiplies each number by its
 * rank. Selection takes two passes: one to find the numbers, one to copy them. */
static const struct {
    int times;
    bool multiplies;
} passes[ECH_STEPS] = {
    [ECH_STEP_RESIDUAL] = {3, false},      [ECH_STEP_TRANSFORM] = {1, true},
    [ECH_STEP_TRANSFORM_BACK] = {1, true}, [ECH_STEP_CHOOSE] = {2, false},
    [ECH_STEP_DECOMPRESS] = {6, true},
};

static ech_work work_of(const ech_step_query *q)
{
    const ech_plan *plan = q->plan;
    const ech_bucket *bucket = &plan->bucket.at[q->step->index];
    int times = passes[q->step->kind].times;
    ech_work work = {.bytes = times * (double)ech_plan_bucket_bytes(plan, q->step->index)};
    for (int i = 0; i < bucket->params && passes[q->step->kind].multiplies; i++) {
        const ech_plan_param *p = &plan->param[param_of(plan, bucket, i)];
        work.flops += 2.0 * (double)p->elements * (double)p->rank;
    }
    return work;
}

/* ---- traffic ---- */

/* Selections are gathered unchanged. */
static ech_dtype wire_of(const ech_plan *plan, const ech_step *step)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    return step->kind == ECH_STEP_GATHER_CHOSEN ? bucket->dtype : bucket->wire;
}

static int64_t sent_bytes(const ech_plan *plan, const ech_step *step, const ech_membership *m)
{
    return ech_reduction_part_elements(plan->reduction, ech_step_reduction_part(step),
                                       elements_of(plan, step), plan->lineup[step->group],
                                       m->index) *
           (int64_t)ech_dtype_bytes(wire_of(plan, step));
}

static ech_work reduce_work(const ech_step_query *q)
{
    const ech_plan *plan = q->plan;
    ech_membership m = ech_layout_membership(plan->layout, plan->model, plan->rank, q->step->group);
    return (ech_work){.bytes = (double)sent_bytes(plan, q->step, &m)};
}

static double reduce_seconds(const ech_step_query *q)
{
    double bytes =
        (double)elements_of(q->plan, q->step) * (double)ech_dtype_bytes(wire_of(q->plan, q->step));
    return ech_cost_sum(&q->costs->rates, q->plan->reduction, ech_step_reduction_part(q->step),
                        bytes, q->plan->lineup[q->step->group], q->among.first, q->among.last);
}

static void count_reduce(ech_traffic_count *c, const ech_step *step)
{
    const ech_membership *m = &c->of[step->group];
    ech_collective kind = step->kind == ECH_STEP_GATHER_CHOSEN ? ECH_COLLECTIVE_ALL_GATHER
                                                               : ECH_COLLECTIVE_ALL_REDUCE;
    ech_flow flow = {.calls = 1, .messages = -1, .bytes = sent_bytes(c->plan, step, m)};
    if (c->plan->reduction == ECH_REDUCTION_DIRECT)
        flow.messages =
            ech_collective_traffic(kind, wire_of(c->plan, step), elements_of(c->plan, step),
                                   ech_plan_among(c->plan, m->size), m->index)
                .messages;
    ech_traffic_add(&c->traffic[ECH_TRAFFIC_DATA], kind, step->group, flow);
}

#define PASS(touches)                                                                              \
    {                                                                                              \
        .touch = touches, .print = ech_step_print_bucket, .work = work_of,                         \
        .seconds = ech_step_pass_seconds                                                           \
    }
const ech_step_methods ech_residual_methods = PASS(touch_residual);
const ech_step_methods ech_transform_methods = PASS(touch_transform);
const ech_step_methods ech_transform_back_methods = PASS(touch_transform_back);
const ech_step_methods ech_choose_methods = PASS(touch_choose);
const ech_step_methods ech_decompress_methods = PASS(touch_decompress);
const ech_step_methods ech_reduce_factors_methods = {touch_reduce, ech_step_print_over, reduce_work,
                                                     reduce_seconds, count_reduce};
const ech_step_methods ech_gather_chosen_methods = {touch_gather, ech_step_print_over, reduce_work,
                                                    reduce_seconds, count_reduce};

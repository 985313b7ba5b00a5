/* SPDX-License-Identifier: Apache-2.0
 *
 * A bucket's update on the host: FETCH_STATES, OFFLOAD_GRADS, UPDATE_ON_HOST, FETCH_WEIGHTS, OFFLOAD_STATES, ROOM; and
 * READ_UPDATE before them. A step that copies accesses pairs of values: what it reads, and where that goes.
 */
#include "schedule/step/step.h"

static ech_bucket *bucket_of(const ech_accessor *a)
{
    return &a->plan->bucket.at[a->step->index];
}

static void print(const ech_step *step, ech_text *out)
{
    ech_text_append(out, " bucket %d", step->index);
}

/* A value of as many numbers as the rank updates of the bucket. */
static int make(ech_accessor *a, ech_dtype dtype)
{
    int64_t first,
        bytes = ech_bucket_updated(bucket_of(a), &first) * (int64_t)ech_dtype_bytes(dtype);
    return ech_access_new(a, (ech_value){.kind = ECH_MEMORY_OPTIMIZER_ON_HOST,
                                         .block = -1,
                                         .local = -1,
                                         .micro = -1,
                                         .index = a->step->index,
                                         .bytes = bytes});
}

static void touch_scalars(ech_accessor *a)
{
    ech_access_pair(a, a->plan->scalars, a->plan->staged);
}

static void fetch_states(ech_accessor *a)
{
    ech_bucket *bucket = bucket_of(a);
    for (int s = 0; s < bucket->states; s++) {
        bucket->on_host.state[s] = make(a, bucket->state[s].dtype);
        ech_access_pair(a, bucket->state[s].value, bucket->on_host.state[s]);
    }
}

/* Without masters the update works on the weights themselves. */
static void offload_grads(ech_accessor *a)
{
    ech_bucket *bucket = bucket_of(a);
    bucket->on_host.gradients = make(a, bucket->dtype);
    bucket->on_host.weights = bucket->fetched ? bucket->weights : make(a, bucket->weight_dtype);
    ech_access_pair(a, a->list->summed[a->step->index], bucket->on_host.gradients);
    if (ech_plan_has_masters(a->plan, bucket) || bucket->fetched) return;
    ech_access_pair(a, ech_plan_weights(a->plan, a->step->index, a->step->version),
                    bucket->on_host.weights);
}

static int state_on_host(const ech_accessor *a, int s)
{
    const ech_bucket *bucket = bucket_of(a);
    return a->plan->states == ECH_SPACE_DISK ? bucket->on_host.state[s] : bucket->state[s].value;
}

/* In this order, which ech_list_update_values knows. */
static void update_on_host(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a);
    ech_access_value(a, bucket->on_host.gradients, false);
    ech_access_value(a, bucket->on_host.weights, true);
    for (int s = 0; s < bucket->states; s++) ech_access_value(a, state_on_host(a, s), true);
    ech_access_value(a, a->plan->staged, false);
}

struct ech_on_host ech_list_update_values(const ech_plan *plan, const ech_list *list,
                                          const ech_step *step)
{
    const ech_access *access = &list->access.at[step->first_access];
    struct ech_on_host of = {.gradients = access[0].value, .weights = access[1].value};
    for (int s = 0; s < plan->bucket.at[step->index].states; s++) of.state[s] = access[2 + s].value;
    return of;
}

static void fetch_weights(ech_accessor *a)
{
    ech_access_pair(a, bucket_of(a)->on_host.weights,
                    ech_plan_weights(a->plan, a->step->index, a->step->version));
}

static void offload_states(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a);
    for (int s = 0; s < bucket->states; s++)
        ech_access_pair(a, bucket->on_host.state[s], bucket->state[s].value);
}

static ech_work update_work(const ech_step_query *q)
{
    return ech_update_methods.work(q);
}

static double update_seconds(const ech_step_query *q)
{
    return ech_update_methods.seconds(q);
}

/* ---- copies: bytes of what the rank updates ---- */

static int64_t bytes_of(const ech_plan *plan, const ech_step *step)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    ech_step_kind kind = step->kind;
    bool grads = kind == ECH_STEP_OFFLOAD_GRADS, states = !grads && kind != ECH_STEP_FETCH_WEIGHTS;
    size_t each = grads ? ech_dtype_bytes(bucket->dtype) : 0;
    if (!states && !(grads && (ech_plan_has_masters(plan, bucket) || bucket->fetched)))
        each += ech_dtype_bytes(bucket->weight_dtype);
    for (int s = 0; s < bucket->states && states; s++)
        each += ech_dtype_bytes(bucket->state[s].dtype);
    int64_t first;
    return ech_bucket_updated(bucket, &first) * (int64_t)each;
}

static ech_work copy_work(const ech_step_query *q)
{
    return (ech_work){.bytes = (double)bytes_of(q->plan, q->step)};
}

static double copy_seconds(const ech_step_query *q)
{
    return ech_cost_copy(&q->costs->rates, (double)bytes_of(q->plan, q->step));
}

static void count_copy(ech_traffic_count *c, const ech_step *step)
{
    static const struct {
        ech_space from, to;
    } ways[ECH_STEPS] = {[ECH_STEP_FETCH_STATES] = {ECH_SPACE_DISK, ECH_SPACE_HOST},
                         [ECH_STEP_OFFLOAD_GRADS] = {ECH_SPACE_DEVICE, ECH_SPACE_HOST},
                         [ECH_STEP_FETCH_WEIGHTS] = {ECH_SPACE_HOST, ECH_SPACE_DEVICE},
                         [ECH_STEP_OFFLOAD_STATES] = {ECH_SPACE_HOST, ECH_SPACE_DISK}};
    ech_traffic_add_copy(c, ways[step->kind].from, ways[step->kind].to, bytes_of(c->plan, step));
}

#define COPY(touches)                                                                              \
    {                                                                                              \
        .touch = touches, .print = print, .work = copy_work, .seconds = copy_seconds,              \
        .count = count_copy                                                                        \
    }
const ech_step_methods ech_read_update_methods = {.touch = touch_scalars};
const ech_step_methods ech_fetch_states_methods = COPY(fetch_states);
const ech_step_methods ech_offload_grads_methods = COPY(offload_grads);
const ech_step_methods ech_update_on_host_methods = {
    .touch = update_on_host, .print = print, .work = update_work, .seconds = update_seconds};
const ech_step_methods ech_fetch_weights_methods = COPY(fetch_weights);
const ech_step_methods ech_offload_states_methods = COPY(offload_states);
const ech_step_methods ech_room_methods = {.print = print};

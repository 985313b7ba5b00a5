/* SPDX-License-Identifier: Apache-2.0
 *
 * A bucket's update on the host: FETCH_STATES, OFFLOAD_GRADS, STATISTICS_ON_HOST, FETCH_STATISTICS,
 * OFFLOAD_STATISTICS, UPDATE_ON_HOST, FETCH_WEIGHTS, OFFLOAD_WEIGHTS, OFFLOAD_STATES, ROOM; and
 * READ_UPDATE before them. A step that copies accesses pairs of values: source and destination.
 */
#include "schedule/step/step.h"
#include "schedule/operands.h"
#include "schedule/states.h"

static ech_bucket *bucket_of(const ech_accessor *a)
{
    return &a->plan->bucket.at[a->step->index];
}

static int make_of(ech_accessor *a, ech_memory_kind kind, int64_t bytes)
{
    return ech_access_new_plain(a, kind, a->step->index, bytes);
}

/* Adds a value with as many numbers as the step works on. */
static int make(ech_accessor *a, ech_memory_kind kind, ech_dtype dtype)
{
    int64_t first, n = ech_step_part(a->plan, a->step, &first);
    return make_of(a, kind, n * (int64_t)ech_dtype_bytes(dtype));
}

static void touch_scalars(ech_accessor *a)
{
    ech_access_pair(a, a->plan->scalars, a->plan->staged);
}

/* Persistent values. */
static const int *states_of(const ech_accessor *a)
{
    return &a->plan->state_value.at[bucket_of(a)->first_state_value];
}

/* Bytes of a persistent value of weights or element-wise states that the step works on: all of it,
 * or if the bucket is cut its piece of the numbers that the rank updates. */
static int64_t bytes_in(const ech_plan *plan, const ech_step *step, int value)
{
    int64_t first, bytes = plan->persistent.at[value].bytes;
    int64_t all = ech_bucket_updated(&plan->bucket.at[step->index], &first);
    int64_t n = ech_step_part(plan, step, &first);
    return n < all ? bytes / all * n : bytes;
}

/* Adds a value for that. */
static int make_for(ech_accessor *a, int value, ech_memory_kind kind)
{
    return make_of(a, kind, bytes_in(a->plan, a->step, value));
}

/* True if the step copies number s of its bucket's states, between disk and host. States that are
 * not element-wise come with the first piece, and leave with the last. */
static bool copies_state(const ech_plan *plan, const ech_step *step, int s)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    int at = step->kind == ECH_STEP_FETCH_STATES ? 1 : bucket->pieces;
    if (plan->states != ECH_SPACE_DISK) return false;
    return s < bucket->states || bucket->pieces == 1 || ech_step_piece(step) == at;
}

static int64_t bytes_of_state(const ech_plan *plan, const ech_step *step, int s)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    int value = plan->state_value.at[bucket->first_state_value + s];
    return s < bucket->states ? bytes_in(plan, step, value) : plan->persistent.at[value].bytes;
}

/* All pieces share the copies of states that are not element-wise. */
static void fetch_state(ech_accessor *a, int s)
{
    const ech_bucket *bucket = bucket_of(a);
    int *on_host = ech_access_on_host(a);
    int copy = make_of(a, ECH_MEMORY_OPTIMIZER_ON_HOST, bytes_of_state(a->plan, a->step, s));
    for (int k = 0; k < (s < bucket->states ? 1 : bucket->pieces); k++)
        on_host[k * (1 + bucket->state_values) + 1 + s] = copy;
    ech_access_pair(a, states_of(a)[s], copy);
}

/* Without masters the update works on the weights themselves. */
static bool fetches_weights(const ech_plan *plan, const ech_bucket *bucket)
{
    return plan->weights == ECH_SPACE_DISK && !ech_plan_has_masters(plan, bucket);
}

/* For weights on disk. */
static int twin_of_weights(ech_accessor *a)
{
    return make_for(a, bucket_of(a)->weights, ECH_MEMORY_PARAMETERS_ON_HOST);
}

static void fetch_states(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a);
    int *weights = ech_access_on_host(a);
    if (fetches_weights(a->plan, bucket))
        ech_access_pair(a, bucket->weights, *weights = twin_of_weights(a));
    for (int s = 0; s < bucket->state_values; s++)
        if (copies_state(a->plan, a->step, s)) fetch_state(a, s);
}

static int *complete_of(const ech_accessor *a)
{
    return &bucket_of(a)->complete[a->step->turn % 2];
}

static void offload_grads(ech_accessor *a)
{
    *complete_of(a) = make(a, ECH_MEMORY_GRADIENTS_ON_HOST, bucket_of(a)->dtype);
    ech_access_pair(a, *ech_access_summed(a, a->step->index), *complete_of(a));
}

/* Rounds do not read weights that are rounded masters: the update makes them. Nor do rounds of a
 * bucket that is cut, unless the host stores all of the weights. */
static bool reads_weights(const ech_plan *plan, const ech_step *step)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    if (step->kind == ECH_STEP_UPDATE_ON_HOST) return true;
    return !ech_plan_has_masters(plan, bucket) &&
           (bucket->pieces == 1 || plan->weights == ECH_SPACE_HOST);
}

/* Finds the weights of an update on the host: the stored value, or one that was fetched or is made
 * from masters. */
static void find_weights(ech_accessor *a)
{
    const ech_plan *plan = a->plan;
    const ech_bucket *bucket = bucket_of(a);
    int *weights = ech_access_on_host(a);
    if (plan->weights == ECH_SPACE_HOST) *weights = bucket->weights;
    if (a->step->kind != ECH_STEP_UPDATE_ON_HOST || !ech_plan_has_masters(plan, bucket)) return;
    if (plan->weights == ECH_SPACE_DEVICE)
        *weights = make(a, ECH_MEMORY_OPTIMIZER_ON_HOST, bucket->weight_dtype);
    if (plan->weights == ECH_SPACE_DISK) *weights = twin_of_weights(a);
}

/* Rounds change states, too. */
static void update_on_host(ech_accessor *a)
{
    const ech_plan *plan = a->plan;
    ech_bucket *bucket = bucket_of(a);
    const int *on_host = ech_access_on_host(a);
    bool round = a->step->kind == ECH_STEP_STATISTICS_ON_HOST;
    find_weights(a);
    ech_access_as(a, ECH_USE_SUM, *complete_of(a), false);
    if (reads_weights(plan, a->step)) ech_access_as(a, ECH_USE_WEIGHTS, on_host[0], !round);
    if (round && a->step->count == 0)
        bucket->statistics_on_host = ech_access_new_statistics(a, ECH_MEMORY_STATISTICS_ON_HOST);
    if (bucket->rounds) ech_access_as(a, ECH_USE_STATISTICS, bucket->statistics_on_host, true);
    for (int s = 0; s < bucket->state_values; s++)
        if (ech_step_state_use(plan, a->step, s) >= 0)
            ech_access_as(a, ECH_USE_STATE, on_host[1 + s], true);
    ech_access_value(a, plan->staged, false);
    size_t bytes = ech_update_scratch(plan, bucket, ech_kernels_fast(plan->kernels->dtype),
                                      plan->host_threads);
    if (!bytes) return;
    a->step->scratch = make_of(a, ECH_MEMORY_SCRATCH_ON_HOST, (int64_t)bytes);
    ech_access_value(a, a->step->scratch, true);
}

/* Ranks fold statistics on the device. */
static void fetch_statistics(ech_accessor *a)
{
    ech_bucket *bucket = bucket_of(a);
    bucket->statistics = ech_access_new_statistics(a, ECH_MEMORY_STATISTICS);
    ech_access_pair(a, bucket->statistics_on_host, bucket->statistics);
}

static void offload_statistics(ech_accessor *a)
{
    ech_access_pair(a, bucket_of(a)->statistics, bucket_of(a)->statistics_on_host);
}

static void fetch_weights(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a);
    int to = ech_bucket_meets(bucket)
                 ? ech_access_new_weights(a, a->step->index, ECH_SPACE_DEVICE, bucket->shard)
                 : ech_plan_weights(a->plan, a->step->index, a->step->version);
    ech_access_pair(a, *ech_access_on_host(a), to);
}

static void offload_weights(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a);
    int *weights = ech_access_on_host(a);
    if (!ech_bucket_is_fetched(bucket)) { /* the update's old ones */
        *weights = make(a, ECH_MEMORY_OPTIMIZER_ON_HOST, bucket->weight_dtype);
        ech_access_pair(a, ech_plan_weights(a->plan, a->step->index, a->step->version), *weights);
        return;
    }
    ech_access_pair(a, ech_access_weights_of(a, a->step->index), *weights);
}

static void offload_states(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a);
    const int *on_host = ech_access_on_host(a);
    if (a->plan->weights == ECH_SPACE_DISK) ech_access_pair(a, on_host[0], bucket->weights);
    for (int s = 0; s < bucket->state_values; s++)
        if (copies_state(a->plan, a->step, s)) ech_access_pair(a, on_host[1 + s], states_of(a)[s]);
}

/* The fraction that the step works on, of all that the rank updates. */
static double share_of(const ech_step_query *q)
{
    int64_t first, all = ech_bucket_updated(&q->plan->bucket.at[q->step->index], &first);
    return all ? (double)ech_step_part(q->plan, q->step, &first) / (double)all : 1;
}

static ech_work update_work(const ech_step_query *q)
{
    return (ech_work){.bytes = share_of(q) * ech_update_methods.work(q).bytes};
}

static double update_seconds(const ech_step_query *q)
{
    return share_of(q) * ech_update_methods.seconds(q);
}

static ech_work round_work(const ech_step_query *q)
{
    return ech_statistics_methods.work(q);
}

/* ---- copies ---- */

static int64_t bytes_of_states(const ech_plan *plan, const ech_step *step)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    int64_t bytes = 0;
    for (int s = 0; s < bucket->state_values; s++)
        if (copies_state(plan, step, s)) bytes += bytes_of_state(plan, step, s);
    return bytes;
}

static int64_t bytes_kept(const ech_plan *plan, const ech_step *step)
{
    return bytes_in(plan, step, plan->bucket.at[step->index].weights);
}

static int64_t bytes_from_disk(const ech_plan *plan, const ech_step *step)
{
    bool weights = fetches_weights(plan, &plan->bucket.at[step->index]);
    return bytes_of_states(plan, step) + (weights ? bytes_kept(plan, step) : 0);
}

static int64_t bytes_to_disk(const ech_plan *plan, const ech_step *step)
{
    bool weights = plan->weights == ECH_SPACE_DISK;
    return bytes_of_states(plan, step) + (weights ? bytes_kept(plan, step) : 0);
}

static int64_t bytes_of_statistics(const ech_plan *plan, const ech_step *step)
{
    return plan->bucket.at[step->index].statistics_bytes;
}

static int64_t bytes_as(const ech_plan *plan, const ech_step *step, ech_dtype dtype)
{
    int64_t first;
    return ech_step_part(plan, step, &first) * (int64_t)ech_dtype_bytes(dtype);
}

static int64_t bytes_of_weights(const ech_plan *plan, const ech_step *step)
{
    return bytes_as(plan, step, plan->bucket.at[step->index].weight_dtype);
}

/* The old weights; or those gathered on the device. */
static int64_t bytes_of_weights_out(const ech_plan *plan, const ech_step *step)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    if (!ech_bucket_is_fetched(bucket)) return bytes_of_weights(plan, step);
    return bucket->elements * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
}

static int64_t bytes_of_gradients(const ech_plan *plan, const ech_step *step)
{
    return bytes_as(plan, step, plan->bucket.at[step->index].dtype);
}

static const struct {
    ech_space from, to;
    int64_t (*bytes)(const ech_plan *plan, const ech_step *step);
} copies[ECH_STEPS] = {
    [ECH_STEP_FETCH_STATES] = {ECH_SPACE_DISK, ECH_SPACE_HOST, bytes_from_disk},
    [ECH_STEP_OFFLOAD_GRADS] = {ECH_SPACE_DEVICE, ECH_SPACE_HOST, bytes_of_gradients},
    [ECH_STEP_FETCH_STATISTICS] = {ECH_SPACE_HOST, ECH_SPACE_DEVICE, bytes_of_statistics},
    [ECH_STEP_OFFLOAD_STATISTICS] = {ECH_SPACE_DEVICE, ECH_SPACE_HOST, bytes_of_statistics},
    [ECH_STEP_FETCH_WEIGHTS] = {ECH_SPACE_HOST, ECH_SPACE_DEVICE, bytes_of_weights},
    [ECH_STEP_OFFLOAD_WEIGHTS] = {ECH_SPACE_DEVICE, ECH_SPACE_HOST, bytes_of_weights_out},
    [ECH_STEP_OFFLOAD_STATES] = {ECH_SPACE_HOST, ECH_SPACE_DISK, bytes_to_disk}};

static int64_t bytes_of(const ech_plan *plan, const ech_step *step)
{
    return copies[step->kind].bytes(plan, step);
}

static ech_work copy_work(const ech_step_query *q)
{
    return (ech_work){.bytes = (double)bytes_of(q->plan, q->step)};
}

static double copy_seconds(const ech_step_query *q)
{
    ech_space from = copies[q->step->kind].from, to = copies[q->step->kind].to;
    return ech_cost_copy(&q->costs->rates, (double)bytes_of(q->plan, q->step),
                         from == ECH_SPACE_DISK || to == ECH_SPACE_DISK);
}

static void count_copy(ech_traffic_count *c, const ech_step *step)
{
    ech_traffic_add_copy(c, copies[step->kind].from, copies[step->kind].to,
                         bytes_of(c->plan, step));
}

#define COPY(touches, prints)                                                                      \
    {                                                                                              \
        .touch = touches, .print = prints, .work = copy_work, .seconds = copy_seconds,             \
        .count = count_copy                                                                        \
    }
const ech_step_methods ech_read_update_methods = {.touch = touch_scalars};
const ech_step_methods ech_fetch_states_methods = COPY(fetch_states, ech_step_print_bucket);
const ech_step_methods ech_offload_grads_methods = COPY(offload_grads, ech_step_print_bucket);
const ech_step_methods ech_statistics_on_host_methods = {.touch = update_on_host,
                                                         .print = ech_step_print_round,
                                                         .work = round_work,
                                                         .seconds = ech_step_pass_seconds};
const ech_step_methods ech_fetch_statistics_methods = COPY(fetch_statistics, ech_step_print_round);
const ech_step_methods ech_offload_statistics_methods =
    COPY(offload_statistics, ech_step_print_round);
const ech_step_methods ech_update_on_host_methods = {.touch = update_on_host,
                                                     .print = ech_step_print_bucket,
                                                     .work = update_work,
                                                     .seconds = update_seconds};
const ech_step_methods ech_fetch_weights_methods = COPY(fetch_weights, ech_step_print_bucket);
const ech_step_methods ech_offload_weights_methods = COPY(offload_weights, ech_step_print_bucket);
const ech_step_methods ech_offload_states_methods = COPY(offload_states, ech_step_print_bucket);
const ech_step_methods ech_room_methods = {.print = ech_step_print_bucket};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that work on buckets: INIT, HASH, REDUCE_GRADS, NORM, STASH, STATISTICS, FOLD, UPDATE.
 */
#include "schedule/step/step.h"
#include "schedule/operands.h"
#include "schedule/states.h"

/* ---- INIT, HASH: all buckets ---- */

static int64_t at_once(const ech_plan *plan, int64_t elements)
{
    return elements < plan->at_once ? elements : plan->at_once;
}

/* Scratch on the host for the elements worked on at a time: for a state on disk, or for full
 * weights of whose masters this rank has a shard; preceded by room for weights on disk. */
static int64_t most_of_states(const ech_plan *plan)
{
    int64_t most = 0;
    for (size_t s = 0; s < plan->state.n && plan->states == ECH_SPACE_DISK; s++) {
        const ech_plan_state *state = &plan->state.at[s];
        int64_t item = (int64_t)ech_dtype_bytes(ech_plan_state_dtype(plan, &state->is));
        int64_t bytes = at_once(plan, state->elements) * item;
        if (bytes > most) most = bytes;
    }
    return most;
}

static int64_t most_in_full(const ech_plan *plan)
{
    int64_t most = 0, item = (int64_t)ech_dtype_bytes(plan->types.wide);
    for (int i = 0; i < (int)plan->model->param.n; i++)
        if (ech_plan_draws_whole(plan, i) && at_once(plan, plan->param[i].elements) * item > most)
            most = at_once(plan, plan->param[i].elements) * item;
    return most;
}

bool ech_plan_draws_whole(const ech_plan *plan, int param)
{
    const ech_plan_param *p = &plan->param[param];
    return p->bucket >= 0 && p->master >= 0 && ech_bucket_meets(&plan->bucket.at[p->bucket]);
}

int64_t ech_plan_weights_room(const ech_plan *plan)
{
    int64_t most = 0, first;
    for (int i = 0; i < (int)plan->model->param.n && plan->weights == ECH_SPACE_DISK; i++) {
        const ech_plan_param *p = &plan->param[i];
        if (p->bucket < 0 || !ech_bucket_is_fetched(&plan->bucket.at[p->bucket])) continue;
        const ech_bucket *bucket = &plan->bucket.at[p->bucket];
        int64_t n = ech_bucket_keeps_shard(bucket) ? ech_plan_own(plan, i, &first) : p->elements;
        int64_t bytes = at_once(plan, n) * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
        if (bytes > most) most = bytes;
    }
    return ech_align(most, plan->alignment[ECH_SPACE_HOST]);
}

static void touch_buffer(ech_accessor *a, bool draws)
{
    const ech_plan *plan = a->plan;
    int64_t most = most_of_states(plan), full = draws ? most_in_full(plan) : 0;
    int64_t bytes = ech_plan_weights_room(plan) + (full > most ? full : most);
    if (!bytes) return;
    a->step->scratch = ech_access_new_plain(a, ECH_MEMORY_OPTIMIZER_ON_HOST, -1, bytes);
    ech_access_value(a, a->step->scratch, true);
}

static void touch_initial(ech_accessor *a)
{
    touch_buffer(a, true);
    for (int b = 0; b < (int)a->plan->bucket.n; b++) {
        for (int v = 0; v < a->plan->bucket.at[b].versions; v++) ech_access_weights(a, b, v, true);
        ech_access_states(a, b, true);
    }
}

/* The newest weights, and their masters. */
static void touch_hashed(ech_accessor *a)
{
    const ech_plan *plan = a->plan;
    touch_buffer(a, false);
    for (int b = 0; b < (int)plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        const ech_plan_param *first = &plan->param[plan->bucket_param.at[bucket->first_param]];
        ech_access_weights(a, b, 0, false);
        if (first->master >= 0)
            ech_access_value(a, plan->state.at[first->first_state + first->master].value, false);
    }
}

const ech_step_methods ech_init_methods = {.touch = touch_initial};
const ech_step_methods ech_hash_methods = {.touch = touch_hashed};

/* ---- one bucket ---- */

static const ech_bucket *bucket_of(const ech_plan *plan, const ech_step *step)
{
    return &plan->bucket.at[step->index];
}

static double bytes_of(const ech_step_query *q)
{
    return (double)ech_plan_bucket_bytes(q->plan, q->step->index);
}

static void read_gradients(ech_accessor *a)
{
    ech_access_sum(a, false);
}

/* ---- REDUCE_GRADS, and its halves: SCATTER_GRADS, and GATHER_WEIGHTS, which works on weights
 * ---- */

static const struct {
    ech_reduction_part part;
    ech_collective counts_as;
} sums[ECH_STEPS] = {
    [ECH_STEP_REDUCE_GRADS] = {ECH_REDUCTION_WHOLE, ECH_COLLECTIVE_ALL_REDUCE},
    [ECH_STEP_REDUCE_LEFT] = {ECH_REDUCTION_WHOLE, ECH_COLLECTIVE_ALL_REDUCE},
    [ECH_STEP_REDUCE_RIGHT] = {ECH_REDUCTION_WHOLE, ECH_COLLECTIVE_ALL_REDUCE},
    [ECH_STEP_SCATTER_GRADS] = {ECH_REDUCTION_SCATTER, ECH_COLLECTIVE_REDUCE_SCATTER},
    [ECH_STEP_GATHER_CHOSEN] = {ECH_REDUCTION_GATHER, ECH_COLLECTIVE_ALL_GATHER},
    [ECH_STEP_GATHER_WEIGHTS] = {ECH_REDUCTION_GATHER, ECH_COLLECTIVE_ALL_GATHER},
};

ech_reduction_part ech_step_reduction_part(const ech_step *step)
{
    return sums[step->kind].part;
}

bool ech_step_is_sum(const ech_step *step)
{
    return sums[step->kind].counts_as != ECH_COLLECTIVE_NONE;
}

static bool is_of_weights(const ech_step *step)
{
    return step->kind == ECH_STEP_GATHER_WEIGHTS;
}

/* The type in which its elements are sent. */
static ech_dtype wire_of(const ech_plan *plan, const ech_step *step)
{
    const ech_bucket *bucket = bucket_of(plan, step);
    return is_of_weights(step) ? bucket->weight_dtype : ech_bucket_wire(bucket, step->group);
}

/* If each micro-batch is scattered separately, the sum of a scatter is another value. A server has
 * only sums. */
static void touch_gradients(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a->plan, a->step);
    int *summed = ech_access_summed(a, a->step->index);
    bool shard = ech_bucket_sums_shard(bucket);
    if (!ech_bucket_serves(bucket))
        ech_access_as(a, shard ? ECH_USE_GRADIENTS : ECH_USE_SUM,
                      ech_access_gradients(a, a->step->index), true);
    if (!shard) return;
    if (*summed < 0 && !ech_bucket_leaves(bucket))
        *summed = a->list->summed[a->step->index]; /* of all turns */
    if (*summed < 0) *summed = ech_access_renew_sum(a, a->step->index);
    ech_access_sum(a, true);
}

/* Reads the weights that this rank stores or has fetched, and writes an instance, in this order. */
static void touch_brought(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a->plan, a->step);
    int kept = ech_bucket_is_fetched(bucket)
                   ? ech_access_weights_of(a, a->step->index)
                   : ech_plan_weights(a->plan, a->step->index, a->step->version);
    ech_access_as(a, ECH_USE_WEIGHTS, kept, false);
    ech_access_as(a, ECH_USE_INSTANCE,
                  ech_access_new_weights(a, a->step->index, ECH_SPACE_DEVICE, bucket->elements),
                  true);
}

static void touch_sum(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a->plan, a->step);
    if (!is_of_weights(a->step))
        touch_gradients(a);
    else if (!ech_bucket_is_brought(bucket))
        ech_access_weights(a, a->step->index, a->step->version, true);
    else
        touch_brought(a);
    if (ech_bucket_is_served(bucket)) return; /* it adds nothing */
    ech_access_sum_scratch(
        a, ech_reduction_part_scratch(a->plan->reduction, sums[a->step->kind].part,
                                      ech_bucket_wire(bucket, a->step->group), bucket->elements,
                                      a->plan->lineup[a->step->group]));
}

static void print_sum(const ech_step *step, ech_text *out)
{
    ech_step_print_bucket(step, out);
    if (step->micro >= 0) ech_text_append(out, ", micro-batch %d,", step->micro);
    if (step->block >= 0) ech_text_append(out, " for block %d", step->block);
    ech_text_append(out, " over %s", ech_layout_group_name(step->group));
}

static int64_t sent_bytes(const ech_plan *plan, const ech_step *step, const ech_membership *m)
{
    return ech_reduction_part_elements(plan->reduction, sums[step->kind].part,
                                       bucket_of(plan, step)->elements, plan->lineup[step->group],
                                       m->index) *
           (int64_t)ech_dtype_bytes(wire_of(plan, step));
}

static ech_work sum_work(const ech_step_query *q)
{
    const ech_plan *plan = q->plan;
    ech_membership m = ech_layout_membership(plan->layout, plan->model, plan->rank, q->step->group);
    return (ech_work){.bytes = (double)sent_bytes(plan, q->step, &m)};
}

static double sum_seconds(const ech_step_query *q)
{
    double bytes = (double)bucket_of(q->plan, q->step)->elements *
                   (double)ech_dtype_bytes(wire_of(q->plan, q->step));
    return ech_cost_sum(&q->costs->rates, q->plan->reduction, sums[q->step->kind].part, bytes,
                        q->plan->lineup[q->step->group], q->among.first, q->among.last);
}

static void count_sum(ech_traffic_count *c, const ech_step *step)
{
    ech_collective kind = sums[step->kind].counts_as;
    const ech_membership *m = &c->of[step->group];
    ech_flow flow = {.calls = 1, .messages = -1, .bytes = sent_bytes(c->plan, step, m)};
    if (c->plan->reduction == ECH_REDUCTION_DIRECT)
        flow.messages = ech_reduction_part_messages(sums[step->kind].part, wire_of(c->plan, step),
                                                    bucket_of(c->plan, step)->elements,
                                                    c->plan->lineup[step->group], m->index);
    ech_traffic_add(&c->traffic[ECH_TRAFFIC_DATA], kind, step->group, flow);
}

const ech_step_methods ech_reduce_grads_methods = {touch_sum, print_sum, sum_work, sum_seconds,
                                                   count_sum};

/* ---- NORM, STASH, UPDATE ---- */

/* Room for one parameter's gradient at a time, for selections. */
static int64_t room_of(const ech_plan *plan, const ech_bucket *bucket)
{
    int64_t most = 0;
    for (int i = 0; i < bucket->params && bucket->chosen; i++) {
        int64_t room = ech_plan_sent_room(plan, plan->bucket_param.at[bucket->first_param + i]);
        if (room > most) most = room;
    }
    return most;
}

/* Left factors are orthonormal, so the right ones have the gradients' norm. */
static void touch_norm(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a->plan, a->step);
    if (bucket->compressed)
        ech_access_as(a, ECH_USE_FACTORS, bucket->factors, false);
    else
        read_gradients(a);
    ech_access_rows(a, a->step->turn);
    ech_access_scratch(a, (size_t)room_of(a->plan, bucket));
}

/* The part of a bucket that the rank updates. */
static double updated_part(const ech_bucket *bucket)
{
    int64_t first;
    return (double)ech_bucket_updated(bucket, &first) / (double)bucket->elements;
}

/* Work on the rank's shard. */
static ech_work norm_work(const ech_step_query *q)
{
    const ech_bucket *bucket = bucket_of(q->plan, q->step);
    bool factored = bucket->compressed && !bucket->chosen;
    int64_t numbers = factored ? bucket->right : bucket->chosen ? bucket->elements : bucket->shard;
    double n =
        ech_bucket_is_listed(bucket) ? ech_bucket_listed_numbers(q->plan, bucket) : (double)numbers;
    return (ech_work){.bytes = n * (double)ech_dtype_bytes(bucket->dtype)};
}

static void touch_stash(ech_accessor *a)
{
    if (ech_plan_has_masters(a->plan, bucket_of(a->plan, a->step))) return;
    ech_access_weights(a, a->step->index, a->step->version, false);
    ech_access_weights(a, a->step->index, a->step->version + 1, true);
}

static ech_work stash_work(const ech_step_query *q)
{
    const ech_bucket *bucket = bucket_of(q->plan, q->step);
    double bytes = updated_part(bucket) * (double)q->plan->persistent.at[bucket->weights].bytes;
    return (ech_work){.bytes = ech_plan_has_masters(q->plan, bucket) ? 0 : 2 * bytes};
}

static double stash_seconds(const ech_step_query *q)
{
    double part = updated_part(bucket_of(q->plan, q->step));
    return ech_cost_stash(&q->costs->rates, part * bytes_of(q));
}

/* Reads the gradient; reads and writes the weight, or only writes it if it has a master, and each
 * state. */
static ech_work update_work(const ech_step_query *q)
{
    const ech_plan *plan = q->plan;
    const ech_bucket *bucket = bucket_of(plan, q->step);
    double part = updated_part(bucket);
    int64_t item = (int64_t)ech_dtype_bytes(bucket->dtype);
    double bytes = part * (double)((bucket->elements - bucket->padding) * item);
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        const ech_plan_param *p = &plan->param[param];
        bytes += part * (p->master < 0 ? 2 : 1) * (double)ech_plan_param_bytes(plan, param);
        for (int s = 0; s < p->states; s++) {
            const ech_plan_state *state = &plan->state.at[p->first_state + s];
            if (state->is.role != ECH_STATE_OPTIMIZER) continue;
            bytes += 2 * (double)state->elements *
                     (double)ech_dtype_bytes(ech_plan_state_dtype(plan, &state->is));
        }
    }
    return (ech_work){.bytes = bytes};
}

static double update_seconds(const ech_step_query *q)
{
    double part = updated_part(bucket_of(q->plan, q->step));
    return ech_cost_update(&q->costs->rates, part * bytes_of(q));
}

/* ---- STATISTICS, FOLD ---- */

int ech_access_new_statistics(ech_accessor *a, ech_memory_kind kind)
{
    int64_t bytes = a->plan->bucket.at[a->step->index].statistics_bytes;
    return ech_access_new_plain(a, kind, a->step->index, bytes);
}

/* A turn's statistics are born in its first round. */
static void touch_statistics(ech_accessor *a)
{
    ech_bucket *bucket = &a->plan->bucket.at[a->step->index];
    bool first = a->step->kind == ECH_STEP_STATISTICS && a->step->count == 0;
    if (first) bucket->statistics = ech_access_new_statistics(a, ECH_MEMORY_STATISTICS);
    if (bucket->rounds) ech_access_as(a, ECH_USE_STATISTICS, bucket->statistics, true);
}

size_t ech_update_scratch(const ech_plan *plan, const ech_bucket *bucket,
                          const ech_kernels *kernels, int threads)
{
    size_t most = 0;
    for (int i = 0; i < bucket->params && plan->optimizer->scratch; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        ech_param one = ech_optimizer_one(&plan->model->param.at[param]);
        int64_t size[ECH_MAX_DIMS];
        ech_shape_resolve(&one.shape, ech_extent_of_params(plan->layout->sharding), size);
        size_t bytes = plan->optimizer->scratch(kernels, threads, &one, size);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* An optimizer works on weights and states in place. */
static void touch_round(ech_accessor *a)
{
    bool updates = a->step->kind == ECH_STEP_UPDATE;
    touch_statistics(a);
    read_gradients(a);
    ech_access_weights(a, a->step->index, a->step->version, updates);
    ech_access_states(a, a->step->index, true);
    ech_access_scratch(a, ech_update_scratch(a->plan, bucket_of(a->plan, a->step), a->plan->kernels,
                                             a->plan->threads));
}

static const struct ech_folded *folded_of(const ech_plan *plan, const ech_step *step)
{
    return &bucket_of(plan, step)->folded[step->count][ech_step_fold(plan, step)];
}

/* The collective used for this fold. */
static ech_collective collective_of(const ech_plan *plan, const ech_step *step)
{
    bool owned = folded_of(plan, step)->flat == ECH_SHARDS_OWNER;
    return owned ? ECH_COLLECTIVE_REDUCE_SCATTER : ECH_COLLECTIVE_ALL_GATHER;
}

static void touch_fold(ech_accessor *a)
{
    const ech_plan *plan = a->plan;
    int members = ech_layout_group_size(plan->layout, plan->model, plan->rank, a->step->group);
    const struct ech_folded *folded = folded_of(plan, a->step);
    touch_statistics(a);
    ech_access_scratch(a, folded->flat ? ech_collective_scratch(collective_of(plan, a->step),
                                                                plan->types.wide,
                                                                bucket_of(plan, a->step)->elements,
                                                                ech_plan_among(plan, members))
                                       : (size_t)(members * folded->bytes));
}

static void print_fold(const ech_step *step, ech_text *out)
{
    ech_step_print_round(step, out);
    ech_text_append(out, " over %s", ech_layout_group_name(step->group));
}

/* Reads gradients, and at most as many weights. */
static ech_work round_work(const ech_step_query *q)
{
    const ech_plan *plan = q->plan;
    const ech_bucket *bucket = bucket_of(plan, q->step);
    ech_work work = {.bytes = updated_part(bucket) * bytes_of(q)};
    bool last = q->step->count == bucket->rounds - 1;
    for (int i = 0; i < bucket->params && last; i++)
        work.flops +=
            ech_step_round_flops(plan, q->step, plan->bucket_param.at[bucket->first_param + i]);
    return work;
}

bool ech_step_gathers_shards(const ech_plan *plan, const ech_step *step)
{
    bool whole =
        plan->reduction == ECH_REDUCTION_DIRECT || plan->reduction == ECH_REDUCTION_LIBRARY;
    if (ech_step_is_sum(step)) return whole && sums[step->kind].part == ECH_REDUCTION_GATHER;
    if (step->kind == ECH_STEP_FOLD) return folded_of(plan, step)->flat != ECH_SHARDS_OWNER;
    return step->kind == ECH_STEP_COLLECTIVE && step->collective == ECH_COLLECTIVE_ALL_GATHER;
}

static ech_flow fold_flow(const ech_plan *plan, const ech_step *step)
{
    ech_membership m = ech_layout_membership(plan->layout, plan->model, plan->rank, step->group);
    const struct ech_folded *folded = folded_of(plan, step);
    if (!folded->flat)
        return (ech_flow){
            .calls = 1, .messages = m.size - 1, .bytes = (m.size - 1) * folded->bytes};
    ech_collective_sends sends = ech_collective_traffic(collective_of(plan, step), plan->types.wide,
                                                        bucket_of(plan, step)->elements,
                                                        ech_plan_among(plan, m.size), m.index);
    return (ech_flow){.calls = 1, .messages = sends.messages, .bytes = sends.bytes};
}

static ech_work fold_work(const ech_step_query *q)
{
    return (ech_work){.bytes = (double)fold_flow(q->plan, q->step).bytes};
}

static double fold_seconds(const ech_step_query *q)
{
    return ech_step_latency(q) + fold_work(q).bytes / ech_step_bandwidth(q);
}

static void count_fold(ech_traffic_count *c, const ech_step *step)
{
    bool tensor = ech_step_fold(c->plan, step) == ECH_FOLD_TENSOR;
    ech_traffic_add(&c->traffic[tensor ? ECH_TRAFFIC_TENSOR : ECH_TRAFFIC_DATA],
                    collective_of(c->plan, step), step->group, fold_flow(c->plan, step));
}

const ech_step_methods ech_statistics_methods = {.touch = touch_round,
                                                 .print = ech_step_print_round,
                                                 .work = round_work,
                                                 .seconds = ech_step_pass_seconds};
const ech_step_methods ech_fold_methods = {touch_fold, print_fold, fold_work, fold_seconds,
                                           count_fold};

const ech_step_methods ech_norm_methods = {.touch = touch_norm,
                                           .print = ech_step_print_bucket,
                                           .work = norm_work,
                                           .seconds = ech_step_pass_seconds};
const ech_step_methods ech_stash_methods = {.touch = touch_stash,
                                            .print = ech_step_print_bucket,
                                            .work = stash_work,
                                            .seconds = stash_seconds};
const ech_step_methods ech_update_methods = {.touch = touch_round,
                                             .print = ech_step_print_bucket,
                                             .work = update_work,
                                             .seconds = update_seconds};

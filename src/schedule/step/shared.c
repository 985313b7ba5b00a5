/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps on weights in shared memory: PUBLISH for weights that all ranks share; OFFER, LIST_ROWS,
 * ADD, PULL and RELAY for weights to which lock-free ranks add.
 */
#include "schedule/step/step.h"
#include "schedule/operands.h"

static const ech_bucket *bucket_of(const ech_plan *plan, const ech_step *step)
{
    return &plan->bucket.at[step->index];
}

/* ---- PUBLISH ---- */

/* Others have written their shards. */
static void touch_publish(ech_accessor *a)
{
    ech_access_weights(a, a->step->index, a->step->version, true);
}

/* Empty messages, which traffic excludes. */
const ech_step_methods ech_publish_methods = {
    .touch = touch_publish, .print = ech_step_print_over, .seconds = ech_step_latency};

/* ---- OFFER, LIST_ROWS, ADD, PULL, RELAY ---- */

/* A cluster's weights in shared memory; clusters are counted from this rank's. */
static void touch_common(ech_accessor *a, int distance, bool write)
{
    const ech_schedule_ring *ring = &a->plan->schedule->ring;
    int cluster = (ech_ring_cluster(ring, a->plan->rank) + distance) % ring->clusters;
    ech_access_value(a, ech_plan_common(a->plan, a->step->index, cluster), write);
}

/* A rank that will get the ring token starts with the relayed weights; so does the first rank with
 * the token. Gradients that must be zero at the beginning of a turn are zeroed. */
static void touch_offer(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a->plan, a->step);
    int relayed = a->plan->relayed < 0 ? -1 : a->plan->relayed + a->step->index;
    ech_access_weights(a, a->step->index, 0, false);
    touch_common(a, 0, true);
    if (ech_bucket_is_listed(bucket))
        ech_access_as(a, ECH_USE_SUM, ech_access_gradients(a, a->step->index), true);
    if (relayed >= 0) ech_access_value(a, relayed, true);
    if (relayed >= 0 && a->plan->rank == 0) ech_access_value(a, a->plan->ring_token, true);
}

/* The host sorts pairs of an id and its index in staging, where the list then follows them. */
static void touch_list(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a->plan, a->step);
    a->step->scratch = ech_access_new_plain(a, ECH_MEMORY_STAGING, a->step->index,
                                            ech_bucket_rows_bytes(bucket) +
                                                2 * bucket->rows.ids * (int64_t)sizeof(uint64_t));
    ech_access_value(a, a->step->scratch, true);
    ech_access_value(a, ech_bucket_rows(bucket, a->step->turn), true);
}

void ech_access_rows(ech_accessor *a, int turn)
{
    const ech_bucket *bucket = bucket_of(a->plan, a->step);
    if (ech_bucket_is_listed(bucket)) ech_access_value(a, ech_bucket_rows(bucket, turn), false);
}

int ech_list_rows_of(const ech_plan *plan, const ech_list *list, const ech_step *step, int call)
{
    const ech_block *block = plan->model->block.at[step->block];
    const ech_block_call *c = &block->program[step->phase].at[call];
    if (!ech_list_kind_trains(list->kind) || c->node < 0) return -1;
    const ech_node *node = &block->node.at[c->node];
    bool looks_up = node->layer->by_ids && node->params > 0;
    int bucket = looks_up ? plan->param[node->param[0]].bucket : -1;
    if (bucket < 0 || !ech_bucket_is_listed(&plan->bucket.at[bucket])) return -1;
    bool forward = step->phase == ECH_FORWARD || c->recompute;
    return forward && step->version == 0 ? -1 : bucket; /* the span begins with all rows */
}

void ech_access_rows_of(ech_accessor *a, int call)
{
    int bucket = ech_list_rows_of(a->plan, a->list, a->step, call);
    if (bucket < 0) return;
    ech_access_value(a, ech_bucket_rows(&a->plan->bucket.at[bucket], a->step->turn), false);
}

/* Gradients of listed rows are zeroed again. */
static void touch_add(ech_accessor *a)
{
    const ech_bucket *bucket = bucket_of(a->plan, a->step);
    ech_access_rows(a, a->step->turn);
    ech_access_sum(a, ech_bucket_is_listed(bucket));
    touch_common(a, 0, true);
}

/* A version is pulled for the turn of its number, and one more for the list that follows. */
bool ech_step_pulls_rows(const ech_plan *plan, const ech_step *step)
{
    return ech_bucket_is_listed(bucket_of(plan, step)) && step->version <= plan->schedule->turns;
}

/* After the last turn, the weights of all clusters. */
static void touch_pull(ech_accessor *a)
{
    bool some = ech_step_pulls_rows(a->plan, a->step);
    if (some && a->step->version < a->list->turns) ech_access_rows(a, a->step->version);
    int clusters = ech_step_pulls_all(a->list, a->step) ? a->plan->schedule->ring.clusters : 1;
    for (int i = 0; i < clusters; i++) touch_common(a, i, false);
    ech_access_weights(a, a->step->index, a->step->version, true);
}

bool ech_step_pulls_all(const ech_list *list, const ech_step *step)
{
    return step->version == list->updates + 1;
}

/* The earlier visits begin after turns. */
bool ech_step_relays_last(const ech_plan *plan, const ech_list *list, const ech_step *step)
{
    return step->count >= list->turns / plan->schedule->ring.turns;
}

/* Only the rank with the ring token relays; a cluster's own ranks add to its weights, and there may
 * be only one. */
int ech_step_relays_alone(const ech_plan *plan, const ech_list *list, const ech_step *step)
{
    if (ech_step_relays_last(plan, list, step)) return 2;
    return plan->schedule->ring.ranks == 1;
}

static void touch_relay(ech_accessor *a)
{
    ech_access_value(a, a->plan->ring_token, true);
    ech_access_value(a, a->plan->relayed + a->step->index, true);
    touch_common(a, 0, true);
    touch_common(a, 1, true);
}

static void print_relay(const ech_step *step, ech_text *out)
{
    ech_step_print_bucket(step, out);
    ech_text_append(out, ", visit %d", step->count);
}

/* Reads and writes weights of two clusters, and the relayed weights. */
static ech_work relay_work(const ech_step_query *q)
{
    const ech_bucket *bucket = bucket_of(q->plan, q->step);
    return (ech_work){.bytes = 6 * (double)bucket->elements *
                               (double)ech_dtype_bytes(bucket->weight_dtype)};
}

double ech_bucket_listed_numbers(const ech_plan *plan, const ech_bucket *bucket)
{
    int table = plan->bucket_param.at[bucket->first_param];
    return (double)bucket->rows.most * (double)plan->param[table].elements /
           (double)plan->model->param.at[table].shape.size[0];
}

/* Reads and writes a shard of weights, and perhaps gradients. */
static ech_work offer_work(const ech_step_query *q)
{
    const ech_bucket *bucket = bucket_of(q->plan, q->step);
    double zeros = ech_bucket_is_listed(bucket) ? (double)bucket->elements : 0;
    return (ech_work){.bytes = 2 * (double)bucket->shard *
                                   (double)ech_dtype_bytes(bucket->weight_dtype) +
                               zeros * (double)ech_dtype_bytes(bucket->dtype)};
}

/* Reads and writes ids a few times. */
static ech_work list_work(const ech_step_query *q)
{
    enum { TIMES = 3 };
    return (ech_work){.bytes = 2.0 * TIMES * (double)bucket_of(q->plan, q->step)->rows.ids *
                               (double)sizeof(uint64_t)};
}

/* Reads gradients (of listed rows also writes them), and reads and writes weights; or only reads
 * and writes weights. */
static ech_work add_work(const ech_step_query *q)
{
    const ech_bucket *bucket = bucket_of(q->plan, q->step);
    double item = (double)ech_dtype_bytes(bucket->weight_dtype);
    bool adds = q->step->kind == ECH_STEP_ADD;
    double gradient = adds ? (double)ech_dtype_bytes(bucket->dtype) : 0;
    bool rows = adds ? ech_bucket_is_listed(bucket) : ech_step_pulls_rows(q->plan, q->step);
    double n = rows ? ech_bucket_listed_numbers(q->plan, bucket) : (double)bucket->elements;
    return (ech_work){.bytes = n * (2 * item + (rows ? 2 : 1) * gradient)};
}

/* Of ADD and RELAY, which add like an update; the others copy. */
static double adding_seconds(const ech_step_query *q)
{
    return ech_cost_update(&q->costs->rates,
                           ech_step_row_of(q->step->kind)->methods->work(q).bytes);
}

static double copying_seconds(const ech_step_query *q)
{
    double bytes = ech_step_row_of(q->step->kind)->methods->work(q).bytes;
    return ech_cost_stash(&q->costs->rates, bytes / 2);
}

const ech_step_methods ech_offer_methods = {.touch = touch_offer,
                                            .print = ech_step_print_bucket,
                                            .work = offer_work,
                                            .seconds = copying_seconds};
const ech_step_methods ech_list_rows_methods = {.touch = touch_list,
                                                .print = ech_step_print_bucket,
                                                .work = list_work,
                                                .seconds = copying_seconds};
const ech_step_methods ech_add_methods = {.touch = touch_add,
                                          .print = ech_step_print_bucket,
                                          .work = add_work,
                                          .seconds = adding_seconds};
const ech_step_methods ech_pull_methods = {.touch = touch_pull,
                                           .print = ech_step_print_bucket,
                                           .work = add_work,
                                           .seconds = copying_seconds};

const ech_step_methods ech_relay_methods = {
    .touch = touch_relay, .print = print_relay, .work = relay_work, .seconds = adding_seconds};

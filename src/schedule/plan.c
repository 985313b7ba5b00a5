/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's plan: persistent values, then each list through the passes.
 */
#include <stdlib.h>

#include "schedule/calendar.h"
#include "schedule/operands.h"
#include "schedule/states.h"
#include "schedule/weight_gathers.h"
#include "schedule/protocol/protocol.h"

enum {
    HOST_ALIGNMENT = 64,  /* bytes: a cache line */
    DISK_ALIGNMENT = 4096 /* required by direct I/O */
};

int ech_plan_add_persistent(ech_plan *plan, ech_memory_kind kind, int index, int64_t bytes)
{
    ech_value value = {.kind = kind,
                       .block = -1,
                       .local = -1,
                       .micro = -1,
                       .index = index,
                       .successor = -1,
                       .bytes = bytes,
                       .offset = plan->persistent_bytes[ech_memory_space(kind)]};
    ECH_PUSH(plan->persistent, value);
    plan->persistent_bytes[ech_memory_space(kind)] += ech_plan_align(plan, kind, bytes);
    return (int)plan->persistent.n - 1;
}

/* Numbers of a parameter whose squares are summed: its gradient, or its right factors if it is
 * compressed. */
static int64_t normed(const ech_plan *plan, int param)
{
    int64_t size[2];
    const ech_plan_param *p = &plan->param[param];
    if (p->rank == 0) return p->elements;
    ech_plan_matrix(plan, param, size);
    return p->stacked * size[1] * p->rank;
}

int ech_plan_turns(const ech_plan *plan)
{
    return ech_protocol_role(plan)->turns(plan->schedule, plan->layout);
}

/* Plans this rank's part of a parameter. */
static void plan_param(ech_plan *plan, const ech_plan_request *request, int index)
{
    ech_plan_param *p = &plan->param[index];
    const ech_shape *shape = &plan->model->param.at[index].shape;
    *p = (ech_plan_param){.master = -1, .bucket = -1, .snapshot = -1, .previous = -1};
    if (!ech_layout_holds(plan->layout, plan->rank, index)) return;
    p->elements = ech_shape_count(shape, ech_extent_of_params(plan->layout->sharding));
    if (!request->forward_only) ech_plan_states(plan, request->config, index);
    p->norm_first = plan->norm_partials;
    if (plan->model->param.at[index].frozen) return;
    plan->norm_partials += (normed(plan, index) + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK;
}

/* Plans a bucket's weights in all versions, and its states: each laid out like its gradients. */
static void plan_bucket(ech_plan *plan, int index, bool forward_only)
{
    ech_bucket *bucket = &plan->bucket.at[index];
    static const ech_memory_kind kinds[ECH_SPACES] = {
        [ECH_SPACE_DEVICE] = ECH_MEMORY_PARAMETERS,
        [ECH_SPACE_HOST] = ECH_MEMORY_PARAMETERS_ON_HOST,
        [ECH_SPACE_DISK] = ECH_MEMORY_PARAMETERS_ON_DISK,
        [ECH_SPACE_SHARED] = ECH_MEMORY_PARAMETERS_IN_SHARED};
    int64_t bytes = ech_bucket_kept(bucket) * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
    bucket->weights = (int)plan->persistent.n;
    for (int v = 0; v < bucket->versions; v++)
        ech_plan_add_persistent(plan, kinds[bucket->of_weights.where], index, bytes);
    bucket->rows.value = -1;
    int64_t list = ech_bucket_rows_bytes(bucket);
    for (int turn = 0; turn < 2 && ech_bucket_is_listed(bucket) && !forward_only; turn++) {
        int value = ech_plan_add_persistent(plan, ECH_MEMORY_BATCH, index, list);
        if (turn == 0) bucket->rows.value = value;
    }
    if (!forward_only) ech_plan_state_values(plan, index);
}

static bool takes_snapshots(const ech_plan_request *request)
{
    ech_calendar calendar = ech_calendar_of(request->config);
    bool wanted = request->config->checkpoint.background == 1 && !request->forward_only;
    return wanted && ech_calendar_saves_amid(&calendar);
}

/* Plans the KV caches that sampling carries from token to token. */
static void plan_caches(ech_plan *plan, ech_extent extent)
{
    for (int b = 0; b < (int)plan->model->block.n; b++) {
        const ech_block *block = plan->model->block.at[b];
        for (int local = 0; local < (int)block->value.n; local++) {
            const ech_block_value *v = &block->value.at[local];
            if (!v->cached || !(v->purposes & 1u << ECH_GENERATE)) continue;
            size_t bytes = ech_block_value_bytes(block, local, extent, plan->types);
            int value = ech_plan_add_persistent(plan, ECH_MEMORY_KV_CACHE, -1, (int64_t)bytes);
            plan->persistent.at[value].block = b;
            plan->persistent.at[value].local = local;
        }
    }
}

/* Sampling runs on a single rank. */
static bool samples(const ech_plan_request *request)
{
    return request->forward_only && !request->validates && request->layout->world == 1 &&
           request->model->logits >= 0;
}

/* The most bytes of the tables of one exchange of rows. */
static int64_t largest_counts(const ech_plan *plan)
{
    ech_extent extent = ech_extent_of_params(plan->layout->sharding);
    int64_t most = 0;
    for (size_t b = 0; b < plan->model->block.n; b++) {
        const ech_block *block = plan->model->block.at[b];
        for (size_t n = 0; n < block->node.n; n++) {
            const ech_node *node = &block->node.at[n];
            int64_t bytes = 0;
            if (!ech_node_goes_by_counts(node)) continue;
            for (int i = 1; i < node->ins; i++)
                bytes += (int64_t)ech_block_value_bytes(block, node->in[i], extent, plan->types);
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

/* Plans the host's staging values, except batches. */
static void plan_staging(ech_plan *plan, const ech_plan_request *request)
{
    int64_t rows = plan->persistent.at[plan->scalars].bytes;
    int64_t logits = plan->model->vocabulary * (int64_t)sizeof(double);
    plan->staged = ech_plan_add_persistent(plan, ECH_MEMORY_STAGING, ECH_STAGING_ROWS, rows);
    plan->bounce =
        ech_plan_add_persistent(plan, ECH_MEMORY_STAGING, ECH_STAGING_BOUNCE, ECH_BOUNCE_BYTES);
    plan->logits = plan->counts = -1;
    int64_t counts = largest_counts(plan);
    if (counts)
        plan->counts =
            ech_plan_add_persistent(plan, ECH_MEMORY_STAGING, ECH_STAGING_COUNTS, counts);
    if (!samples(request)) return;
    plan->logits = ech_plan_add_persistent(plan, ECH_MEMORY_STAGING, ECH_STAGING_LOGITS, logits);
    ech_plan_add_persistent(plan, ECH_MEMORY_STAGING, ECH_STAGING_DEVICE_LOGITS,
                            logits); /* no type is wider */
}

static void plan_persistent(ech_plan *plan, const ech_plan_request *request)
{
    bool forward_only = request->forward_only;
    size_t params = plan->model->param.n;
    plan->param = ech_calloc(params + 1, sizeof *plan->param);
    for (size_t i = 0; i < params; i++) plan_param(plan, request, (int)i);
    ech_pass_bucket(plan, request->config);
    for (size_t b = 0; b < plan->bucket.n; b++) plan_bucket(plan, (int)b, forward_only);
    ech_pass_statistics(plan);
    ech_pass_pieces(plan, request->config);
    plan->ring_token = plan->common = plan->relayed = -1;
    const ech_protocol *protocol = ech_protocol_of(plan->layout);
    if (!forward_only && protocol->values) protocol->values(plan);
    int64_t rows = forward_only ? 1 : ech_plan_turns(plan);
    int64_t row_bytes = ech_plan_row(plan) * (int64_t)sizeof(double);
    plan->scalars = ech_plan_add_persistent(plan, ECH_MEMORY_SCALARS, 0, rows * row_bytes);
    plan->partials = forward_only
                         ? -1
                         : ech_plan_add_persistent(plan, ECH_MEMORY_SCALARS, 1,
                                                   plan->norm_partials * (int64_t)sizeof(double));
    plan_staging(plan, request);
    for (size_t i = 0; i < params && plan->snapshots; i++) ech_plan_snapshot(plan, (int)i);
}

static void begin(ech_plan *plan, ech_list_kind kind, ech_purpose purpose, ech_extent extent,
                  int turns, int micro_batches)
{
    ech_list *list = &plan->list[kind];
    int64_t chunks = extent.sequence / extent.tokens / plan->layout->context;
    list->numbering = (ech_numbering){.micro_batches = micro_batches,
                                      .sequence_chunks = purpose == ECH_GENERATE ? 1 : (int)chunks};
    list->kind = kind;
    list->purpose = purpose;
    list->extent = extent;
    list->turns = turns;
    list->micro_batches = turns * micro_batches * list->numbering.sequence_chunks;
}

/* The order of the train list with the weight version that each item reads, and the activations
 * held for the peer. */
typedef struct ordered {
    ech_order order;
    int *version;
    ech_balance balance;
} ordered;

static void end_order(ordered *train)
{
    free(train->order.at);
    free(train->version);
    ech_balance_free(&train->balance);
}

static void plan_training(ech_plan *plan, ech_list *list, const ordered *train)
{
    list->instances = list->turns;
    for (size_t b = 0; b < plan->bucket.n; b++)
        if (ech_bucket_scatters_each(&plan->bucket.at[b]))
            list->instances = list->turns * list->numbering.micro_batches;
    ech_pass_lower(plan, list, &train->order, train->version);
    ech_pass_offload(plan, list);
    ech_pass_hold(plan, list, &train->balance);
    ech_pass_resident(plan, list);
    ech_pass_frame_training(plan, list);
}

/* The rank whose order of micro-batches its lists follow. */
static int pattern_of(const ech_plan *plan)
{
    return ech_layout_pattern(plan->layout, plan->rank);
}

/* Plans a training step without delayed updates, in a plan that stores two versions. */
static void plan_undelayed(ech_plan *plan)
{
    ech_list *list = &plan->list[ECH_LIST_UNDELAYED];
    ECH_CLEANUP(end_order) ordered train = {0};
    ech_schedule_order(plan->schedule, plan->layout, pattern_of(plan), 1, false, &train.order);
    ech_order_expand_sequence_chunks(plan->schedule, &train.order, list->numbering, NULL);
    plan_training(plan, list, &train);
}

static void plan_forwards(ech_plan *plan, ech_list *list)
{
    ECH_FREED ech_order order = {0};
    ech_schedule_order(plan->schedule, plan->layout, pattern_of(plan), 1, true, &order);
    ech_order_expand_sequence_chunks(plan->schedule, &order, list->numbering, NULL);
    if (list->purpose == ECH_GENERATE) /* one sample, on ranks that have all blocks */
        for (size_t i = order.n = 0; i < (size_t)plan->layout->chunks; i++)
            order.at[order.n++] = (ech_order_item){.action = ECH_F, .chunk = (int)i};
    ech_pass_lower(plan, list, &order, NULL);
    ech_pass_offload(plan, list);
    ech_pass_resident(plan, list);
    ech_pass_frame_validation(plan, list);
}

static void begin_lists(ech_plan *plan, const ech_config *config)
{
    int64_t T = config->data.sequence_length;
    ech_extent extent = ech_layout_extent(plan->layout, config, plan->model);
    /* Token by token, with the keys and values of earlier tokens. */
    ech_extent one = {.batch = 1, .tokens = 1, .sequence = T, .sharding = plan->layout->sharding};
    int m = ech_layout_micro_batches(plan->layout, pattern_of(plan)), turns = ech_plan_turns(plan);
    int64_t rows = plan->model->options.rows;
    ECH_ASSERT(rows == 0 || rows == extent.batch * extent.tokens);
    begin(plan, ECH_LIST_INIT, ECH_TRAIN, extent, 1, 1);
    begin(plan, ECH_LIST_TRAIN, ECH_TRAIN, extent, turns, m);
    begin(plan, ECH_LIST_UNDELAYED, ECH_TRAIN, extent, 1, m);
    begin(plan, ECH_LIST_SYNC, ECH_TRAIN, extent, 1, 1);
    begin(plan, ECH_LIST_GOSSIP, ECH_TRAIN, extent, 1, 1);
    begin(plan, ECH_LIST_RETURN, ECH_TRAIN, extent, 1, 1);
    begin(plan, ECH_LIST_VALIDATE, ECH_EVALUATE, extent, 1, m);
    begin(plan, ECH_LIST_CHECK, ECH_TRAIN, extent, 1, 1);
    begin(plan, ECH_LIST_SAVE, ECH_TRAIN, extent, 1, 1);
    begin(plan, ECH_LIST_GENERATE, ECH_GENERATE, one, 1, 1);
}

static void plan_lists(ech_plan *plan, const ech_plan_request *request, const ordered *train)
{
    if (!request->forward_only) plan_training(plan, &plan->list[ECH_LIST_TRAIN], train);
    bool train_only = (request->outline && !request->every_list) || request->brief;
    if (train_only && !request->forward_only) return;
    if (!request->forward_only && plan->schedule->weights == ECH_WEIGHTS_DELAYED)
        plan_undelayed(plan);
    const ech_protocol *protocol = ech_protocol_of(plan->layout);
    if (!request->forward_only && protocol->lists) protocol->lists(plan, request->config);
    ech_pass_other_lists(plan);
    plan_forwards(plan, &plan->list[ECH_LIST_VALIDATE]);
    if (samples(request)) plan_forwards(plan, &plan->list[ECH_LIST_GENERATE]);
}

static void finish_list(ech_plan *plan, ech_list *list, bool places)
{
    ech_pass_access(plan, list);
    ech_pass_lifetime(plan, list);
    ech_pass_inherit(plan, list);
    for (int space = 0; places && space < ECH_SPACES; space++)
        ech_pass_offsets(plan, list, (ech_space)space);
    ech_pass_peaks(plan, list);
    for (int space = 0; space < ECH_SPACES; space++) {
        if (!places) list->bytes[space] = list->lower_bound[space];
        int64_t bytes = plan->persistent_bytes[space] + list->bytes[space];
        if (bytes > plan->arena_bytes[space]) plan->arena_bytes[space] = bytes;
    }
}

static void finish_lists(ech_plan *plan, bool places)
{
    for (int i = 0; i < ECH_LIST_KINDS; i++) finish_list(plan, &plan->list[i], places);
}

/* Also finds how many versions must be stored. */
static void order_training(ech_plan *plan, ordered *train)
{
    ech_schedule_order(plan->schedule, plan->layout, pattern_of(plan), ech_plan_turns(plan), false,
                       &train->order);
    train->version = ech_calloc(train->order.n + 1, sizeof *train->version);
    plan->versions = ech_schedule_versions(plan->schedule, plan->layout, pattern_of(plan),
                                           &train->order, train->version);
    ech_order_expand_sequence_chunks(plan->schedule, &train->order,
                                     plan->list[ECH_LIST_TRAIN].numbering, &train->version);
}

/* The space for a choice of ECH_OFFLOADS. */
static ech_space space_of(int64_t offload)
{
    static const ech_space spaces[] = {[ECH_OFFLOAD_NONE] = ECH_SPACE_DEVICE,
                                       [ECH_OFFLOAD_HOST] = ECH_SPACE_HOST,
                                       [ECH_OFFLOAD_DISK] = ECH_SPACE_DISK,
                                       [ECH_OFFLOAD_PEER] = ECH_SPACE_DEVICE};
    return spaces[offload];
}

static void find_balance(ech_plan *plan, ech_balance *balance)
{
    ech_balance_find(plan->schedule, plan->model, plan->layout, plan->rank,
                     plan->list[ECH_LIST_TRAIN].numbering.sequence_chunks, plan->prefetch, balance);
    if (balance->hold.n)
        plan->peer = plan->rank == balance->evictor ? balance->acceptor : balance->evictor;
}

static void line_up(ech_plan *plan)
{
    for (ech_layout_group kind = 0; kind < ECH_GROUPS; kind++) {
        int *first;
        if (!ech_layout_sums_over(kind)) continue;
        plan->lineup[kind] = ech_layout_lineup(plan->layout, plan->model, plan->rank, kind, &first);
        plan->lineup[kind].segment = plan->sum_segment;
    }
}

/* The number of elements of a bucket in the widest type, but at least UNIT: a multiple of UNIT, so
 * that parts are aligned for kernels. */
static int64_t at_once(const ech_plan *plan, int64_t bucket_bytes)
{
    enum { UNIT = 1024 };
    int64_t units = bucket_bytes / (int64_t)ech_dtype_bytes(plan->types.wide) / UNIT;
    return (units ? units : 1) * UNIT;
}

static bool is_power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

ech_plan *ech_plan_create(const ech_plan_request *request)
{
    ech_plan *plan = ech_calloc(1, sizeof *plan);
    plan->rank = request->rank;
    plan->validates = request->validates;
    plan->outline = request->outline;
    plan->model = request->model;
    plan->layout = request->layout;
    plan->schedule = request->schedule;
    plan->kernels = request->kernels;
    plan->types = ech_model_types(request->config);
    ECH_ASSERT(plan->types.compute == request->kernels->dtype);
    plan->threads = request->threads;
    plan->alignment[ECH_SPACE_DEVICE] = (int64_t)request->device->alignment;
    plan->alignment[ECH_SPACE_SHARED] = (int64_t)request->device->alignment;
    plan->part = (int64_t)request->device->part;
    plan->loads = request->device->loads ? ECH_LANE_COPY_IN : ECH_LANE_COMPUTE;
    plan->sum_segment = (int64_t)request->device->segment;
    plan->kept = space_of(request->config->memory.offload_activations);
    if (!request->forward_only) plan->states = space_of(request->config->memory.offload_optimizer);
    if (plan->states != ECH_SPACE_DEVICE) {
        int64_t threads = request->config->memory.offload_threads;
        plan->host_threads = threads == ECH_AUTO ? request->threads : (int)threads;
    }
    plan->weights = space_of(request->config->memory.offload_parameters);
    plan->prefetch = (int)request->config->memory.prefetch;
    plan->at_once = at_once(plan, request->config->parallel.bucket_bytes);
    /* memory for file I/O has the alignment of files */
    bool files = plan->kept == ECH_SPACE_DISK || plan->states == ECH_SPACE_DISK ||
                 plan->weights == ECH_SPACE_DISK;
    plan->alignment[ECH_SPACE_HOST] = files ? DISK_ALIGNMENT : HOST_ALIGNMENT;
    plan->alignment[ECH_SPACE_DISK] = DISK_ALIGNMENT;
    ECH_ASSERT(is_power_of_two(plan->alignment[ECH_SPACE_DEVICE]) && is_power_of_two(plan->part));
    plan->optimizer = ech_optimizer_of(request->config);
    plan->versions = 1;
    plan->reduction = (ech_reduction)request->config->parallel.reduction;
    line_up(plan);
    plan->zero = (int)request->config->parallel.zero;
    if (request->forward_only && plan->zero < 3) plan->zero = 0; /* there is nothing to shard */
    if (!request->forward_only) plan->weights_in = ech_protocol_space(plan->layout);
    plan->keeps = request->config->parallel.zero_keep == 1;
    ECH_CLEANUP(end_order) ordered train = {0};
    bool holds = request->config->memory.offload_activations == ECH_OFFLOAD_PEER;
    plan->peer = -1;
    begin_lists(plan, request->config);
    if (!request->forward_only) order_training(plan, &train);
    if (holds && !request->forward_only) find_balance(plan, &train.balance);
    ech_pass_segments(plan, request->config, &train.order);
    plan->snapshots = takes_snapshots(request);
    plan_persistent(plan, request);
    if (samples(request)) plan_caches(plan, plan->list[ECH_LIST_GENERATE].extent);
    if (!request->listless) plan_lists(plan, request, &train);
    if (!request->outline && !request->listless) finish_lists(plan, !request->brief);
    return plan;
}

void ech_plan_destroy(ech_plan *plan)
{
    if (!plan) return;
    for (int i = 0; i < ECH_LIST_KINDS; i++) ech_list_free(&plan->list[i]);
    free(plan->persistent.at);
    free(plan->param);
    free(plan->state.at);
    free(plan->state_value.at);
    free(plan->statistic.at);
    free(plan->owner.at);
    free(plan->bucket.at);
    free(plan->bucket_param.at);
    free(plan->segment);
    for (int kind = 0; kind < ECH_GROUPS; kind++) free((int *)plan->lineup[kind].first);
    free(plan);
}

int ech_plan_ways(const ech_plan *plan)
{
    int chunks =
        plan->model->options.sequence_chunks > 1 ? plan->model->options.sequence_chunks : 1;
    return plan->layout->tensor * plan->layout->context * chunks;
}

static ech_type type_of(const ech_plan *plan, int param)
{
    return plan->model->param.at[param].type;
}

ech_dtype ech_plan_param_dtype(const ech_plan *plan, int param)
{
    return ech_type_dtype(type_of(plan, param), plan->types.wide, plan->types);
}

ech_dtype ech_plan_gradient_dtype(const ech_plan *plan, int param)
{
    if (plan->model->param.at[param].commit) return ECH_F64;
    return type_of(plan, param) == ECH_TYPE_COMPUTE ? plan->types.gradient : plan->types.wide;
}

int64_t ech_plan_param_bytes(const ech_plan *plan, int param)
{
    return plan->param[param].elements *
           (int64_t)ech_dtype_bytes(ech_plan_param_dtype(plan, param));
}

int64_t ech_plan_bucket_bytes(const ech_plan *plan, int bucket)
{
    const ech_bucket *b = &plan->bucket.at[bucket];
    return b->frozen ? 0 : b->elements * (int64_t)ech_dtype_bytes(b->dtype);
}

/* Numbers of a parameter's weights that this rank stores; in shared memory, those that it
 * updates. */
static int64_t weights_of(const ech_plan *plan, int param)
{
    const ech_plan_param *p = &plan->param[param];
    int64_t first;
    bool shard = p->bucket >= 0 && ech_bucket_holds_shard(&plan->bucket.at[p->bucket]);
    return shard ? ech_plan_own(plan, param, &first) : p->elements;
}

void ech_plan_numbers(const ech_plan *plan, ech_memory_kind kind, int64_t numbers[ECH_DTYPES])
{
    for (int d = 0; d < ECH_DTYPES; d++) numbers[d] = 0;
    for (int i = 0; i < (int)plan->model->param.n && kind == ECH_MEMORY_PARAMETERS; i++)
        if (plan->param[i].bucket >= 0)
            numbers[ech_plan_param_dtype(plan, i)] +=
                plan->bucket.at[plan->param[i].bucket].versions * weights_of(plan, i);
    for (size_t s = 0; s < plan->state.n && kind == ECH_MEMORY_OPTIMIZER; s++) {
        const ech_plan_state *state = &plan->state.at[s];
        numbers[ech_plan_state_dtype(plan, &state->is)] += state->elements;
    }
    for (size_t b = 0; b < plan->bucket.n && kind == ECH_MEMORY_GRADIENTS; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        if (bucket->frozen) continue;
        numbers[bucket->dtype] += ech_bucket_sums_shard(bucket)
                                      ? ech_plan_own_all(plan, bucket)
                                      : bucket->elements - bucket->padding;
    }
}

int64_t ech_plan_number_bytes(const ech_plan *plan, ech_memory_kind kind)
{
    int64_t numbers[ECH_DTYPES], bytes = 0;
    ech_plan_numbers(plan, kind, numbers);
    for (ech_dtype d = 0; d < ECH_DTYPES; d++) bytes += numbers[d] * (int64_t)ech_dtype_bytes(d);
    return bytes;
}

const ech_memory_kind ech_model_states[ECH_MODEL_STATES] = {
    ECH_MEMORY_PARAMETERS, ECH_MEMORY_OPTIMIZER, ECH_MEMORY_GRADIENTS};

int64_t ech_plan_message_shard(const ech_plan *plan, const ech_list *list, const ech_block *block,
                               int local, int64_t *first)
{
    int64_t item = (int64_t)ech_dtype_bytes(ech_block_value_dtype(block, local, plan->types));
    int64_t whole = (int64_t)ech_block_value_bytes(block, local, list->extent, plan->types) / item;
    bool cuts = ech_plan_shards_messages(plan);
    int members = cuts ? plan->layout->tensor : 1;
    int index = cuts ? plan->layout->coordinates[plan->rank].tensor : 0;
    if (first) *first = ech_collective_shard_first(whole, members, index) * item;
    return ech_collective_shard_count(whole, members, index) * item;
}

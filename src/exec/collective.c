/* SPDX-License-Identifier: Apache-2.0
 *
 * The lanes of collectives. COLLECTIVE: collectives of tensor and context ranks and expert groups
 * inside blocks. Reduce: sums over ranks between blocks, REDUCE_GRADS (REDUCE: scalars.c), and
 * weight gathering. Also counts of what a rank has sent so far.
 */
#include "exec/state.h"
#include "schedule/operands.h"
#include "schedule/states.h"

/* ---- channels work on the device's data ---- */

static ech_status join(ech_exec *exec, ech_group *channel, int lane)
{
    return channel ? ech_group_set_queue(channel, &exec->on[lane]) : ECH_OK;
}

/* Servers have a channel with each worker. All ranks join pushed channels last, by worker. */
static ech_status join_pushed(ech_exec *exec)
{
    for (int lane = 0; lane < (int)ECH_LANES; lane++)
        ECH_TRY(join(exec, exec->channel[ECH_GROUP_PUSHED][lane], lane));
    for (int i = 0; i < ech_exec_pushed_channels(exec); i++)
        ECH_TRY(join(exec, ech_exec_pushed_channel(exec, i), i % (int)ECH_LANES));
    return ECH_OK;
}

/* Only channels of steps; the rank's own thread and its saver send host memory. */
ech_status ech_collectives_create(ech_exec *exec)
{
    size_t members = (size_t)exec->plan->layout->sharding.expert + 1;
    size_t tensor = (size_t)exec->plan->layout->tensor;
    for (int i = 0; i < 2; i++)
        exec->exchanged_rows.rows[i] = ech_pool_alloc(exec->pool, members * sizeof(int64_t));
    exec->received_rows.rows[0] = ech_pool_alloc(exec->pool, tensor * members * sizeof(int64_t));
    exec->slice_rows = ech_pool_alloc(exec->pool, tensor * members * sizeof(int64_t));
    for (ech_lane lane = 0; lane < ECH_LANES; lane++) {
        ech_comm_queue *on = &exec->on[lane];
        if (!ech_lane_gathers(lane)) continue;
        on->context = &exec->lane_context[lane];
        for (ech_layout_group g = 0; g < ECH_GROUPS; g++)
            if (g != ECH_GROUP_PUSHED) ECH_TRY(join(exec, exec->channel[g][lane], (int)lane));
    }
    return join_pushed(exec);
}

/* ---- collective: COLLECTIVE ---- */

typedef struct exchange {
    ech_exec *exec;
    const ech_step *step;
    const ech_block *block;
    ech_group *group;
    void *scratch;
    ech_tensor from, to;
    ech_tensor table[2]; /* of counted exchanges: its second and third input */
    int tables[2];       /* their values in the list */
    ech_round round;     /* of counted exchanges */
    bool by_counts;
} exchange;

/* The list's value. */
static int value_of(const exchange *x, int local)
{
    return ech_list_value_of(x->exec->plan, x->exec->list, x->block, local, x->step->micro,
                             ech_step_instance(x->step));
}

/* `like`: the value with the shape. */
static ech_tensor tensor_of(const exchange *x, int local, int like)
{
    void *data = ech_exec_address(x->exec, x->step, value_of(x, local));
    ech_tensor tensor;
    ech_exec_view(x->exec, x->block, like, data, &tensor);
    return tensor;
}

/* ---- all to all ---- */

/* Shard i of a tensor (B,T,H,D) is the tokens or the heads of context rank i; packed shards follow
 * each other in memory. */
static void move_shards(const exchange *x, const ech_tensor *whole, bool by_heads, char *memory,
                        bool pack)
{
    int64_t shards = ech_group_size(x->group), dim = by_heads ? 2 : 1;
    int64_t n = whole->shape[dim] / shards;
    for (int64_t i = 0; i < shards; i++) {
        ech_tensor shard = ech_tensor_narrow(whole, (int)dim, i * n, n);
        ech_tensor packed = ech_tensor_view(memory, whole->dtype, 4, shard.shape);
        x->exec->plan->kernels->copy(&x->exec->lane_context[x->step->lane], pack ? &shard : &packed,
                                     pack ? &packed : &shard);
        memory += ech_tensor_bytes(&packed);
    }
}

/* Exchanges some tokens of all heads for all tokens of some heads, or (`back`) the reverse. */
static ech_status exchange_heads(const exchange *x, bool back)
{
    size_t bytes = ech_tensor_bytes(&x->from);
    char *going = x->scratch, *coming = going + bytes;
    move_shards(x, &x->from, !back, going, true);
    ECH_TRY(
        ech_group_all_to_all(x->group, going, coming, bytes / (size_t)ech_group_size(x->group)));
    move_shards(x, &x->to, back, coming, false);
    return ECH_OK;
}

/* Block i of each member goes to member i, unchanged. */
static ech_status exchange_blocks(const exchange *x)
{
    size_t members = (size_t)ech_group_size(x->group), bytes = ech_tensor_bytes(&x->from);
    ECH_ASSERT(bytes == ech_tensor_bytes(&x->to) && bytes % members == 0);
    return ech_group_all_to_all(x->group, x->from.data, x->to.data, bytes / members);
}

/* ---- counted rows ---- */

/* The host must know the number of rows before it can put messages: this thread waits until the
 * lane's queue, which waits for the tables, has fetched them. */
static ech_status fetch_counts(const exchange *x, int tables, int64_t splits, int64_t *sums[])
{
    ech_exec *exec = x->exec;
    int32_t *at = ech_exec_look(exec, exec->plan->counts), *fetched[2];
    exec->counts.tables_fetched++;
    for (int i = 0; i < tables; i++) {
        ECH_ASSERT(x->table[i].dtype == ECH_I32);
        fetched[i] = at;
        exec->device->copy(ech_exec_queue(exec, x->step), at, x->table[i].data,
                           ech_tensor_bytes(&x->table[i]));
        at += ech_tensor_count(&x->table[i]);
    }
    ECH_TRY(ech_queue_wait(exec, x->step));
    for (int i = 0; i < tables; i++)
        ech_row_sums(fetched[i], splits, ech_tensor_count(&x->table[i]) / splits, sums[i]);
    return ECH_OK;
}

/* The count that the channel should reach. */
static void count_rows(const exchange *x, const ech_row_exchange *what)
{
    ech_comm_count *sum = &x->exec->counts.exchanged;
    sum->calls++;
    for (int m = 0; m < ech_group_size(x->group); m++) {
        int64_t rows = ech_row_slice(what, what->sends[m]);
        if (m == ech_group_index(x->group) || rows < 0 || what->room == 0) continue;
        sum->messages++;
        sum->bytes += rows * (int64_t)what->bytes;
    }
}

/* Reads the counts of `splits` splits from the exchange's tables. A layer's exchanges, of all
 * rounds and both ways, share their tables, which are written once in a run of the list. So later
 * exchanges have the counts already and do not wait; an empty round waits for nothing. */
static ech_status know_rows(const exchange *x, int tables, int64_t splits, ech_known_rows *known)
{
    const int second = tables > 1 ? x->tables[1] : -1;
    const bool knows =
        known->run == x->exec->run && known->table[0] == x->tables[0] && known->table[1] == second;
    if (knows) return ECH_OK;
    known->run = 0; /* unknown, if this fails */
    ECH_TRY(fetch_counts(x, tables, splits, known->rows));
    known->run = x->exec->run;
    known->table[0] = x->tables[0];
    known->table[1] = second;
    return ECH_OK;
}

/* packs: from slices to the packed buffer, whose counts are the first table's. */
static ech_status exchange_rows(const exchange *x, bool packs)
{
    int64_t members = ech_group_size(x->group);
    ech_known_rows *known = &x->exec->exchanged_rows;
    const int64_t *sends = known->rows[packs], *receives = known->rows[!packs];
    const ech_tensor *packed = packs ? &x->to : &x->from, *slices = packs ? &x->from : &x->to;
    ech_row_exchange what = {.sends = sends,
                             .receives = receives,
                             .room = packed->shape[0],
                             .most = x->round.of * slices->shape[1],
                             .rows = slices->shape[1],
                             .first = x->round.at * slices->shape[1],
                             .bytes = (size_t)packed->shape[1] * ech_dtype_bytes(packed->dtype),
                             .packs = packs};
    ECH_ASSERT(packed->shape[1] == slices->shape[2] && slices->shape[0] == members);
    ECH_TRY(know_rows(x, 2, members, known));
    count_rows(x, &what);
    return ech_group_exchange_rows(x->group, x->from.data, x->to.data, &what);
}

/* Gathers or reduces the rows received by tensor ranks: `whole` has the slices of all, `own` this
 * rank's. */
static ech_status move_slices(const exchange *x, const ech_tensor *whole, const ech_tensor *own)
{
    int64_t *counts = x->exec->slice_rows, slices = own->shape[0], rows = own->shape[1];
    const int64_t *received = x->exec->received_rows.rows[0];
    ech_row_slices of = {counts, slices, rows};
    ech_tensor all = ech_tensor_flat(whole);
    ECH_ASSERT(whole->shape[0] == slices * ech_group_size(x->group));
    ECH_TRY(know_rows(x, 1, whole->shape[0], &x->exec->received_rows));
    for (int64_t i = 0; i < whole->shape[0]; i++)
        counts[i] = received[i] < 0 ? received[i]
                                    : ech_row_slice_rows(received[i], x->round.at * rows, rows);
    return whole == &x->to ? ech_group_gather_rows(x->group, &all, own->data, &of)
                           : ech_group_scatter_rows(x->group, &all, own->data, x->scratch, &of);
}

/* ---- slides ---- */

/* A rank that receives nothing gets zeros: no rank has gradients for it. */
static ech_status slide(const exchange *x, int distance)
{
    bool receives =
        ech_collective_slides(-distance, ech_group_size(x->group), ech_group_index(x->group));
    if (!receives) x->exec->plan->kernels->fill(&x->exec->lane_context[x->step->lane], &x->to, 0);
    return ech_group_slide(x->group, distance, x->from.data, x->to.data,
                           ech_tensor_bytes(&x->from));
}

/* ---- the step ---- */

static ech_status run(const exchange *x, const ech_exchange *does)
{
    ech_tensor from = ech_tensor_flat(&x->from), to = ech_tensor_flat(&x->to);
    if (x->by_counts && does->kind == ECH_COLLECTIVE_ALL_GATHER)
        return move_slices(x, &x->to, &x->from);
    if (x->by_counts && does->kind == ECH_COLLECTIVE_REDUCE_SCATTER)
        return move_slices(x, &x->from, &x->to);
    switch (does->kind) {
    case ECH_COLLECTIVE_ALL_REDUCE:
        ECH_ASSERT(from.data == to.data);
        return ech_group_all_reduce(x->group, &to, x->scratch);
    case ECH_COLLECTIVE_ALL_GATHER:
        return ech_group_all_gather(x->group, to.data, from.data, ech_dtype_bytes(to.dtype),
                                    ech_tensor_count(&to));
    case ECH_COLLECTIVE_REDUCE_SCATTER:
        return ech_group_reduce_scatter(x->group, &from, to.data, x->scratch);
    case ECH_COLLECTIVE_ALL_TO_ALL:
        return does->distance ? exchange_heads(x, does->distance < 0) : exchange_blocks(x);
    case ECH_COLLECTIVE_SHIFT:
        return ech_group_shift(x->group, does->distance, from.data, to.data,
                               ech_tensor_bytes(&from));
    case ECH_COLLECTIVE_SLIDE:
        return slide(x, does->distance);
    case ECH_COLLECTIVE_EXCHANGE_ROWS:
        return exchange_rows(x, does->distance < 0);
    case ECH_COLLECTIVE_NONE:
    case ECH_COLLECTIVES:
        break;
    }
    ECH_FAIL(ECH_EINTERNAL, "a collective step without a collective");
}

/* Gathers a message from another stage that arrived in shards, one per tensor rank. */
static ech_status make_whole(exchange *x)
{
    const int *ports;
    size_t n = ech_step_ports(x->step, x->block, &ports);
    for (size_t i = 0; i < n; i++) {
        if (ports[i] < 0) continue;
        int64_t first;
        ech_tensor whole = tensor_of(x, ports[i], ports[i]);
        ech_plan_message_shard(x->exec->plan, x->exec->list, x->block, ports[i], &first);
        ECH_TRY(ech_group_all_gather(x->group, whole.data, (char *)whole.data + first,
                                     ech_dtype_bytes(whole.dtype), ech_tensor_count(&whole)));
    }
    return ECH_OK;
}

static ech_tensor *operand_of(exchange *x, const ech_operand *o)
{
    if (o->port == ECH_PORT_IN && o->index > 0) return &x->table[o->index - 1];
    return o->mode == ECH_READ ? &x->from : &x->to;
}

static ech_status collect(ech_exec *exec, const ech_step *step)
{
    exchange x = {.exec = exec,
                  .step = step,
                  .block = exec->plan->model->block.at[step->block],
                  .group = exec->channel[step->group][step->lane],
                  .scratch =
                      step->scratch < 0 ? NULL : ech_exec_address(exec, step, step->scratch)};
    if (!step->calls) return make_whole(&x);
    const ech_block_call *call = &x.block->program[step->phase].at[step->first_call];
    for (const ech_operand *o = NULL; (o = ech_call_next(x.block, call, exec->list->purpose, o));) {
        *operand_of(&x, o) = tensor_of(&x, o->value, o->like);
        if (o->port == ECH_PORT_IN && o->index > 0) x.tables[o->index - 1] = value_of(&x, o->value);
    }
    x.round = ech_node_round(&x.block->node.at[call->node]);
    x.by_counts = ech_node_goes_by_counts(&x.block->node.at[call->node]);
    return run(&x, ech_call_exchange(x.block, call, step->phase, exec->list->purpose));
}

ECH_HANDLE_BY(COLLECTIVE, collect)

/* ---- gradients and weights ---- */

/* Left factors come before right ones. */
static ech_status begin_factors(ech_exec *exec, const ech_step *step, ech_group *group,
                                void *scratch, ech_sum *out)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    bool right = step->kind == ECH_STEP_REDUCE_RIGHT;
    char *data = ech_exec_used(exec, step, ECH_USE_FACTORS, 0);
    if (right) data += (size_t)bucket->left * ech_dtype_bytes(bucket->dtype);
    ech_tensor factors = ech_tensor_1d(data, bucket->dtype, right ? bucket->right : bucket->left);
    return ech_sum_begin(group, exec->plan->reduction, &factors, bucket->wire, scratch, out);
}

static ech_status begin_chosen(ech_exec *exec, const ech_step *step, ech_group *group, ech_sum *out)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    char *data = ech_exec_used(exec, step, ECH_USE_FACTORS, 0);
    ech_tensor all = ech_tensor_1d(data, bucket->dtype,
                                   ech_plan_selections(exec->plan, bucket) * bucket->chosen);
    data += (size_t)(ech_group_index(group) * bucket->chosen) * ech_dtype_bytes(bucket->dtype);
    return ech_sum_begin_gather(group, exec->plan->reduction, &all, data, out);
}

/* A bucket's whole data; for a server only its shard. *own: this rank's shard. */
static ech_tensor all_of(const ech_bucket *bucket, char *data, ech_dtype dtype, char **own)
{
    bool serves = ech_bucket_serves(bucket);
    *own = serves ? data : data + (size_t)bucket->own * ech_dtype_bytes(dtype);
    return ech_tensor_1d(serves ? NULL : data, dtype, bucket->elements);
}

/* Each member's shard, from where it is stored; for an instance, from elsewhere. */
static ech_status begin_gather(ech_exec *exec, const ech_step *step, ech_group *group, ech_sum *out)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    char *kept = ech_exec_used(exec, step, ECH_USE_WEIGHTS, 0), *own;
    char *instance = ech_exec_used(exec, step, ECH_USE_INSTANCE, 0);
    ech_tensor all = all_of(bucket, instance ? instance : kept, bucket->weight_dtype, &own);
    return ech_sum_begin_gather(group, exec->plan->reduction, &all, instance ? kept : own, out);
}

/* Into this rank's shard of the sum, or if micro-batches are scattered one by one into a value of
 * that shard alone. */
static ech_status begin_scatter(ech_exec *exec, const ech_step *step, ech_group *group,
                                void *scratch, ech_sum *out)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    char *sum = ech_exec_used(exec, step, ECH_USE_SUM, 0), *own;
    char *gradients = ech_exec_used(exec, step, ECH_USE_GRADIENTS, 0);
    ech_tensor all = all_of(bucket, gradients ? gradients : sum, bucket->dtype, &own);
    return ech_sum_begin_scatter(group, exec->plan->reduction, &all, bucket->wire,
                                 gradients ? sum : own, ech_exec_delivery(exec, step), scratch,
                                 out);
}

static ech_status begin_sum_over(ech_exec *exec, const ech_step *step, ech_group *group,
                                 ech_sum *out)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    ech_reduction_part part = ech_step_reduction_part(step);
    void *scratch = step->scratch < 0 ? NULL : ech_exec_address(exec, step, step->scratch);
    if (step->kind == ECH_STEP_REDUCE_LEFT || step->kind == ECH_STEP_REDUCE_RIGHT)
        return begin_factors(exec, step, group, scratch, out);
    if (step->kind == ECH_STEP_GATHER_CHOSEN) return begin_chosen(exec, step, group, out);
    if (part == ECH_REDUCTION_GATHER) return begin_gather(exec, step, group, out);
    if (part == ECH_REDUCTION_SCATTER) return begin_scatter(exec, step, group, scratch, out);
    char *own;
    ech_tensor all = all_of(bucket, ech_exec_used(exec, step, ECH_USE_SUM, 0), bucket->dtype, &own);
    return ech_sum_begin(group, exec->plan->reduction, &all, ech_bucket_wire(bucket, step->group),
                         scratch, out);
}

static ech_status begin_sum(ech_exec *exec, const ech_step *step, ech_sum *out)
{
    return begin_sum_over(exec, step, ech_exec_channel(exec, step), out);
}

/* True if the step is one collective: a server's gather may be one with each of several workers, or
 * with none. */
static bool is_one(const ech_exec *exec, const ech_step *step)
{
    int answered = ech_exec_answered(exec, step, NULL);
    return answered < 0 || answered == 1;
}

bool ech_exec_has_begun(const ech_exec *exec, const ech_step *step)
{
    return step == exec->begun_step[step->lane];
}

/* The lane's next step, if it is also a reduction and need not wait; or NULL. */
static const ech_step *find_next(ech_exec *exec, const ech_step *step)
{
    const ech_step *end = exec->list->step.at + exec->list->step.n;
    ech_lane lane = step->lane;
    do {
        if (++step == end) return NULL;
    } while (step->lane != lane);
    bool may = ech_step_is_sum(step) && !ech_exec_has_failed(exec) &&
               ech_exec_may_begin(exec, step) && !ech_exec_is_idle(exec, step) &&
               is_one(exec, step) && ech_queue_is_free(exec, step);
    return may ? step : NULL;
}

/* Gathers with each of these workers at the same time. */
static ech_status answer(ech_exec *exec, const ech_step *step)
{
    ech_answer *to;
    int n = ech_exec_answered(exec, step, &to);
    for (int i = 0; i < n; i++) ECH_TRY(begin_sum_over(exec, step, to[i].channel, &to[i].sum));
    for (int i = 0; i < n; i++) ECH_TRY(ech_sum_run(&to[i].sum));
    for (int i = 0; i < n; i++) ECH_TRY(ech_sum_end(&to[i].sum));
    return ECH_OK;
}

/* A bucket's last messages are directly followed by the next bucket's, so that a slow link is never
 * idle. */
static ech_status reduce_gradients(ech_exec *exec, const ech_step *step)
{
    ech_sum sum = exec->begun[step->lane];
    const ech_step **begun = &exec->begun_step[step->lane];
    if (!is_one(exec, step)) return answer(exec, step);
    if (*begun != step) ECH_TRY(begin_sum(exec, step, &sum));
    ECH_TRY(ech_sum_run(&sum));
    *begun = find_next(exec, step);
    if (*begun) {
        ech_queue_await(exec, *begun);
        ECH_TRY(begin_sum(exec, *begun, &exec->begun[step->lane]));
        exec->counts.sums_ahead[step->lane]++;
    }
    ECH_TRY(ech_sum_end(&sum));
    bool lost = ech_group_take_loss(ech_exec_channel(exec, step));
    if (lost && step->kind == ECH_STEP_SCATTER_GRADS) ech_exec_lose_push(exec, step);
    return ECH_OK;
}

ECH_HANDLE_BY(REDUCE_GRADS, reduce_gradients)
ECH_HANDLE_BY(SCATTER_GRADS, reduce_gradients)
ECH_HANDLE_BY(REDUCE_LEFT, reduce_gradients)
ECH_HANDLE_BY(REDUCE_RIGHT, reduce_gradients)
ECH_HANDLE_BY(GATHER_CHOSEN, reduce_gradients)
ECH_HANDLE_BY(GATHER_WEIGHTS, reduce_gradients)

/* ---- counts, without messages of the thread that writes checkpoints ---- */

static void add_counts(const ech_exec *exec, ech_comm_counted kind, ech_comm_count *sum)
{
    for (int i = 0; i < ECH_CHANNELS + ech_exec_pushed_channels(exec); i++) {
        const ech_group *channel = i < ECH_CHANNELS
                                       ? exec->channel[i / ECH_LANES][i % ECH_LANES]
                                       : ech_exec_pushed_channel(exec, i - ECH_CHANNELS);
        if (!channel || i % ECH_LANES == ECH_LANE_DISK) continue;
        ech_comm_count one = ech_group_count(channel, kind);
        sum->calls += one.calls;
        sum->messages += one.messages;
        sum->bytes += one.bytes;
    }
}

ech_comm_count ech_exec_reduce_count(const ech_exec *exec)
{
    static const ech_comm_counted kinds[] = {ECH_COMM_REDUCES, ECH_COMM_SCATTERS, ECH_COMM_GATHERS};
    ech_comm_count sum = {0};
    for (int i = 0; i < 3; i++) add_counts(exec, kinds[i], &sum);
    return sum;
}

const ech_exec_counts *ech_exec_counted(const ech_exec *exec)
{
    return &exec->counts;
}

ech_comm_count ech_exec_channel_count(const ech_exec *exec, ech_layout_group group, ech_lane lane,
                                      ech_comm_counted kind)
{
    const ech_group *channel = exec->channel[group][lane];
    return channel ? ech_group_count(channel, kind) : (ech_comm_count){0};
}

int64_t ech_exec_sent_bytes(const ech_exec *exec)
{
    ech_comm_count sum = {0};
    for (int kind = 0; kind < ECH_MESSAGES; kind++) sum.bytes += exec->counts.messages[kind].bytes;
    for (ech_comm_counted kind = 0; kind < ECH_COMM_COUNTS; kind++) add_counts(exec, kind, &sum);
    return sum.bytes;
}

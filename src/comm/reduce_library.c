/* SPDX-License-Identifier: Apache-2.0
 *
 * The all-reduce of the backend's library, and its halves. The order of additions is unknown. Also
 * gathers of whole shards by NCCL, for channels that are prepared for them.
 */
#include "comm/reduce.h"

/* The elements of x, since the library's traffic is unknown. */
static int64_t sent(int64_t n, const ech_lineup *of, int index)
{
    (void)of, (void)index;
    return n;
}

static ech_status start(ech_group *group, ech_library_call call, ech_request *request)
{
    ech_comm *comm = group->comm;
    ech_status st = ECH_EABORTED;
    if (ech_request_is_put(comm, request) && comm->opened->data->library)
        return comm->opened->data->library(comm, request, &call);
    if (call.n > 0) ECH_TRY(ech_comm_settle(comm, request->on));
    if (call.from) call.from = ech_transfer_reach(request, call.from);
    if (call.to) call.to = ech_transfer_reach(request, call.to);
    pthread_mutex_lock(&comm->lock);
    if (!comm->dead)
        st = comm->backend->library_start(comm, group->of->ranks, group->size, &group->library,
                                          &call, request);
    pthread_mutex_unlock(&comm->lock);
    return st;
}

/* An error names the next member, since the rank that the library waits for is unknown. */
static ech_status enter(ech_group *group, ech_comm_batch *batch, ech_library_call call)
{
    ech_request *request = &batch->at[batch->n];
    *request = (ech_request){.on = &group->on,
                             .data = call.to,
                             .peer = group->of->ranks[(group->index + 1) % group->size],
                             .bytes = (size_t)call.n * ech_dtype_bytes(call.dtype)};
    ECH_TRY(start(group, call, request));
    batch->put = ++batch->n;
    return ECH_OK;
}

static void count(ech_group *group, int messages, int64_t elements, size_t item)
{
    group->count->messages += messages;
    group->count->elements += elements;
    group->count->bytes += elements * (int64_t)item;
}

static ech_status run(const ech_sum *sum)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = &group->batch[0];
    ech_library_call call = {ECH_LIBRARY_REDUCE, sum->x, sum->x, sum->n, sum->dtype};
    ECH_TRY(enter(group, batch, call));
    count(group, 0, sum->n, sum->item);
    return ech_comm_batch_wait(group, batch);
}

/* ---- halves ---- */

static int64_t shard_of(const ech_sum *sum)
{
    return sum->n / sum->group->size;
}

static ech_status check_shards(const ech_sum *sum)
{
    ech_lineup of = ech_group_lineup(sum->group);
    if (sum->n % of.size == 0 && !of.stores) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "parallel.reduction library: %lld elements are not in equal shards of all %d members "
             "of group %s; use direct",
             (long long)sum->n, of.size, sum->group->of->name);
}

/* Of the member's sum, unless it replaces the shard. */
static int64_t scatter_scratch(size_t item, int64_t n, const ech_lineup *of)
{
    (void)item;
    return n / of->size;
}

/* Of x, where only NCCL may put the sum. */
static bool is_inside(const ech_sum *sum)
{
    return sum->shard >= sum->x && sum->shard < sum->x + (size_t)sum->n * sum->item;
}

static ech_status run_scatter(const ech_sum *sum)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = ech_sum_batch(sum, sum->scatters, 0);
    bool over = sum->delivery == ECH_DELIVER_OVER && (group->on.joined || !is_inside(sum));
    char *mine = over ? sum->shard : sum->scratch;
    ech_library_call call = {ECH_LIBRARY_SCATTER, sum->x, mine, shard_of(sum), sum->dtype};
    ECH_ASSERT(group->by_library[ECH_LIBRARY_SCATTER]); /* prepared */
    ECH_TRY(check_shards(sum));
    ECH_TRY(enter(group, batch, call));
    count(group, 0, sum->n - shard_of(sum), sum->item);
    ECH_TRY(ech_comm_batch_wait(group, batch));
    for (int64_t k = 0; k < ech_sum_segments(sum) && !over; k++)
        ech_sum_deliver(sum, mine + (size_t)(k * sum->segment) * sum->item, k);
    return ECH_OK;
}

/* Of bytes: nothing is added. */
static ech_library_call gather_of(const ech_sum *sum, const char *mine)
{
    int64_t bytes = shard_of(sum) * (int64_t)sum->item;
    return (ech_library_call){ECH_LIBRARY_GATHER, mine, sum->x, bytes, ECH_U8};
}

static ech_status run_gather(const ech_sum *sum)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = ech_sum_batch(sum, sum->gathers, 0);
    ECH_ASSERT(group->by_library[ECH_LIBRARY_GATHER]); /* prepared */
    ECH_TRY(check_shards(sum));
    ECH_TRY(enter(group, batch, gather_of(sum, sum->shard)));
    count(group, 0, (group->size - 1) * shard_of(sum), sum->item);
    return ech_comm_batch_wait(group, batch);
}

bool ech_library_gather(const ech_sum *sum, const char *mine, ech_comm_batch *batch,
                        ech_status *status)
{
    ech_group *group = sum->group;
    bool whole = sum->segment == sum->n && sum->item == sum->wire_item && !sum->slices &&
                 sum->n % group->size == 0;
    if (!whole || group->of->stores || !group->on.joined || !group->by_library[ECH_LIBRARY_GATHER])
        return false;
    *status = enter(group, batch, gather_of(sum, mine));
    count(group, group->size - 1, (group->size - 1) * shard_of(sum), sum->item);
    return true;
}

/* ---- preparation ---- */

/* MPI makes a communicator of its own, which waits for all members and blocks sends and receives of
 * this rank's other threads. The barrier comes first: it has a deadline. */
static ech_status prepare(ech_group *group)
{
    for (ech_library_kind kind = 0; kind < ECH_LIBRARY_KINDS; kind++)
        group->by_library[kind] = true;
    if (group->library || !group->comm->opened->library_start) return ECH_OK;
    ECH_TRY(ech_group_barrier(group));
    return start(group, (ech_library_call){.dtype = ECH_F32}, &(ech_request){0});
}

void ech_group_prepare_gathers(ech_group *group)
{
    group->by_library[ECH_LIBRARY_GATHER] |= ech_group_gathers_by_ring(group->size);
}

/* A zero of each member. */
static ech_library_call first_call(ech_library_kind kind, float *zeros, int index)
{
    float *own = zeros + index;
    return (ech_library_call){.kind = kind,
                              .from = kind == ECH_LIBRARY_GATHER ? own : zeros,
                              .to = kind == ECH_LIBRARY_SCATTER ? own : zeros,
                              .n = 1,
                              .dtype = ECH_F32};
}

ech_status ech_library_connect(ech_group *group)
{
    const ech_comm_data *data = group->comm->opened->data;
    const ech_comm_queue *on = &group->on;
    size_t bytes = (size_t)group->size * sizeof(float);
    void *zeros;
    if (!on->joined || !data->library) return ECH_OK;
    ECH_TRY(on->device->alloc(bytes, &zeros));
    ech_status status = ECH_OK;
    for (ech_library_kind kind = 0; kind < ECH_LIBRARY_KINDS && status == ECH_OK; kind++) {
        if (!group->by_library[kind]) continue;
        ech_library_call call = first_call(kind, zeros, group->index);
        status = data->library(group->comm, &(ech_request){.on = on, .data = zeros}, &call);
        if (status == ECH_OK) status = ech_device_settle(on->device, on->queue);
    }
    on->device->release(zeros, bytes);
    return status;
}

const ech_reduction_row ech_reduce_LIBRARY = {
    .part = {[ECH_REDUCTION_WHOLE] = {.sent = sent, .run = run}, /* the library has its scratch */
             [ECH_REDUCTION_SCATTER] = {.scratch = scatter_scratch,
                                        .sent = ech_sum_scattered,
                                        .run = run_scatter},
             [ECH_REDUCTION_GATHER] = {.sent = ech_sum_gathered, .run = run_gather}},
    .prepare = prepare};

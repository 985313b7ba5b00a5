/* SPDX-License-Identifier: Apache-2.0
 *
 * The all-reduce of the backend's library, for comparison. Its order of additions is unknown.
 */
#include "comm/reduce.h"

/* The elements of x, since the library's traffic is unknown. */
static int64_t sent(int64_t n, const ech_lineup *of, int index)
{
    (void)of, (void)index;
    return n;
}

static ech_status start(const ech_sum *sum, ech_request *request)
{
    ech_group *group = sum->group;
    ech_comm *comm = group->comm;
    ech_status st = ECH_EABORTED;
    if (ech_request_is_put(comm, request) && comm->opened->data->allreduce)
        return comm->opened->data->allreduce(comm, request, sum->dtype);
    if (sum->n > 0) ECH_TRY(ech_comm_settle(comm, request->on));
    pthread_mutex_lock(&comm->lock);
    if (!comm->dead)
        st = comm->backend->allreduce_start(comm, group->of->ranks, group->size, &group->library,
                                            ech_transfer_reach(request, sum->x), sum->n, sum->dtype,
                                            request);
    pthread_mutex_unlock(&comm->lock);
    return st;
}

static ech_status run(const ech_sum *sum)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = &group->batch[0];
    ech_request *request = &batch->at[batch->n];
    /* An error names the next member, since the rank that the library waits for is unknown. */
    *request = (ech_request){.on = &group->on,
                             .data = sum->x,
                             .peer = group->of->ranks[(group->index + 1) % group->size],
                             .bytes = (size_t)sum->n * sum->item};
    ECH_TRY(start(sum, request));
    batch->put = ++batch->n;
    group->count->bytes += (int64_t)request->bytes;
    group->count->elements += sum->n;
    return ech_comm_batch_wait(group, batch);
}

/* The library makes a communicator of its own, which waits for all members and blocks sends and
 * receives of this rank's other threads. The barrier comes first: it has a deadline. */
static ech_status prepare(ech_group *group)
{
    group->sums_by_library = true;
    if (group->library || !group->comm->opened->allreduce_start) return ECH_OK;
    ECH_TRY(ech_group_barrier(group));
    return start(&(ech_sum){.group = group, .dtype = ECH_F32, .wire = ECH_F32}, &(ech_request){0});
}

ech_status ech_library_connect(ech_group *group)
{
    const ech_comm_data *data = group->comm->opened->data;
    const ech_comm_queue *on = &group->on;
    void *zero;
    if (!on->joined || !data->allreduce) return ECH_OK;
    ECH_TRY(on->device->alloc(sizeof(float), &zero));
    ech_status status = data->allreduce(
        group->comm, &(ech_request){.on = on, .data = zero, .bytes = sizeof(float)}, ECH_F32);
    if (status == ECH_OK) status = ech_device_settle(on->device, on->queue);
    on->device->release(zero, sizeof(float));
    return status;
}

/* The library has its own scratch. */
const ech_reduction_row ech_reduce_LIBRARY = {
    .part = {[ECH_REDUCTION_WHOLE] = {.sent = sent, .run = run}}, .prepare = prepare};

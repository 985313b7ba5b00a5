/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `nccl`: NCCL moves data; `mpi` or `tcp` provide control if a launcher started the
 * process, otherwise `local`. NCCL's messages have no tags, so there are separate communicators for
 * each channel, and for each boundary, kind of message and pair of ranks. Each completes its calls
 * in the order in which its members put them, on one queue (simulate/rehearsal.h proves for all
 * lists that this ends). Transfers that are put together are one group of NCCL's.
 *
 * A communicator's first message connects two ranks, during which their threads wait for each
 * other. One thread serves all queues of messages, so pairs connect when they join. Channels have
 * one thread per lane, and connect in the first step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/launch.h"
#include "comm/nccl_state.h"

ech_status ech_nccl_check(const ech_nccl_state *state, int result, const char *call,
                          const char *name)
{
    if (result == ECH_NCCL_SUCCESS || result == ECH_NCCL_IN_PROGRESS) return ECH_OK;
    if (ech_comm_is_over(state->comm)) return ECH_EABORTED;
    ECH_FAIL(ECH_ECOMM, "%s, %s: %s; with NCCL_DEBUG=WARN in the environment it says more", name,
             call, state->nccl->GetErrorString(result));
}

/* ---- calls ---- */

/* The communicator for transfers to `peer`: a queue of messages has one per peer. */
static ech_communicator *find(const ech_comm_queue *on, int peer, int *member)
{
    for (ech_communicator *in = on->joined; in; in = in->next)
        for (int low = 0, high = in->size; low < high;) {
            int middle = (low + high) / 2;
            *member = middle;
            if (in->ranks[middle] == peer) return in;
            if (in->ranks[middle] < peer)
                low = middle + 1;
            else
                high = middle;
        }
    return NULL;
}

/* The communicator is not aborted until ech_nccl_leave, unless this call hangs. */
static ech_status enter(const ech_comm *comm, ech_communicator *in)
{
    atomic_fetch_add(&in->calls, 1);
    atomic_fetch_add(&in->users, 1);
    if (!ech_comm_is_over(comm)) return ECH_OK;
    atomic_fetch_sub(&in->users, 1);
    return ECH_EABORTED;
}

static void leave(const ech_comm_queue *on, ech_communicator *in)
{
    on->device->record(in->ended, on->queue);
    atomic_fetch_sub(&in->users, 1);
}

static int put_one(const ech_nccl *nccl, const ech_request *request, const ech_communicator *in,
                   int member, void *stream)
{
    if (request->sends)
        return nccl->Send(request->data, request->bytes, ECH_NCCL_BYTE, member, in->at, stream);
    return nccl->Recv(request->data, request->bytes, ECH_NCCL_BYTE, member, in->at, stream);
}

static ech_status put_all(const ech_nccl_state *state, ech_communicator *in, ech_request *requests,
                          int n, void *stream)
{
    const ech_nccl *nccl = state->nccl;
    int error = nccl->GroupStart(), member;
    for (int i = 0; i < n && error == ECH_NCCL_SUCCESS; i++) {
        ECH_ASSERT(find(requests->on, requests[i].peer, &member) == in);
        error = put_one(nccl, &requests[i], in, member, stream);
        requests[i].done = true;
    }
    int end = nccl->GroupEnd();
    return ech_nccl_check(state, error == ECH_NCCL_SUCCESS ? end : error, "a transfer", in->name);
}

static ech_status put(ech_comm *comm, ech_request *requests, int n)
{
    const ech_nccl_state *state = comm->joined;
    const ech_comm_queue *on = requests->on;
    int member;
    ech_communicator *in = find(on, requests->peer, &member);
    ECH_ASSERT(in);
    void *stream = on->device->stream(on->queue);
    ECH_TRY(enter(comm, in));
    ech_status status = put_all(state, in, requests, n, stream);
    leave(on, in);
    return status;
}

static ech_status allreduce(ech_comm *comm, ech_request *request, ech_dtype dtype)
{
    const ech_nccl_state *state = comm->joined;
    const ech_comm_queue *on = request->on;
    ech_communicator *in = on->joined;
    int type = dtype == ECH_F32 ? ECH_NCCL_FLOAT32 : ECH_NCCL_FLOAT64;
    size_t n = request->bytes / ech_dtype_bytes(dtype);
    void *stream = on->device->stream(on->queue);
    ECH_TRY(enter(comm, in));
    int error =
        state->nccl->AllReduce(request->data, request->data, n, type, ECH_NCCL_SUM, in->at, stream);
    leave(on, in);
    request->done = true;
    return ech_nccl_check(state, error, "a sum", in->name);
}

/* ---- communicators ---- */

/* Sends member 0's id to all. The barrier has a deadline, which the following library call
 * lacks. */
static ech_status agree(ech_comm *comm, const char *name, const int *ranks, int n, int *member,
                        ech_nccl_id *id)
{
    ECH_CLEANUP(ech_group_destroy_at) ech_group *group = NULL;
    const ech_nccl_state *state = comm->joined;
    ECH_TRY(ech_group_create(comm, name, ranks, n, &group));
    *member = ech_group_index(group);
    if (*member == 0)
        ECH_TRY(ech_nccl_check(state, state->nccl->GetUniqueId(id), "NCCL's id", name));
    ECH_TRY(ech_group_broadcast(group, 0, id, sizeof *id));
    return ech_group_barrier(group);
}

static ech_communicator *make(const ech_comm_queue *on, const char *name, const int *ranks, int n)
{
    ech_communicator *in = ech_calloc(1, sizeof *in);
    in->device = on->device;
    in->size = n;
    in->ranks = ech_calloc((size_t)n, sizeof *in->ranks);
    memcpy(in->ranks, ranks, (size_t)n * sizeof *ranks);
    snprintf(in->name, sizeof in->name, "NCCL's communicator of %s", name);
    return in;
}

static void forget(ech_communicator *in)
{
    in->device->event_destroy(in->ended);
    free(in->ranks);
    free(in);
}

/* Sends a byte each way, and waits for it. */
static ech_status connect_pair(ech_comm *comm, const ech_comm_queue *on, int peer)
{
    void *memory;
    ECH_TRY(on->device->alloc(2, &memory));
    char *bytes = memory;
    ech_request both[] = {{.on = on, .data = bytes, .peer = peer, .bytes = 1, .sends = true},
                          {.on = on, .data = bytes + 1, .peer = peer, .bytes = 1}};
    ech_status status = put(comm, both, 2);
    if (status == ECH_OK) status = ech_device_settle(on->device, on->queue);
    on->device->release(memory, 2);
    return status;
}

/* The guard ends the process if these calls take longer than the deadline. */
static ech_status begin(ech_comm *comm, ech_comm_queue *on, ech_communicator *in, int member,
                        ech_nccl_id id)
{
    const ech_nccl_state *state = comm->joined;
    (void)on->device->stream(on->queue); /* its GPU is the thread's */
    ECH_TRY(in->device->event_create(&in->ended));
    in->device->record(in->ended, on->queue); /* by this thread first: a device may create it now */
    ECH_TRY(ech_nccl_check(state, state->nccl->CommInitRank(&in->at, in->size, id, member),
                           "its start", in->name));
    ech_nccl_watch(comm->joined, in);
    ech_communicator **end = (ech_communicator **)&on->joined;
    while (*end) end = &(*end)->next;
    *end = in;
    return in->size == 2 ? connect_pair(comm, on, in->ranks[1 - member]) : ECH_OK;
}

static ech_status join(ech_comm *comm, ech_comm_queue *on, const char *name, const int *ranks,
                       int n)
{
    int member;
    ech_nccl_id id = {{0}};
    ECH_TRY(ech_nccl_start(comm, on->device));
    ech_nccl_state *state = comm->joined;
    ECH_TRY(agree(comm, name, ranks, n, &member, &id));
    ech_communicator *in = make(on, name, ranks, n);
    ech_guard_enter(state->guard, in->name);
    ech_status status = begin(comm, on, in, member, id);
    ech_guard_leave(state->guard);
    if (status != ECH_OK && !in->at) forget(in);
    return status;
}

static void part(ech_comm *comm, ech_comm_queue *on)
{
    ech_nccl_state *state = comm->joined;
    for (ech_communicator *in = on->joined, *next; in; in = next) {
        next = in->next;
        ech_nccl_unwatch(state, in); /* only this thread has it from now on */
        ech_guard_enter(state->guard, in->name);
        if (in->at)
            (ech_comm_is_over(comm) ? state->nccl->CommAbort : state->nccl->CommDestroy)(in->at);
        ech_guard_leave(state->guard);
        forget(in);
    }
    on->joined = NULL;
}

/* ---- the backend ---- */

static ech_status check(const ech_device *device)
{
    const ech_nccl *nccl;
    return ech_nccl_open(device, &nccl);
}

static ech_status open_all(int size, double deadline_seconds, ech_comm **endpoints)
{
    ech_launched by;
    bool threads = !ech_launched_here(&by);
    const ech_comm_backend *control = threads          ? ech_comm_find("local")
                                      : by.without_mpi ? &ech_comm_tcp
                                                       : ech_comm_find("mpi");
    if (!control)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.comm = nccl: a launcher started this process, and this "
                 "build has no MPI by which its ranks could meet; start it without "
                 "one, with --ranks N: the ranks are threads then");
    ECH_TRY(control->open(size, deadline_seconds, endpoints));
    for (int i = 0; i < (threads ? size : 1); i++) endpoints[i]->opened = &ech_comm_nccl;
    return ECH_OK;
}

static const ech_comm_data data = {.put = put,
                                   .allreduce = allreduce,
                                   .check = check,
                                   .join = join,
                                   .part = part,
                                   .close = ech_nccl_stop};

const ech_comm_backend ech_comm_nccl = {.name = "nccl", .data = &data, .open = open_all};

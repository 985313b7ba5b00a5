/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `nccl`: NCCL moves data; `mpi` or `tcp` provide control if a launcher started the
 * process, otherwise `local`. NCCL's messages have no tags, so there are separate communicators for
 * each channel, and for each boundary, kind of message and pair of ranks. Each completes its calls
 * in the order in which its members put them, on one queue (simulate/rehearsal.h proves for all
 * lists that this ends). Transfers that are put together are one group of NCCL's.
 *
 * A communicator's first message connects two ranks: they wait for each other, and memory is
 * allocated, for which the library waits until the GPU is idle. So all members connect when they
 * join, before any step. Calls do not block, so that one group can abort all communicators.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/launch.h"
#include "comm/nccl_state.h"

/* Bytes of a GPU. CONNECTION: what a peer sends arrives in a buffer for each of NCCL's protocols
 * (0.5, 4.7 and 4 MiB), and each thread block has buffers of its own. NCCL 2.30.7 took 0.6 GB on an
 * H200 for its code and two communicators of two members, with 8 and 16 blocks. */
enum { CODE = 512 << 20, CONNECTION = 10 << 20 };
/* No more members share a machine; to another machine a peer uses fewer thread blocks. */
enum { NEAR_MEMBERS = 8, FAR_BLOCKS = 2 };
/* Of the library's own collectives: two neighbours in a ring. */
enum { RING_PEERS = 2 };

/* Of a wait for the library: how often it looks again at once, and the pause after that. */
enum { SPINS = 1000, NAP_NS = 20000 };

static bool is_fine(int result)
{
    return result == ECH_NCCL_SUCCESS || result == ECH_NCCL_IN_PROGRESS;
}

ech_status ech_nccl_check(const ech_nccl_state *state, int result, const char *call,
                          const char *name)
{
    if (is_fine(result)) return ECH_OK;
    if (ech_comm_is_over(state->comm)) return ECH_EABORTED;
    const char *last = state->nccl->GetLastError(NULL);
    ECH_FAIL(ECH_ECOMM, "%s, %s: %s%s%s; with NCCL_DEBUG=WARN in the environment it says more",
             name, call, state->nccl->GetErrorString(result), last && *last ? ": " : "",
             last ? last : "");
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

static void leave(ech_nccl_state *state, ech_communicator *in)
{
    pthread_mutex_unlock(&in->calling);
    atomic_fetch_sub(&in->users, 1);
    atomic_fetch_sub(&state->users, 1);
}

/* No communicator is aborted until `leave`, unless this call hangs. */
static ech_status enter(ech_nccl_state *state, ech_communicator *in)
{
    atomic_fetch_add(&in->calls, 1);
    atomic_fetch_add(&in->users, 1);
    atomic_fetch_add(&state->users, 1);
    pthread_mutex_lock(&in->calling);
    if (!ech_comm_is_over(state->comm)) return ECH_OK;
    leave(state, in);
    return ECH_EABORTED;
}

/* Waits until what a call has begun is done: communicators do not block (CommInitRankConfig), so
 * that no call is in progress when the watchdog aborts them. It ends a wait past the deadline. */
static ech_status await(const ech_nccl_state *state, ech_communicator *in, int result,
                        const char *call)
{
    in->failed = true; /* until the call's end is known */
    for (int polls = 0; result == ECH_NCCL_IN_PROGRESS; polls++) {
        if (ech_comm_is_over(state->comm)) return ECH_EABORTED;
        int error = state->nccl->CommGetAsyncError(in->at, &result);
        if (error != ECH_NCCL_SUCCESS) result = error;
        if (polls < SPINS)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    ECH_TRY(ech_nccl_check(state, result, call, in->name));
    in->failed = false;
    return ECH_OK;
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
    for (int i = 0; i < n && is_fine(error); i++) {
        ECH_ASSERT(find(requests->on, requests[i].peer, &member) == in);
        error = put_one(nccl, &requests[i], in, member, stream);
        requests[i].done = true;
    }
    int end = nccl->GroupEnd();
    return await(state, in, is_fine(error) ? end : error, "a transfer");
}

static ech_status put(ech_comm *comm, ech_request *requests, int n)
{
    ech_nccl_state *state = comm->joined;
    const ech_comm_queue *on = requests->on;
    int member;
    ech_communicator *in = find(on, requests->peer, &member);
    ECH_ASSERT(in);
    void *stream = on->device->stream(on->queue);
    ECH_TRY(enter(state, in));
    ech_status status = put_all(state, in, requests, n, stream);
    if (status == ECH_OK) on->device->record(in->ended, on->queue);
    leave(state, in);
    return status;
}

static int call_library(const ech_nccl *nccl, const ech_library_call *c, ech_nccl_comm in,
                        void *stream)
{
    int type = c->dtype == ECH_F32 ? ECH_NCCL_FLOAT32 : ECH_NCCL_FLOAT64;
    size_t n = (size_t)c->n;
    if (c->kind == ECH_LIBRARY_GATHER)
        return nccl->AllGather(c->from, c->to, n * ech_dtype_bytes(c->dtype), ECH_NCCL_BYTE, in,
                               stream);
    if (c->kind == ECH_LIBRARY_SCATTER)
        return nccl->ReduceScatter(c->from, c->to, n, type, ECH_NCCL_SUM, in, stream);
    return nccl->AllReduce(c->from, c->to, n, type, ECH_NCCL_SUM, in, stream);
}

static ech_status library(ech_comm *comm, ech_request *request, const ech_library_call *call)
{
    ech_nccl_state *state = comm->joined;
    const ech_comm_queue *on = request->on;
    ech_communicator *in = on->joined;
    void *stream = on->device->stream(on->queue);
    ECH_TRY(enter(state, in));
    int result = call_library(state->nccl, call, in->at, stream);
    ech_status status = await(state, in, result, "a collective");
    if (status == ECH_OK) on->device->record(in->ended, on->queue);
    leave(state, in);
    request->done = true;
    return status;
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
    pthread_mutex_init(&in->calling, NULL);
    in->ranks = ech_calloc((size_t)n, sizeof *in->ranks);
    memcpy(in->ranks, ranks, (size_t)n * sizeof *ranks);
    snprintf(in->name, sizeof in->name, "NCCL's communicator of %s", name);
    return in;
}

static void forget(ech_communicator *in)
{
    in->device->event_destroy(in->ended);
    pthread_mutex_destroy(&in->calling);
    free(in->ranks);
    free(in);
}

/* Sends a byte to each other member, receives one, and waits for all. */
static ech_status connect_all(ech_comm *comm, const ech_comm_queue *on, const ech_communicator *in)
{
    size_t n = 0;
    void *memory;
    ECH_TRY(on->device->alloc(2 * (size_t)in->size, &memory));
    ech_request *requests = ech_calloc(2 * (size_t)in->size, sizeof *requests);
    for (int i = 0; i < 2 * in->size; i++)
        if (in->ranks[i / 2] != comm->rank)
            requests[n++] = (ech_request){.on = on,
                                          .data = (char *)memory + i,
                                          .peer = in->ranks[i / 2],
                                          .bytes = 1,
                                          .sends = i % 2};
    ech_status status = put(comm, requests, (int)n);
    if (status == ECH_OK) status = ech_device_settle(on->device, on->queue);
    on->device->release(memory, 2 * (size_t)in->size);
    free(requests);
    return status;
}

/* Makes the communicator, and adds it to the queue's, which ech_comm_disconnect releases. NULL in
 * `at`: it could not begin. */
static ech_status start(ech_nccl_state *state, ech_comm_queue *on, ech_communicator *in, int member,
                        ech_nccl_id id)
{
    ech_nccl_config config = ECH_NCCL_CONFIG;
    if (on->blocks) config.most_blocks = on->blocks;
    ECH_TRY(enter(state, in));
    int result = state->nccl->CommInitRankConfig(&in->at, in->size, id, member, &config);
    ECH_ASSERT(in->at || !is_fine(result));
    if (in->at) {
        ech_communicator **end = (ech_communicator **)&on->joined;
        while (*end) end = &(*end)->next;
        *end = in;
        ech_nccl_watch(state, in);
    }
    ech_status status = await(state, in, result, "its start");
    leave(state, in);
    return status;
}

static ech_status join(ech_comm *comm, ech_comm_queue *on, const char *name, const int *ranks,
                       int n)
{
    int member;
    ech_nccl_id id = {{0}};
    ECH_TRY(ech_nccl_start(comm, on->device));
    ECH_TRY(agree(comm, name, ranks, n, &member, &id));
    (void)on->device->stream(on->queue); /* its GPU is the thread's */
    ech_communicator *in = make(on, name, ranks, n);
    ech_status status = on->device->event_create(&in->ended);
    /* by this thread first: a device may create it now */
    if (status == ECH_OK) in->device->record(in->ended, on->queue);
    if (status == ECH_OK) status = start(comm->joined, on, in, member, id);
    if (!in->at) forget(in);
    ECH_TRY(status);
    return connect_all(comm, on, in);
}

static ech_status finalize(ech_nccl_state *state, ech_communicator *in)
{
    ECH_TRY(enter(state, in));
    ech_status status = await(state, in, state->nccl->CommFinalize(in->at), "its end");
    leave(state, in);
    return status;
}

static void disconnect(ech_comm *comm, ech_comm_queue *on)
{
    ech_nccl_state *state = comm->joined;
    for (ech_communicator *in = on->joined, *next; in; in = next) {
        next = in->next;
        /* After a failed call none may follow: the watchdog aborts the communicator. */
        if (in->failed || finalize(state, in) != ECH_OK) ech_comm_raise(comm);
        ech_nccl_unwatch(state, in); /* only this thread has it from now on */
        if (in->at) (void)state->nccl->CommDestroy(in->at);
        forget(in);
    }
    on->joined = NULL;
}

/* ---- the backend ---- */

static int64_t takes(int members, int blocks, bool rings)
{
    int64_t ring = rings ? (int64_t)RING_PEERS * blocks * CONNECTION : 0;
    if (members == 0) return CODE;
    if (members > NEAR_MEMBERS && blocks > FAR_BLOCKS) blocks = FAR_BLOCKS;
    return (int64_t)(members - 1) * blocks * CONNECTION + ring;
}

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
                                   .library = library,
                                   .check = check,
                                   .share = ech_nccl_share,
                                   .takes = takes,
                                   .join = join,
                                   .disconnect = disconnect,
                                   .close = ech_nccl_stop};

const ech_comm_backend ech_comm_nccl = {
    .name = "nccl", .version = ech_nccl_version, .data = &data, .open = open_all};

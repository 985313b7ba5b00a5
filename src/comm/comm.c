/* SPDX-License-Identifier: Apache-2.0
 *
 * Endpoints: the table of backends, and the calls that check their arguments and call the backend.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/backend.h"
#include "device/device.h"

static const ech_comm_backend *const backends[] = {
#define X(name, help) &ech_comm_##name,
#include "comm/comm.def"
#undef X
};

const ech_comm_backend *ech_comm_find(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(backends[i]->name, name) == 0) return backends[i];
    return NULL;
}

const ech_comm_backend *ech_comm_of_kind(ech_comm_kind kind)
{
    return backends[kind];
}

const char *ech_comm_names(void)
{
    static const char names[] =
#define X(name, help) " " #name
#include "comm/comm.def"
#undef X
        ;
    return names + 1;
}

ech_comm *ech_comm_make(const ech_comm_backend *backend, int rank, int size, int local_rank,
                        int local_size, double deadline_seconds, ech_board *board)
{
    ech_comm *comm = ech_calloc(1, sizeof *comm);
    *comm = (ech_comm){.backend = backend,
                       .board = board,
                       .rank = rank,
                       .size = size,
                       .local_rank = local_rank,
                       .local_size = local_size,
                       .deadline = deadline_seconds,
                       .crowded = local_size > ech_device_find("cpu")->cores(),
                       .polled = -1,
                       .shared = ech_calloc((size_t)size, sizeof *comm->shared)};
    pthread_mutex_init(&comm->lock, NULL);
    ech_board_join(board, local_rank, rank);
    return comm;
}

bool ech_comm_is_over(const ech_comm *comm)
{
    return atomic_load(&comm->dead) || ech_board_aborted(comm->board);
}

ech_status ech_comm_open(const ech_comm_backend *backend, int size, double deadline_seconds,
                         ech_comm **endpoints)
{
    ECH_ASSERT(size >= 0 && deadline_seconds > 0);
    return backend->open(size, deadline_seconds, endpoints);
}

/* Until the other ranks have printed their errors. */
enum { GRACE_MS = 300 };

/* Ends the job as far as the backend can. */
static void end_job(ech_comm *comm)
{
    if (!comm->backend->abort) return;
    nanosleep(&(struct timespec){.tv_nsec = GRACE_MS * 1000000L}, NULL);
    pthread_mutex_lock(&comm->lock);
    comm->backend->abort(comm);
    pthread_mutex_unlock(&comm->lock);
}

void ech_comm_close(ech_comm *comm)
{
    if (!comm) return;
    if (ech_comm_is_over(comm)) end_job(comm);
    pthread_mutex_lock(&comm->lock);
    comm->backend->close(comm);
    pthread_mutex_unlock(&comm->lock);
    pthread_mutex_destroy(&comm->lock);
    free(comm->shared);
    free(comm);
}

int ech_comm_rank(const ech_comm *comm)
{
    return comm->rank;
}

int ech_comm_size(const ech_comm *comm)
{
    return comm->size;
}

const char *ech_comm_name(const ech_comm *comm)
{
    return comm->backend->name;
}

int ech_comm_local_size(const ech_comm *comm)
{
    return comm->local_size;
}

int ech_comm_local_rank(const ech_comm *comm)
{
    return comm->local_rank;
}

bool ech_comm_is_near(const ech_comm *comm, const int *ranks, int n)
{
    int first = comm->rank - comm->local_rank;
    for (int i = 0; i < n; i++)
        if (ranks[i] < first || ranks[i] >= first + comm->local_size) return false;
    return true;
}

void ech_comm_withdraw(ech_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    atomic_store(&comm->dead, true);
    if (comm->backend->withdraw) comm->backend->withdraw(comm);
    pthread_mutex_unlock(&comm->lock);
}

void ech_comm_raise(ech_comm *comm)
{
    ech_board_abort(comm->board, comm->rank);
}

void ech_comm_abort(ech_comm *comm)
{
    ech_board_abort(comm->board, comm->rank);
    ech_comm_withdraw(comm);
    end_job(comm);
}

void ech_comm_set_position(ech_comm *comm, int64_t step, const char *what)
{
    ech_board_set_position(comm->board, comm->local_rank, step, what);
}

void ech_comm_set_saving(ech_comm *comm, int64_t step)
{
    ech_board_set_wait(comm->board, comm->local_rank, ECH_BOARD_SAVER, -1);
    atomic_store(&comm->board->slot[comm->local_rank].saves, step);
}

void ech_comm_forbid_restart(ech_comm *comm)
{
    atomic_store(&comm->board->is_final, 1);
}

void ech_comm_count_step(ech_comm *comm)
{
    if (comm->local_rank == 0) atomic_fetch_add(&comm->board->progress, 1);
}

void ech_comm_set_wait(ech_comm *comm, int peer)
{
    int before = atomic_exchange(&comm->polled, peer);
    if (peer >= 0)
        ech_board_set_wait(comm->board, comm->local_rank, ECH_BOARD_RANK, peer);
    else
        ech_board_end_wait(comm->board, comm->local_rank, ECH_BOARD_RANK, before, -1);
}

/* ---- transfers ---- */

void *ech_transfer_reach(const ech_request *request, const void *data)
{
    return request->on ? ech_device_reach(request->on->device, data) : (void *)(uintptr_t)data;
}

ech_status ech_comm_check_device(const ech_comm_backend *backend, const ech_device *device,
                                 int ranks)
{
    bool moves = ech_device_is_processor(device) || backend->data;
    if (moves || ranks == 1) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "parallel.comm = %s does not send memory of parallel.device = %s; set parallel.comm = "
             "local, whose ranks are threads",
             backend->name, device->name);
}

static bool is_put(const ech_request *request)
{
    return request->on && !request->on->device->is_immediate;
}

ech_status ech_transfer_start(ech_comm *comm, ech_request *request, const void *from, void *to)
{
    if (ech_comm_is_over(comm)) {
        ech_comm_withdraw(comm);
        return ECH_EABORTED;
    }
    const ech_comm_backend *backend = comm->backend;
    bool put = is_put(request) && backend->data;
    if (!put && is_put(request)) ECH_TRY(ech_comm_settle(comm, request->on));
    if (!put && from) from = ech_transfer_reach(request, from);
    if (!put && to) to = ech_transfer_reach(request, to);
    ech_status st = ECH_EABORTED;
    pthread_mutex_lock(&comm->lock);
    if (!comm->dead) st = (put ? backend->data->start : backend->start)(comm, request, from, to);
    pthread_mutex_unlock(&comm->lock);
    return st;
}

ech_status ech_transfer_test(ech_comm *comm, ech_request *request)
{
    if (request->done) return ECH_OK;
    const ech_comm_backend *backend = comm->backend;
    bool put = is_put(request) && backend->data;
    ech_status st = ECH_OK;
    pthread_mutex_lock(&comm->lock);
    if (!comm->dead) st = (put ? backend->data->test : backend->test)(comm, request);
    pthread_mutex_unlock(&comm->lock);
    return st;
}

ech_status ech_comm_put(ech_comm *comm, const ech_comm_queue *on, ech_request *request, void *data)
{
    ECH_ASSERT(request->peer >= 0 && request->peer < comm->size && request->tag >= 0 &&
               request->tag < ECH_COMM_TAGS);
    request->on = on;
    return ech_transfer_start(comm, request, request->sends ? data : NULL,
                              request->sends ? NULL : data);
}

ech_status ech_comm_send_start(ech_comm *comm, int peer, int tag, const void *data, size_t bytes,
                               ech_request *request)
{
    ECH_ASSERT(peer >= 0 && peer < comm->size && tag >= 0 && tag < ECH_COMM_TAGS);
    *request = (ech_request){.peer = peer, .tag = tag, .bytes = bytes, .sends = true};
    return ech_transfer_start(comm, request, data, NULL);
}

ech_status ech_comm_receive_start(ech_comm *comm, int peer, int tag, void *data, size_t bytes,
                                  ech_request *request)
{
    ECH_ASSERT(peer >= 0 && peer < comm->size && tag >= 0 && tag < ECH_COMM_TAGS);
    *request = (ech_request){.peer = peer, .tag = tag, .bytes = bytes, .sends = false};
    return ech_transfer_start(comm, request, NULL, data);
}

ech_status ech_comm_test(ech_comm *comm, ech_request *request, bool *done)
{
    ech_status st = ech_transfer_test(comm, request);
    if (st == ECH_OK && !request->done && ech_comm_is_over(comm)) st = ECH_EABORTED;
    if (st != ECH_OK) {
        ech_comm_withdraw(comm);
        return st;
    }
    *done = request->done;
    return ECH_OK;
}

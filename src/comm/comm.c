/* SPDX-License-Identifier: Apache-2.0
 *
 * Endpoints: the table of backends, and the calls that check their arguments and hand over.
 */
#include <stdlib.h>
#include <string.h>

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

const char *ech_comm_names(void)
{
    static const char names[] =
#define X(name, help) " " #name
#include "comm/comm.def"
#undef X
        ;
    return names + 1;
}

const char *ech_comm_launcher(const ech_comm_backend *backend)
{
    return backend->launcher();
}

const char *ech_comm_version(const ech_comm_backend *backend)
{
    return backend->version();
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
                       .shared = ech_calloc((size_t)size, sizeof *comm->shared)};
    ech_board_join(board, local_rank, rank);
    return comm;
}

ech_status ech_comm_open(const ech_comm_backend *backend, int size, double deadline_seconds,
                         ech_comm **endpoints)
{
    ECH_ASSERT(size >= 0 && deadline_seconds > 0);
    return backend->open(size, deadline_seconds, endpoints);
}

void ech_comm_close(ech_comm *comm)
{
    if (!comm) return;
    comm->backend->close(comm);
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

void ech_comm_withdraw(ech_comm *comm)
{
    comm->dead = true;
    comm->backend->withdraw(comm);
}

void ech_comm_raise(ech_comm *comm)
{
    ech_board_abort(comm->board, comm->rank);
}

void ech_comm_abort(ech_comm *comm)
{
    ech_board_abort(comm->board, comm->rank);
    ech_comm_withdraw(comm);
    comm->backend->abort(comm);
}

void ech_comm_set_position(ech_comm *comm, int64_t step, const char *what)
{
    ech_board_set_position(comm->board, comm->local_rank, step, what);
}

ech_status ech_transfer_start(ech_comm *comm, ech_request *request, const void *from, void *to)
{
    if (comm->dead || ech_board_aborted(comm->board)) {
        ech_comm_withdraw(comm);
        return ECH_EABORTED;
    }
    return request->sends ? comm->backend->send_start(comm, from, request)
                          : comm->backend->receive_start(comm, to, request);
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
    if (!request->done) {
        if (!comm->dead) ECH_TRY(comm->backend->test(comm, request));
        if (!request->done && (comm->dead || ech_board_aborted(comm->board))) {
            ech_comm_withdraw(comm);
            return ECH_EABORTED;
        }
    }
    *done = request->done;
    return ECH_OK;
}

ech_status ech_comm_wait(ech_comm *comm, ech_request *requests, int n)
{
    return ech_wait_all(comm, requests, n, NULL, NULL);
}

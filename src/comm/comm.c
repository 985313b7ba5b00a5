/* SPDX-License-Identifier: Apache-2.0
 *
 * Endpoints: the table of backends, and the calls that check their arguments and call the backend.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/backend.h"
#include "comm/launch.h"
#include "device/device.h"

static const struct {
    const char *name, *lacking;
} rows[] = {
#define X(name, help, lacking) {#name, lacking},
#include "comm/comm.def"
#undef X
};

/* NULL: this build has none. */
static const ech_comm_backend *const backends[ECH_COMM_KINDS] = {
    [ECH_COMM_local] = &ech_comm_local,
    [ECH_COMM_mpi] = &ech_comm_mpi,
#ifdef ECH_HAS_UCX
    [ECH_COMM_ucx] = &ech_comm_ucx,
#endif
    [ECH_COMM_nccl] = &ech_comm_nccl,
};

const ech_comm_backend *ech_comm_find(const char *name)
{
    for (int k = 0; k < ECH_COMM_KINDS; k++)
        if (strcmp(rows[k].name, name) == 0) return backends[k];
    return NULL;
}

const ech_comm_backend *ech_comm_of_kind(ech_comm_kind kind)
{
    return backends[kind];
}

bool ech_comm_has_threads(ech_comm_kind kind)
{
    ech_launched by;
    return kind == ECH_COMM_local || (kind == ECH_COMM_nccl && !ech_launched_here(&by));
}

const char *ech_comm_lacks(ech_comm_kind kind)
{
    if (!backends[kind]) return rows[kind].lacking;
    return backends[kind]->lacks ? backends[kind]->lacks() : NULL;
}

const char *ech_comm_version(ech_comm_kind kind)
{
    return backends[kind]->version ? backends[kind]->version() : rows[kind].name;
}

const char *ech_comm_launcher(ech_comm_kind kind)
{
    return backends[kind]->launcher;
}

const char *ech_comm_names(void)
{
    static const char names[] =
#define X(name, ...) " " #name
#include "comm/comm.def"
#undef X
        ;
    return names + 1;
}

ech_comm *ech_comm_make(const ech_comm_backend *backend, int rank, int size, int local_rank,
                        int local_size, double deadline_seconds, ech_board *board)
{
    ech_comm *comm = ech_calloc(1, sizeof *comm);
    *comm = (ech_comm){.opened = backend,
                       .backend = backend,
                       .board = board,
                       .rank = rank,
                       .size = size,
                       .local_rank = local_rank,
                       .local_size = local_size,
                       .deadline = deadline_seconds,
                       .crowded = local_size > ech_device_find("cpu")->cores(),
                       .polled = -1,
                       .shared = ech_calloc((size_t)size, sizeof *comm->shared),
                       .lost = ech_calloc((size_t)size, sizeof *comm->lost)};
    pthread_mutex_init(&comm->lock, NULL);
    ech_bell_create(&comm->own);
    comm->bell = &comm->own;
    ech_board_join(board, local_rank, rank);
    return comm;
}

bool ech_comm_is_over(const ech_comm *comm)
{
    return atomic_load(&comm->dead) || ech_board_aborted(comm->board);
}

ech_status ech_comm_check(const ech_comm *comm)
{
    return ech_comm_is_over(comm) ? ECH_EABORTED : ECH_OK;
}

/* Checks that the processes of a launcher have found each other. */
static ech_status check_company(const ech_comm *comm)
{
    char by[96];
    const ech_comm_backend *backend = comm->backend;
    if (backend == &ech_comm_local) return ECH_OK; /* threads */
    snprintf(by, sizeof by, "%s%s%s%s", comm->opened->name, backend->version ? " (" : "",
             backend->version ? backend->version() : "", backend->version ? ")" : "");
    return ech_launched_check(comm->size, by, backend->launcher);
}

ech_status ech_comm_open(const ech_comm_backend *backend, int size, double deadline_seconds,
                         ech_comm **endpoints)
{
    ECH_ASSERT(size >= 0 && deadline_seconds > 0);
    ECH_TRY(backend->open(size, deadline_seconds, endpoints));
    ech_status st = check_company(endpoints[0]);
    if (st != ECH_OK) ech_comm_close(endpoints[0]);
    return st;
}

/* Time for the other ranks to print their errors. */
enum { GRACE_MS = 300 };

/* Ends the job as far as the backend can. */
static void end_job(ech_comm *comm)
{
    if (!comm->backend->abort || comm->size == 1) return; /* no rank waits for this process */
    nanosleep(&(struct timespec){.tv_nsec = GRACE_MS * 1000000L}, NULL);
    pthread_mutex_lock(&comm->lock);
    ech_status reason = (ech_status)atomic_load(&comm->board->reason);
    comm->backend->abort(comm, ech_status_exit_code(reason == ECH_OK ? ECH_EABORTED : reason));
    pthread_mutex_unlock(&comm->lock);
}

static void release(ech_comm *comm, void (*close)(ech_comm *comm))
{
    if (comm->joined) comm->opened->data->close(comm);
    pthread_mutex_lock(&comm->lock);
    close(comm);
    pthread_mutex_unlock(&comm->lock);
    pthread_mutex_destroy(&comm->lock);
    ech_bell_destroy(&comm->own);
    free(comm->shared);
    free(comm->lost);
    free(comm);
}

void ech_comm_close(ech_comm *comm)
{
    if (!comm) return;
    if (ech_comm_is_over(comm)) end_job(comm);
    release(comm, comm->backend->close);
}

ech_status ech_comm_remake(ech_comm **comm)
{
    const ech_comm_backend *backend = (*comm)->opened;
    int size = (*comm)->size;
    double deadline = (*comm)->deadline;
    ECH_ASSERT(backend->drop);
    ech_board_abort((*comm)->board, (*comm)->rank);
    ech_comm_withdraw(*comm);
    release(*comm, backend->drop);
    *comm = NULL;
    return ech_comm_open(backend, size, deadline, comm);
}

void ech_comm_spare(ech_comm *comm, int first, int end)
{
    if (!comm->backend->spares) return;
    pthread_mutex_lock(&comm->lock);
    comm->spared = first;
    comm->spared_end = end;
    pthread_mutex_unlock(&comm->lock);
    if (comm->rank >= first && comm->rank < end) ech_board_spare(comm->board, comm->local_rank);
}

bool ech_comm_is_lost(const ech_comm *comm, int rank)
{
    return atomic_load(&comm->lost[rank]);
}

bool ech_comm_lose(ech_comm *comm, ech_request *request)
{
    if (request->peer < comm->spared || request->peer >= comm->spared_end) return false;
    atomic_store(&comm->lost[request->peer], true);
    request->done = request->lost = true;
    return true;
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
    return comm->opened->name;
}

const ech_comm_backend *ech_comm_backend_of(const ech_comm *comm)
{
    return comm->opened;
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

void ech_comm_abort(ech_comm *comm, ech_status status)
{
    ech_board_give_reason(comm->board, status);
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
    if (ranks == 1) return ECH_OK;
    if (backend->data && backend->data->check) return backend->data->check(device);
    if (ech_device_is_processor(device) || backend->data) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "parallel.comm = %s does not send memory of parallel.device = %s; set parallel.comm = "
             "nccl, or local, whose ranks are threads",
             backend->name, device->name);
}

ech_status ech_comm_share_device(const ech_comm_backend *backend, const ech_device *device)
{
    return backend->data && backend->data->share ? backend->data->share(device) : ECH_OK;
}

int64_t ech_comm_library_bytes(const ech_comm_backend *backend, int members, int blocks, bool rings)
{
    return backend->data && backend->data->takes ? backend->data->takes(members, blocks, rings) : 0;
}

ech_status ech_comm_map_shared(ech_comm *comm, const ech_device *device, size_t bytes, void **out)
{
    if (comm->opened->map_shared) return comm->opened->map_shared(comm, device, bytes, out);
    ECH_FAIL(ECH_EUNSUPPORTED,
             "ranks of parallel.comm = %s are processes, which share no memory; set "
             "parallel.comm = local, whose ranks are threads",
             comm->opened->name);
}

void ech_comm_unmap_shared(ech_comm *comm)
{
    comm->opened->unmap_shared(comm);
}

ech_status ech_comm_join(ech_comm *comm, ech_comm_queue *on, const char *name, const int *ranks,
                         int n)
{
    const ech_comm_data *data = comm->opened->data;
    bool needs = n > 1 && data && data->join && !on->device->is_immediate;
    return needs ? data->join(comm, on, name, ranks, n) : ECH_OK;
}

bool ech_comm_joins(const ech_comm *comm)
{
    return comm->opened->data && comm->opened->data->join;
}

void ech_comm_disconnect(ech_comm *comm, ech_comm_queue *on)
{
    if (on->joined) comm->opened->data->disconnect(comm, on);
}

static bool is_queued(const ech_request *request)
{
    return request->on && !request->on->device->is_immediate;
}

bool ech_request_is_put(const ech_comm *comm, const ech_request *request)
{
    return is_queued(request) && comm->opened->data;
}

/* Starts it on the host. */
static ech_status start(ech_comm *comm, ech_request *request)
{
    if (is_queued(request)) ECH_TRY(ech_comm_settle(comm, request->on));
    void *data = request->data ? ech_transfer_reach(request, request->data) : NULL;
    ech_status st = ECH_EABORTED;
    pthread_mutex_lock(&comm->lock);
    if (!comm->dead)
        st = comm->backend->start(comm, request, request->sends ? data : NULL,
                                  request->sends ? NULL : data);
    pthread_mutex_unlock(&comm->lock);
    return st;
}

ech_status ech_transfers_put(ech_comm *comm, ech_request *requests, int n)
{
    if (n == 0) return ECH_OK;
    if (ech_comm_is_over(comm)) {
        ech_comm_withdraw(comm);
        return ECH_EABORTED;
    }
    if (ech_request_is_put(comm, requests)) return comm->opened->data->put(comm, requests, n);
    ech_status st = ECH_OK;
    for (int i = 0; i < n && st == ECH_OK; i++) st = start(comm, &requests[i]);
    if (st != ECH_OK) ech_comm_withdraw(comm); /* transfers that have begun */
    return st;
}

ech_status ech_transfer_test(ech_comm *comm, ech_request *request)
{
    if (request->done) return ECH_OK;
    bool put = ech_request_is_put(comm, request);
    ech_status st = ECH_OK;
    pthread_mutex_lock(&comm->lock);
    if (!comm->dead) st = (put ? comm->opened->data->test : comm->backend->test)(comm, request);
    pthread_mutex_unlock(&comm->lock);
    return st;
}

ech_status ech_comm_put(ech_comm *comm, ech_request *requests, int n)
{
    for (int i = 0; i < n; i++)
        ECH_ASSERT(requests[i].peer >= 0 && requests[i].peer < comm->size && requests[i].tag >= 0 &&
                   requests[i].tag < ECH_COMM_TAGS && requests[i].on == requests->on);
    return ech_transfers_put(comm, requests, n);
}

ech_status ech_comm_send_start(ech_comm *comm, int peer, int tag, const void *data, size_t bytes,
                               ech_request *request)
{
    ECH_ASSERT(peer >= 0 && peer < comm->size && tag >= 0 && tag < ECH_COMM_TAGS);
    *request = (ech_request){
        .data = (void *)(uintptr_t)data, .peer = peer, .tag = tag, .bytes = bytes, .sends = true};
    return ech_transfers_put(comm, request, 1);
}

ech_status ech_comm_receive_start(ech_comm *comm, int peer, int tag, void *data, size_t bytes,
                                  ech_request *request)
{
    ECH_ASSERT(peer >= 0 && peer < comm->size && tag >= 0 && tag < ECH_COMM_TAGS);
    *request =
        (ech_request){.data = data, .peer = peer, .tag = tag, .bytes = bytes, .sends = false};
    return ech_transfers_put(comm, request, 1);
}

ech_status ech_comm_test(ech_comm *comm, ech_request *request, bool *done)
{
    bool over = ech_comm_is_over(comm); /* read first: what was done by then is done */
    ech_status st = ech_transfer_test(comm, request);
    if (st == ECH_OK && !request->done && over) st = ECH_EABORTED;
    if (st != ECH_OK) {
        ech_comm_withdraw(comm);
        return st;
    }
    *done = request->done;
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: the struct behind an endpoint, and the functions that a backend provides. A
 * backend moves messages between two ranks; waits, collectives and counters are common to all
 * backends. None is collective unless said. Control functions move host memory; data functions put
 * transfers on the queues of devices that are not immediate.
 *
 * To add a backend: a file with one `const ech_comm_backend ech_comm_NAME`, a row in comm.def, and
 * one in comm.c.
 */
#ifndef ECH_COMM_BACKEND_H
#define ECH_COMM_BACKEND_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/board.h"
#include "comm/comm.h"

/* Tags below the first are the caller's; those from there on belong to groups, and have so many
 * bits. */
enum { ECH_COMM_TAGS = 1 << 20, ECH_COMM_TAG_BITS = 29 };

/* Data functions. No function waits for a queue. Addresses are the device's. The first two are
 * called without the endpoint's lock; of those that are NULL there is nothing to do. */
typedef struct ech_comm_data {
    /* Puts the transfers on requests->on's queue, or makes known that they are to be put there once
     * the other side has come: then the side that comes second does it. Sets request->done of those
     * that are put. */
    ech_status (*put)(ech_comm *comm, ech_request *requests, int n);
    /* The same of the sum over all members, in place: request->data becomes it. NULL: there is none
     * of a library. */
    ech_status (*allreduce)(ech_comm *comm, ech_request *request, ech_dtype dtype);
    ech_status (*test)(ech_comm *comm,
                       ech_request *request); /* sets request->done once it is put */
    /* ech_comm_check_device, ech_comm_join and ech_comm_part, on a device that is not immediate. */
    ech_status (*check)(const ech_device *device);
    ech_status (*join)(ech_comm *comm, ech_comm_queue *on, const char *name, const int *ranks,
                       int n);
    void (*part)(ech_comm *comm, ech_comm_queue *on);
    void (*close)(ech_comm *comm); /* releases comm->joined */
} ech_comm_data;

struct ech_comm {
    const ech_comm_backend *opened; /* by which the endpoint was opened, and its data move */
    const ech_comm_backend
        *backend;     /* by which control does: the same, unless that opened another one */
    void *state;      /* the backend's */
    void *joined;     /* opened->data's; NULL: none */
    ech_board *board; /* this machine's; this rank's slot is local_rank */
    int rank, size;
    int local_rank, local_size; /* the ranks of a machine are consecutive */
    double deadline;            /* seconds */
    int spared, spared_end;     /* ech_comm_spare */
    bool crowded;               /* more ranks than cores on this machine: waits never spin */
    atomic_int polled;          /* the peer of ech_comm_set_wait; -1: none */

    /* Held during every call of a backend's function and for the fields below; never while
     * waiting. */
    pthread_mutex_t lock;
    atomic_bool dead;  /* all transfers were cancelled: no further one is started or tested */
    uint32_t *shared;  /* [size]: groups created so far that have this rank and rank r */
    atomic_bool *lost; /* [size] of those that are spared */
};

/* Messages between two ranks with one tag arrive in the order in which they were started. The
 * functions get checked arguments and are called by one thread at a time (under comm->lock). */
struct ech_comm_backend {
    const char *name;
    const char *(*version)(void); /* of its library: ech_comm_version; NULL: it has none */
    const char *launcher;         /* ech_comm_launcher */
    /* NULL: the host waits until the queue has got to a transfer, and moves it by `start`. */
    const ech_comm_data *data;
    /* See ech_comm_open. Makes each endpoint with ech_comm_make. */
    ech_status (*open)(int size, double deadline_seconds, ech_comm **endpoints);
    void (*close)(ech_comm *comm); /* releases comm->state and the board */
    /* Starts the send of `from` or the receive of `to` that the request describes. */
    ech_status (*start)(ech_comm *comm, ech_request *request, const void *from, void *to);
    ech_status (*test)(ech_comm *comm, ech_request *request); /* sets request->done */
    /* Optional: cancels all transfers of this endpoint; afterwards none touches a buffer. NULL: the
     * process is about to end. */
    void (*withdraw)(ech_comm *comm);
    /* it leaves messages with others as they are when a rank has died: ech_comm_spare */
    bool spares;
    /* Optional: what `close` does, but without a word to others, some of whom may be lost
     * (ech_comm_remake). */
    void (*drop)(ech_comm *comm);
    /* Optional: ends the job and this process with an exit code. Called after the other ranks had
     * time to print their errors. */
    void (*abort)(ech_comm *comm, int code);
    /* ech_comm_take_window and ech_comm_give_window. NULL: ranks have no memory in common. */
    ech_status (*take_window)(ech_comm *comm, const ech_device *device, size_t bytes, void **out);
    void (*give_window)(ech_comm *comm);
    /* NULL: the backend has no all-reduce of a library. Starts x (n elements of dtype) = the sum
     * over ranks[size], in place. A channel's first call, with *handle NULL, makes the library's
     * communicator and waits for all members; with n = 0 it does only that. The caller keeps
     * *handle for the channel's next calls. */
    ech_status (*allreduce_start)(ech_comm *comm, const int *ranks, int size, void **handle,
                                  void *x, int64_t n, ech_dtype dtype, ech_request *request);
    void (*allreduce_forget)(ech_comm *comm, void *handle); /* frees a handle of allreduce_start */
};

/* The rows of comm.def: of those that a build lacks there is no object. */
#define X(name, ...) extern const ech_comm_backend ech_comm_##name;
#include "comm/comm.def"
#undef X

/* No row: control of `nccl` without MPI (tcp_state.h). */
extern const ech_comm_backend ech_comm_tcp;

/* A message with a rank that has died: the request is done, if that is spared; otherwise false. */
bool ech_comm_lose(ech_comm *comm, ech_request *request);
/* Whether the abort flag is raised or this endpoint's transfers are cancelled. */
bool ech_comm_is_over(const ech_comm *comm);

/* Allocates an endpoint and enters its rank on the board. */
ech_comm *ech_comm_make(const ech_comm_backend *backend, int rank, int size, int local_rank,
                        int local_size, double deadline_seconds, ech_board *board);

/* Whether the request's data are put on a queue, by opened->data: its device is not immediate. */
bool ech_request_is_put(const ech_comm *comm, const ech_request *request);
/* Starts what the requests describe, with tags of the caller or of a group: ech_comm_put, also of
 * host memory. */
ech_status ech_transfers_put(ech_comm *comm, ech_request *requests, int n);

/* Where the host finds the request's data. */
void *ech_transfer_reach(const ech_request *request, const void *data);
/* Waits until the queue has got here: what is put there later has not begun. Errors: ECH_EABORTED;
 * ECH_ECOMM past the deadline; a fault on the device. */
ech_status ech_comm_settle(ech_comm *comm, const ech_comm_queue *on);

/* Tests a request once and sets request->done; does nothing once transfers are cancelled. */
ech_status ech_transfer_test(ech_comm *comm, ech_request *request);

/* What a wait belongs to: the thread that waits, and for error messages the collective. */
typedef struct ech_wait_for {
    const char *group, *call; /* "data", "reduce"; both NULL: point to point */
    ech_board_thread thread;
} ech_wait_for;

/* Waits for all requests. Errors: ECH_EABORTED when the abort flag is raised, ECH_ECOMM past the
 * deadline; all transfers of this endpoint are cancelled then. */
ech_status ech_wait_all(ech_comm *comm, ech_request *requests, int n, const ech_wait_for *why);
/* Cancels all transfers of this endpoint for good. */
void ech_comm_withdraw(ech_comm *comm);

/* For tests of `mpi`: treats the process with rank r in MPI_COMM_WORLD as one of machine r mod
 * `machines`. To be called with the same number on all ranks, before ech_comm_open. */
void ech_mpi_pretend_machines(int machines);
/* For tests of `tcp` and `ucx`: ranks are dealt out to `machines` machines, in order. On all ranks,
 * before ech_comm_open. */
void ech_tcp_pretend_machines(int machines);
#endif

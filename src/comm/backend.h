/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: the struct of an endpoint, and the functions that a backend provides. A
 * backend moves messages between two ranks; waits, collectives and counters are common to all
 * backends. No function is collective unless stated. Control functions move host memory; data
 * functions put transfers on the queues of devices that are not immediate.
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

/* Tags below ECH_COMM_TAGS are the caller's; larger ones, of up to ECH_COMM_TAG_BITS bits, belong
 * to groups. */
enum { ECH_COMM_TAGS = 1 << 20, ECH_COMM_TAG_BITS = 29 };

/* A collective of the backend's library over all members, whose shards have equal lengths. */
typedef enum ech_library_kind {
    ECH_LIBRARY_REDUCE,  /* `to`, which is `from`, becomes the sum */
    ECH_LIBRARY_SCATTER, /* `to` becomes this member's shard of the sum */
    ECH_LIBRARY_GATHER,  /* `to` becomes all members' shards `from` */
    ECH_LIBRARY_KINDS
} ech_library_kind;
typedef struct ech_library_call {
    ech_library_kind kind;
    const void *from;
    void *to;
    int64_t n;       /* elements of a shard; REDUCE: of all */
    ech_dtype dtype; /* of sums fp32 or fp64, of gathers bytes */
} ech_library_call;

/* Data functions. None waits for a queue. Addresses are the device's. `put` and `library` are
 * called without the endpoint's lock. A NULL function has nothing to do. */
typedef struct ech_comm_data {
    /* Puts the transfers on requests->on's queue, or announces them if the other side has not come
     * yet: the side that comes second then puts them there. Sets request->done of the requests that
     * were put. */
    ech_status (*put)(ech_comm *comm, ech_request *requests, int n);
    /* The same for a collective over all members of request->on. NULL: there is no library. */
    ech_status (*library)(ech_comm *comm, ech_request *request, const ech_library_call *call);
    ech_status (*test)(ech_comm *comm,
                       ech_request *request); /* sets request->done once it is put */
    /* ech_comm_check_device, ech_comm_share_device, ech_comm_join and ech_comm_disconnect, on a
     * device that is not immediate. */
    ech_status (*check)(const ech_device *device);
    ech_status (*share)(const ech_device *device);
    int64_t (*takes)(int members, int blocks, bool rings); /* ech_comm_library_bytes */
    ech_status (*join)(ech_comm *comm, ech_comm_queue *on, const char *name, const int *ranks,
                       int n);
    void (*disconnect)(ech_comm *comm, ech_comm_queue *on);
    void (*close)(ech_comm *comm); /* releases comm->joined */
} ech_comm_data;

/* For threads that poll (bell.c). */
typedef struct ech_bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    atomic_uint count; /* of rings */
    atomic_int sleepers;
} ech_bell;

void ech_bell_create(ech_bell *bell);
void ech_bell_destroy(ech_bell *bell);
void ech_bell_ring(ech_bell *bell);
/* Sleeps until the count is not `heard`, at most `ns` nanoseconds. */
void ech_bell_listen(ech_bell *bell, unsigned heard, long ns);

struct ech_comm {
    const ech_comm_backend *opened; /* the backend that opened the endpoint and moves its data */
    /* the backend for control: the same, unless that opened another one */
    const ech_comm_backend *backend;
    void *state;      /* the backend's */
    void *joined;     /* opened->data's; NULL: none */
    ech_board *board; /* this machine's; this rank's slot is local_rank */
    int rank, size;
    int local_rank, local_size; /* the ranks of a machine are consecutive */
    double deadline;            /* seconds */
    int spared, spared_end;     /* ech_comm_spare */
    bool crowded;               /* more ranks than cores on this machine: waits never spin */
    atomic_int polled;          /* the peer of ech_comm_set_wait; -1: none */
    ech_bell *bell;             /* `own`, or one of the backend's that other ranks ring */
    ech_bell own;

    /* Held during every call of a backend's function and for the fields below; never while
     * waiting. */
    pthread_mutex_t lock;
    atomic_bool dead;  /* all transfers were cancelled: no further one is started or tested */
    uint32_t *shared;  /* [size]: groups created so far that contain both this rank and rank r */
    atomic_bool *lost; /* [size] of those that are spared */
};

/* Messages between two ranks with one tag arrive in the order in which they were started. The
 * functions get checked arguments and are called by one thread at a time (under comm->lock). */
struct ech_comm_backend {
    const char *name;
    const char *(*version)(void); /* of its library: ech_comm_version; NULL: it has none */
    /* Why its library cannot be opened here: ech_comm_lacks. NULL: it needs none before `open`. */
    const char *(*lacks)(void);
    const char *launcher; /* ech_comm_launcher */
    /* NULL: the host waits until the queue reaches a transfer, and moves it by `start`. */
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
    /* The rank that ends another one's transfer rings the other one's bell. */
    bool rings;
    /* messages with other ranks continue after a rank has died: ech_comm_spare */
    bool spares;
    /* Optional: like `close`, but without notifying other ranks, since some may be lost
     * (ech_comm_remake). */
    void (*drop)(ech_comm *comm);
    /* Optional: ends the job and this process with an exit code. Called after the other ranks had
     * time to print their errors. */
    void (*abort)(ech_comm *comm, int code);
    /* ech_comm_map_shared and ech_comm_unmap_shared. NULL: ranks share no memory. */
    ech_status (*map_shared)(ech_comm *comm, const ech_device *device, size_t bytes, void **out);
    void (*unmap_shared)(ech_comm *comm);
    /* NULL: the backend has no library. Starts its collective over ranks[size]. A channel's first
     * call, with *handle NULL, makes the library's communicator and waits for all members; with
     * n = 0 it does only that. The caller keeps *handle for the channel's next calls. */
    ech_status (*library_start)(ech_comm *comm, const int *ranks, int size, void **handle,
                                const ech_library_call *call, ech_request *request);
    void (*library_forget)(ech_comm *comm, void *handle); /* frees a handle of library_start */
};

/* The rows of comm.def; a backend that a build lacks has no object. */
#define X(name, ...) extern const ech_comm_backend ech_comm_##name;
#include "comm/comm.def"
#undef X

/* Not a row: the control of `nccl` without MPI (tcp_state.h). */
extern const ech_comm_backend ech_comm_tcp;

/* Handles a message with a rank that has died: marks the request done if the rank is spared;
 * otherwise returns false. */
bool ech_comm_lose(ech_comm *comm, ech_request *request);
/* True if the abort flag is raised or this endpoint's transfers are cancelled. */
bool ech_comm_is_over(const ech_comm *comm);

/* Allocates an endpoint and enters its rank on the board. */
ech_comm *ech_comm_make(const ech_comm_backend *backend, int rank, int size, int local_rank,
                        int local_size, double deadline_seconds, ech_board *board);

/* True if opened->data puts the request's data on a queue: its device is not immediate. */
bool ech_request_is_put(const ech_comm *comm, const ech_request *request);
/* ech_comm_put with tags of the caller or of a group; host memory is allowed. */
ech_status ech_transfers_put(ech_comm *comm, ech_request *requests, int n);

/* The host address of the request's data. */
void *ech_transfer_reach(const ech_request *request, const void *data);
/* Waits until the queue has reached this point: later work on it has not begun. Errors:
 * ECH_EABORTED; ECH_ECOMM past the deadline; a fault on the device. */
ech_status ech_comm_settle(ech_comm *comm, const ech_comm_queue *on);

/* Tests a request once and sets request->done; does nothing once transfers are cancelled. */
ech_status ech_transfer_test(ech_comm *comm, ech_request *request);

/* The context of a wait: the waiting thread, and for error messages the collective. */
typedef struct ech_wait_for {
    const char *group, *call; /* "data", "reduce"; both NULL: point to point */
    ech_board_thread thread;
} ech_wait_for;

/* Waits for all requests. Errors: ECH_EABORTED when the abort flag is raised, ECH_ECOMM past the
 * deadline; all transfers of this endpoint are cancelled then. */
ech_status ech_wait_all(ech_comm *comm, ech_request *requests, int n, const ech_wait_for *why);
/* Cancels all transfers of this endpoint for good. */
void ech_comm_withdraw(ech_comm *comm);

/* Checks that this process may have `needed` files open in all; raises the soft limit if necessary.
 * Libraries that reach it end the process instead of returning an error. `by`: the backend that
 * needs them. Errors: ECH_EUSAGE. */
ech_status ech_open_files_check(const char *by, int needed);

/* For tests of `mpi`: treats the process with rank r in MPI_COMM_WORLD as one of machine r mod
 * `machines`. Call it with the same number on all ranks, before ech_comm_open. */
void ech_mpi_pretend_machines(int machines);
/* For tests of `tcp` and `ucx`: divides the ranks among `machines` machines, in order. Call it on
 * all ranks, before ech_comm_open. */
void ech_tcp_pretend_machines(int machines);
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: what an endpoint is made of, and what a backend must do for comm.c. A
 * backend moves messages between two ranks and nothing else; waits, collectives and counters are
 * shared.
 *
 * To add a backend: a file with one `const ech_comm_backend ech_comm_NAME`, and a row in comm.def.
 */
#ifndef ECH_COMM_BACKEND_H
#define ECH_COMM_BACKEND_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/board.h"
#include "comm/comm.h"

/* Tags below this are the caller's; those from here on belong to groups. */
enum { ECH_COMM_TAGS = 1 << 20 };

struct ech_comm {
    const ech_comm_backend *backend;
    void *state;      /* the backend's */
    ech_board *board; /* of this machine; this rank's slot is local_rank */
    int rank, size;
    int local_rank, local_size; /* the ranks of a machine follow each other */
    double deadline;            /* seconds */
    bool crowded;               /* more ranks than cores here: never spin */
    atomic_int polled;          /* the peer of ech_comm_set_wait */

    /* Held by who is in the backend, and for what follows; never while waiting. */
    pthread_mutex_t lock;
    atomic_bool dead; /* transfers were withdrawn: under the lock, none is started or tested then */
    uint32_t *shared; /* [size]: groups made so far that this rank shares with rank r */
};

/* Messages between a pair of ranks with one tag arrive in the order of their starts. The functions
 * of a backend get checked arguments, and are called by one thread at a time (comm->lock). */
struct ech_comm_backend {
    const char *name;
    const char *(*launcher)(void); /* path of the program that starts ranks, or NULL */
    const char *(*version)(void);
    /* size 0: as many as were started. Fills endpoints[] with what ech_comm_make made. */
    ech_status (*open)(int size, double deadline_seconds, ech_comm **endpoints);
    void (*close)(ech_comm *comm); /* releases comm->state and the board */
    ech_status (*send_start)(ech_comm *comm, const void *data, ech_request *request);
    ech_status (*receive_start)(ech_comm *comm, void *data, ech_request *request);
    ech_status (*test)(ech_comm *comm, ech_request *request);
    /* When this returns, no transfer of this endpoint touches a buffer any more, or the process is
     * about to end. */
    void (*withdraw)(ech_comm *comm);
    /* The flag is up, for grace_ms milliseconds already. */
    void (*abort)(ech_comm *comm);
    int grace_ms;
    /* Optional, NULL: no reduction of its own. Starts x (n elements of dtype) = the sum over
     * `ranks`; *handle, NULL at first, is kept by the caller for the group's next call. */
    ech_status (*allreduce_start)(ech_comm *comm, const int *ranks, int size, void **handle,
                                  void *x, int64_t n, ech_dtype dtype, ech_request *request);
    void (*allreduce_forget)(ech_comm *comm, void *handle); /* with allreduce_start */
};

/* The rows of comm.def. */
#define X(name, help) extern const ech_comm_backend ech_comm_##name;
#include "comm/comm.def"
#undef X

/* Around every call of a backend's function and every use of `shared`. */
void ech_comm_lock(ech_comm *comm);
void ech_comm_unlock(ech_comm *comm);

/* Whether nothing goes on here: the flag is up, or the transfers are withdrawn. */
bool ech_comm_is_over(const ech_comm *comm);

/* Makes an endpoint and joins the board. */
ech_comm *ech_comm_make(const ech_comm_backend *backend, int rank, int size, int local_rank,
                        int local_size, double deadline_seconds, ech_board *board);

/* send_start and receive_start for any tag, the caller's or a group's. */
ech_status ech_transfer_start(ech_comm *comm, ech_request *request, const void *from, void *to);

/* Looks once whether a request is done; after a withdrawal it is left as it is. */
ech_status ech_transfer_test(ech_comm *comm, ech_request *request);

/* What a wait is for ("data", "reduce"), as an error says. */
typedef struct ech_wait_for {
    const char *group, *call;
    bool saves; /* it is one of those who write a checkpoint */
} ech_wait_for;

/* Waits for all requests. what NULL: point to point. Errors: ECH_EABORTED when the flag is up,
 * ECH_ECOMM past the deadline. In both cases everything that this endpoint had started is
 * withdrawn. */
ech_status ech_wait_all(ech_comm *comm, ech_request *requests, int n, const ech_wait_for *what);
void ech_comm_withdraw(ech_comm *comm);

/* For tests of `mpi`: sends complete only when received (MPI_Issend), and messages are cut into
 * parts of cut_bytes. The same on all ranks, before any message. */
void ech_mpi_tune(ech_comm *comm, bool synchronous, size_t cut_bytes);
/* For tests of `mpi`: the process with rank r in MPI_COMM_WORLD is taken to be on machine
 * r mod `machines`. The same on all ranks, before ech_comm_open. */
void ech_mpi_pretend_machines(int machines);

#endif

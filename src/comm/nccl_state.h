/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `nccl`: the communicators of an endpoint, and the watchdog thread that
 * watches them.
 */
#ifndef ECH_COMM_NCCL_STATE_H
#define ECH_COMM_NCCL_STATE_H

#include "comm/backend.h"
#include "comm/nccl_library.h"

/* A communicator of NCCL. */
typedef struct ech_communicator {
    struct ech_communicator *next;         /* next communicator of its queue */
    struct ech_communicator *next_watched; /* next communicator of its endpoint */
    ech_nccl_comm at;                      /* NULL: aborted, or could not be made */
    /* Held from a call's begin until it is done: when the library is asked for the result, it frees
     * what it knows of the call, so two threads must not ask at once. */
    pthread_mutex_t calling;
    char name[96];                         /* "NCCL's communicator of group data, lane 3" */
    int *ranks, size;                      /* [size] ascending */
    atomic_int users;                      /* calls by the host in progress, until they are done */
    atomic_uint calls;                     /* so far */
    bool failed;                           /* the host's last call */
    const ech_device *device;
    ech_event *ended; /* on the device, of the last call */
} ech_communicator;

/* comm->joined */
typedef struct ech_nccl_state {
    ech_comm *comm;
    const ech_nccl *nccl;
    pthread_t watcher;
    pthread_mutex_t lock; /* guards the following fields */
    pthread_cond_t changed;
    ech_communicator *watched;
    bool quit;
    atomic_int users; /* calls of the library by the host in progress, without the watchdog's */
    /* last progress: a call was put or ended, or the rank's position on the board changed */
    double since;
    uint64_t seen; /* the progress counters at that time */
    double looked; /* time of the last check */
} ech_nccl_state;

/* The error of a call, for a communicator's name; ECH_EABORTED once the job is over. */
ech_status ech_nccl_check(const ech_nccl_state *state, int result, const char *call,
                          const char *name);

/* Makes comm->joined and starts its watchdog thread, unless they exist. The thread aborts all
 * communicators once the job is over (ech_comm_is_over), in one group: an abort frees memory and so
 * waits for the device, on which kernels of the others may wait for other ranks. When all are
 * aborted, these kernels end, and so do threads that wait for the device, such as one whose launch
 * finds the stream full.
 * It ends the job itself when NCCL reports an error, or when a call is in progress, on the device
 * or host, and nothing progresses for longer than the deadline. Errors: ECH_EUNSUPPORTED, there is
 * no NCCL; ECH_EIO, no thread. */
ech_status ech_nccl_start(ech_comm *comm, const ech_device *device);
/* Ends the thread and frees comm->joined. All communicators must have been released or aborted. */
void ech_nccl_stop(ech_comm *comm);
void ech_nccl_watch(ech_nccl_state *state, ech_communicator *in);
/* Once the job is over, it waits until the thread has aborted the communicator. */
void ech_nccl_unwatch(ech_nccl_state *state, const ech_communicator *in);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `ucx`: the state of an endpoint; how a process joins and leaves; and what is known of the others.
 */
#ifndef ECH_COMM_UCX_STATE_H
#define ECH_COMM_UCX_STATE_H

#include "base/memory.h"
#include "comm/guard.h"
#include "comm/tcp_state.h"
#include "comm/ucx_library.h"

/* A message that is under way. */
typedef struct ech_ucx_message {
    struct ech_ucx_message *next, *before; /* of the peer's, or of the free ones (next alone) */
    void *request;                         /* UCX's; NULL: it is done */
    ucs_status_t status;                   /* once it is done */
    size_t length;                         /* of a receive: what has come */
    bool done, receives;
} ech_ucx_message;

typedef enum ech_ucx_loss {
    ECH_UCX_LIVES,
    ECH_UCX_SUSPECTED, /* its process has ended, or its connection: what else tells of deaths speaks first */
    ECH_UCX_LOST /* nothing is sent to it or received from it any more */
} ech_ucx_loss;

typedef struct ech_ucx_peer {
    ucp_worker_h
        worker;  /* of a rank near by: this pair's alone; of others: the one for all of them */
    ucp_ep_h ep; /* NULL: of this rank itself, or closed */
    bool near, failed; /* UCX has said that it is lost */
    int life;          /* a pidfd; -1: none */
    ech_ucx_message *open;
    ech_ucx_loss loss;
    double suspected_at, moved_at; /* moved_at: when a message was done, or the first was started */
    bool left;                     /* it has said that it ends */
} ech_ucx_peer;

typedef struct ech_ucx_state {
    const ech_ucx *ucx;
    ech_tcp_state links;     /* by which the ranks have met; each tells of its rank's end */
    ucp_context_h near, far; /* memory; everything else. NULL: no such ranks */
    ucp_worker_h far_worker; /* NULL: all ranks are near by */
    ech_ucx_peer *peer;      /* [size] */
    struct pollfd *polled;   /* [2 size]: of each rank its connection and its process */
    ech_ucx_message *free;   /* messages for further ones */
    uint64_t generation;     /* of the meeting */
    double looked_at;        /* seconds on the clock */
    double
        patience; /* a rank is lost once no message with it has been done for so long; 0: waits have a deadline (comm/wait.c) */
    ech_guard *guard;
} ech_ucx_state;

/* Meets the other processes (comm/tcp_state.h), tells them UCX's addresses, and makes the endpoint. Without RANK and WORLD_SIZE
 * in the environment this process is the only one. Errors: as ech_tcp_meet; ECH_EUSAGE, UCX's settings; ECH_EUNSUPPORTED.
 * Collective. */
ech_status ech_ucx_join(ech_ucx_state *state, int wanted, double deadline_seconds, ech_comm **out);
/* Waits until all ranks that are not lost have come here too, so that each has what was sent to it; releases everything of
 * the state. Collective; after an abort the process ends instead. */
void ech_ucx_leave(ech_ucx_state *state);
/* Releases everything at once. */
void ech_ucx_release(ech_ucx_state *state);

/* Lets UCX move what it can of the messages with a rank, and with the ranks that are not near by. */
void ech_ucx_progress(ech_ucx_state *state, const ech_ucx_peer *peer);
/* Looks for ranks that have ended without a word, if the last look was long enough ago. */
void ech_ucx_look(ech_ucx_state *state);
/* Ends all messages with a rank: afterwards none touches a buffer. */
void ech_ucx_lose(ech_ucx_state *state, int rank);

#endif

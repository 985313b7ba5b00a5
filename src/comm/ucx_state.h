/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `ucx`: the state of an endpoint; how a process joins and leaves; and the
 * state of its peers.
 */
#ifndef ECH_COMM_UCX_STATE_H
#define ECH_COMM_UCX_STATE_H

#include "base/memory.h"
#include "comm/guard.h"
#include "comm/tcp_state.h"
#include "comm/ucx_library.h"

typedef struct ech_ucx_peer ech_ucx_peer;

/* An offer: it replaces a large message to a rank on this machine, which then reads the data from
 * the sender's memory (ucx_read.c). */
typedef struct ech_ucx_offer {
    uint64_t at, bytes;
    /* while the sender waits, the memory at open_at holds `open`, the answer's tag */
    uint64_t open_at, open;
} ech_ucx_offer;

/* A message in flight. */
typedef struct ech_ucx_message {
    /* of the peer's list, or of the free list (next alone) */
    struct ech_ucx_message *next, *before;
    ech_ucx_peer *peer;
    void *request;       /* UCX's; NULL: it is done */
    ucs_status_t status; /* once it is done */
    size_t length;       /* for a receive: bytes received */
    bool done;           /* for UCX */
    bool receives;       /* as UCX knows it */
    bool alone;          /* an offer or an answer without a request */

    /* For a message whose data are read from the sender's memory: */
    _Atomic uint64_t open;                /* the sender's; 0: no rank may read it any more */
    bool reads;                           /* its offer has arrived, its data not completely */
    int error;                            /* why reading failed */
    char *to;                             /* for every receive: the destination */
    size_t room, at;                      /* capacity in bytes; bytes read so far */
    ech_ucx_offer offer;                  /* sent or received */
    struct ech_ucx_message *next_offered; /* the message whose offer came next */
} ech_ucx_message;

typedef enum ech_ucx_loss {
    ECH_UCX_LIVES,
    /* its process or its connection has ended; other reports of its death come first */
    ECH_UCX_SUSPECTED,
    ECH_UCX_LOST /* no more messages are exchanged with it */
} ech_ucx_loss;

struct ech_ucx_peer {
    /* for a rank on this machine: of this pair alone; for others: the common one */
    ucp_worker_h worker;
    ucp_ep_h ep; /* NULL: this rank itself, or closed */
    bool near, failed; /* UCX has reported that it is lost */
    int life;          /* a pidfd; -1: none */
    pid_t process;
    /* this rank may read the peer's memory; the peer may read this rank's */
    bool is_read, reads_ours;
    ech_ucx_message *open, *offered;
    int alone; /* number of `open` messages that are alone */
    ech_ucx_loss loss;
    double suspected_at, moved_at; /* moved_at: when a message was done, or the first was started */
    bool left;                     /* it has announced its end */
    bool died;                     /* on this machine, and its process has ended */
};

typedef struct ech_ucx_state {
    const ech_ucx *ucx;
    /* the connections over which the ranks have met; each shows its rank's end */
    ech_tcp_state links;
    /* for ranks on this machine, over memory; for all others. NULL: no such ranks */
    ucp_context_h near, far;
    ucp_worker_h far_worker; /* NULL: all ranks are on this machine */
    ech_ucx_peer *peer;      /* [size] */
    struct pollfd *polled;   /* [2 size]: connection and process of each rank */
    ech_ucx_message *free;   /* messages for reuse */
    uint64_t generation;     /* of the meeting */
    uint32_t offers;         /* so far */
    bool leaves;
    double looked_at; /* seconds of ech_clock_now */
    /* Seconds after which a rank is lost if no message with it has completed. 0: waits have a
     * deadline instead (comm/deadline.c). */
    double patience;
    ech_guard *guard;
} ech_ucx_state;

/* Meets the other processes (comm/tcp_state.h), exchanges UCX's addresses, and makes the endpoint.
 * Without RANK and WORLD_SIZE in the environment this process is the only one. Errors: as
 * ech_tcp_meet; ECH_EUSAGE, UCX's settings; ECH_EUNSUPPORTED. Collective. */
ech_status ech_ucx_join(ech_ucx_state *state, int wanted, double deadline_seconds, ech_comm **out);
/* Waits until all ranks that are not lost have called it, so that all messages have arrived;
 * releases the whole state. Collective; after an abort the process ends instead. */
void ech_ucx_leave(ech_ucx_state *state);
/* Ends all messages, without notifying other ranks, and releases everything. */
void ech_ucx_drop(ech_ucx_state *state);
/* Releases everything immediately; no message may be in flight. */
void ech_ucx_release(ech_ucx_state *state);

/* Lets UCX progress messages with a rank, and with the ranks of other machines. */
void ech_ucx_progress(ech_ucx_state *state, ech_ucx_peer *peer);
/* Looks for ranks that ended without notice, if the last look was long enough ago. */
void ech_ucx_look(ech_ucx_state *state);
/* Cancels receives without a message, which UCX would otherwise keep forever. */
void ech_ucx_cancel_receives(const ech_ucx_state *state, const ech_ucx_peer *peer);
/* Ends all messages with a rank: afterwards none touches a buffer. */
void ech_ucx_lose(ech_ucx_state *state, int rank);

/* ---- messages ---- */

typedef enum ech_ucx_kind {
    ECH_UCX_DATA,
    ECH_UCX_OFFER,
    ECH_UCX_ANSWER,
    ECH_UCX_KINDS
} ech_ucx_kind;

/* Allocates a message with a peer; releases it. */
ech_ucx_message *ech_ucx_take(ech_ucx_state *state, ech_ucx_peer *peer);
void ech_ucx_give(ech_ucx_state *state, ech_ucx_message *m);
uint64_t ech_ucx_tag(const ech_ucx_state *state, int sender, ech_ucx_kind kind, int tag);
/* Passes a message to UCX, to send or to receive (m->receives). any_kind: an offer in its place is
 * accepted, too. */
void ech_ucx_post(ech_ucx_state *state, ech_ucx_message *m, const void *data, size_t bytes,
                  uint64_t tag, bool any_kind);

/* ---- large messages, which receivers read from the sender's memory (ucx_read.c) ---- */

/* Tries to read the memory of a process on this machine, which has reported an address and its
 * content. *error: why it failed. */
bool ech_ucx_may_read(pid_t process, uint64_t at, uint64_t value, int *error);
/* Allows or forbids processes of the same user to read this one's memory, if the system requires it
 * (Yama). */
void ech_ucx_let_read(bool may);
/* True if a message of that size is one that the peer reads from memory. */
bool ech_ucx_is_large(const ech_ucx_peer *peer, size_t bytes);
/* Sends the offer of m->peer's message in its place. The message is done when the answer
 * arrives. */
void ech_ucx_offer_data(ech_ucx_state *state, ech_ucx_message *m, const void *data, size_t bytes,
                        uint64_t tag);
/* Called when UCX has received an offer. */
void ech_ucx_note_offer(ech_ucx_message *m);
/* Reads some of the offered data, and answers; completes messages that are alone. */
void ech_ucx_read(ech_ucx_state *state, ech_ucx_peer *peer);
/* Ends reads in both directions between this rank and the peer. */
void ech_ucx_end_reads(ech_ucx_peer *peer);

#endif

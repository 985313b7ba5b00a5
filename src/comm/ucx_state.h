/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `ucx`: the state of an endpoint; how a process joins and leaves; and what
 * is known of the others.
 */
#ifndef ECH_COMM_UCX_STATE_H
#define ECH_COMM_UCX_STATE_H

#include "base/memory.h"
#include "comm/guard.h"
#include "comm/tcp_state.h"
#include "comm/ucx_library.h"

typedef struct ech_ucx_peer ech_ucx_peer;

/* What goes in place of a large message to a rank near by, which reads that out of the sender's
 * memory (ucx_read.c). */
typedef struct ech_ucx_offer {
    uint64_t at, bytes;
    uint64_t open_at, open; /* there stands `open`, the answer's tag, as long as the sender waits */
} ech_ucx_offer;

/* A message that is under way. */
typedef struct ech_ucx_message {
    struct ech_ucx_message *next, *before; /* of the peer's, or of the free ones (next alone) */
    ech_ucx_peer *peer;
    void *request;       /* UCX's; NULL: it is done */
    ucs_status_t status; /* once it is done */
    size_t length;       /* of a receive: what has come */
    bool done;           /* for UCX */
    bool receives;       /* so far as UCX knows */
    bool alone;          /* an offer or an answer: no request is for it */

    /* Of a message that is read. */
    _Atomic uint64_t open;                /* the sender's; 0: nobody is to read it any more */
    bool reads;                           /* its offer has come, its data have not all */
    int error;                            /* why they will not */
    char *to;                             /* of every receive: where it goes */
    size_t room, at;                      /* and how many bytes; how many have been read */
    ech_ucx_offer offer;                  /* that is sent, or has come */
    struct ech_ucx_message *next_offered; /* whose offer came later */
} ech_ucx_message;

typedef enum ech_ucx_loss {
    ECH_UCX_LIVES,
    /* its process has ended, or its connection: what else tells of deaths speaks first */
    ECH_UCX_SUSPECTED,
    ECH_UCX_LOST /* nothing is sent to it or received from it any more */
} ech_ucx_loss;

struct ech_ucx_peer {
    ucp_worker_h
        worker;  /* of a rank near by: this pair's alone; of others: the one for all of them */
    ucp_ep_h ep; /* NULL: of this rank itself, or closed */
    bool near, failed; /* UCX has said that it is lost */
    int life;          /* a pidfd; -1: none */
    pid_t process;
    bool is_read, reads_ours; /* this rank may read its memory; it may read ours */
    ech_ucx_message *open, *offered;
    int alone; /* of the open ones */
    ech_ucx_loss loss;
    double suspected_at, moved_at; /* moved_at: when a message was done, or the first was started */
    bool left;                     /* it has said that it ends */
    bool died;                     /* near by, and its process has ended */
};

typedef struct ech_ucx_state {
    const ech_ucx *ucx;
    ech_tcp_state links;     /* by which the ranks have met; each tells of its rank's end */
    ucp_context_h near, far; /* memory; everything else. NULL: no such ranks */
    ucp_worker_h far_worker; /* NULL: all ranks are near by */
    ech_ucx_peer *peer;      /* [size] */
    struct pollfd *polled;   /* [2 size]: of each rank its connection and its process */
    ech_ucx_message *free;   /* messages for further ones */
    uint64_t generation;     /* of the meeting */
    uint32_t offers;         /* so far */
    bool leaves;
    double looked_at; /* seconds on the clock */
    /* A rank is lost once no message with it has been done for so long. 0: waits have a deadline
     * (comm/deadline.c). */
    double patience;
    ech_guard *guard;
} ech_ucx_state;

/* Meets the other processes (comm/tcp_state.h), tells them UCX's addresses, and makes the endpoint.
 * Without RANK and WORLD_SIZE in the environment this process is the only one. Errors: as
 * ech_tcp_meet; ECH_EUSAGE, UCX's settings; ECH_EUNSUPPORTED. Collective. */
ech_status ech_ucx_join(ech_ucx_state *state, int wanted, double deadline_seconds, ech_comm **out);
/* Waits until all ranks that are not lost have come here too, so that each has what was sent to it;
 * releases everything of the state. Collective; after an abort the process ends instead. */
void ech_ucx_leave(ech_ucx_state *state);
/* Ends all messages, without a word to others, and releases everything. */
void ech_ucx_drop(ech_ucx_state *state);
/* Releases everything at once: there are no messages under way. */
void ech_ucx_release(ech_ucx_state *state);

/* Lets UCX move what it can of the messages with a rank, and with the ranks that are not near
 * by. */
void ech_ucx_progress(ech_ucx_state *state, ech_ucx_peer *peer);
/* Looks for ranks that have ended without a word, if the last look was long enough ago. */
void ech_ucx_look(ech_ucx_state *state);
/* Cancels receives that nothing has reached: UCX would leave them for good. */
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

/* A new message with a peer, and its end. */
ech_ucx_message *ech_ucx_take(ech_ucx_state *state, ech_ucx_peer *peer);
void ech_ucx_give(ech_ucx_state *state, ech_ucx_message *m);
uint64_t ech_ucx_tag(const ech_ucx_state *state, int sender, ech_ucx_kind kind, int tag);
/* Gives UCX a message to send, or to receive (m->receives): of an offer in its place too, with
 * any_kind. */
void ech_ucx_post(ech_ucx_state *state, ech_ucx_message *m, const void *data, size_t bytes,
                  uint64_t tag, bool any_kind);

/* ---- large messages, which their receivers read (ucx_read.c) ---- */

/* Tries to read the memory of a process near by, which has told what stands where. *error: why
 * not. */
bool ech_ucx_may_read(pid_t process, uint64_t at, uint64_t value, int *error);
/* Lets processes of the same user read this one's memory, where the system asks for it (Yama); and
 * no longer. */
void ech_ucx_let_read(bool may);
/* Whether a message of so many bytes to that rank is one that it reads. */
bool ech_ucx_is_large(const ech_ucx_peer *peer, size_t bytes);
/* Sends the offer of m->peer's message in place of it. The message is done when the answer is
 * there. */
void ech_ucx_offer_data(ech_ucx_state *state, ech_ucx_message *m, const void *data, size_t bytes,
                        uint64_t tag);
/* Called as UCX has received an offer. */
void ech_ucx_note_offer(ech_ucx_message *m);
/* Reads some of what is offered, and answers; ends what was sent alone. */
void ech_ucx_read(ech_ucx_state *state, ech_ucx_peer *peer);
/* Nobody reads our messages to that rank any more, nor do we read its. */
void ech_ucx_end_reads(ech_ucx_peer *peer);

#endif

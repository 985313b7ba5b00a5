/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `tcp`: the state of an endpoint, and how a process meets the others.
 */
#ifndef ECH_COMM_TCP_STATE_H
#define ECH_COMM_TCP_STATE_H

#include "comm/backend.h"
#include "comm/guard.h"

/* What goes before a message's bytes. All machines have the same byte order. */
typedef struct ech_tcp_head {
    uint64_t bytes;
    int64_t tag;
} ech_tcp_head;

/* A message that is sent, or received, or that has come before its receive was started. */
typedef struct ech_tcp_message {
    struct ech_tcp_message *next; /* of the peer's list */
    ech_tcp_head head;
    char *data;
    size_t at; /* bytes of data so far; of what is sent with the head's */
    bool done, fits;
    struct ech_tcp_message *came; /* of a receive: it came before, in memory of its own */
} ech_tcp_message;

typedef struct ech_tcp_peer {
    int fd; /* -1: this rank itself */
    /* Oldest first: not sent yet; receives that nothing has come for; what has come without a receive. */
    ech_tcp_message *sends, *receives, *early;
    size_t early_bytes; /* that those take */
    ech_tcp_head head; /* of what comes now */
    size_t head_at;
    ech_tcp_message *coming; /* NULL: its head has not come yet */
} ech_tcp_peer;

typedef struct ech_tcp_state {
    int rank, size;
    ech_tcp_peer *peer; /* [size] */
    ech_guard *guard;
} ech_tcp_state;

/* Connects this process with all others, which the environment names: RANK, WORLD_SIZE, and MASTER_ADDR and MASTER_PORT, at
 * which rank 0 listens. Ranks of a machine must be consecutive. Maps their board and makes the endpoint. wanted: the
 * number of processes; 0: any. Errors: ECH_EUSAGE, the variables; ECH_ECOMM, a connection. Collective. */
ech_status ech_tcp_join(ech_tcp_state *state, int wanted, double deadline_seconds, ech_comm **out);
/* Closes all connections and frees the state. */
void ech_tcp_leave(ech_tcp_state *state);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `tcp`: the state of an endpoint, and how processes meet, those of `ucx` too.
 */
#ifndef ECH_COMM_TCP_STATE_H
#define ECH_COMM_TCP_STATE_H

#include <netinet/in.h>

#include "comm/backend.h"
#include "comm/guard.h"

/* Environment variable: the job's secret, which all of its ranks name when they meet, or none does. */
#define ECH_SECRET_VARIABLE "ECHELON_SECRET"

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
    ech_tcp_head head;  /* of what comes now */
    size_t head_at;
    ech_tcp_message *coming; /* NULL: its head has not come yet */
} ech_tcp_peer;

typedef struct ech_tcp_state {
    int rank, size;
    ech_tcp_peer *peer; /* [size] */
    ech_guard *guard;
} ech_tcp_state;

/* Ranks at most; generations are below the other: both go into tags of UCX beside 31 bits. */
enum { ECH_TCP_MOST_RANKS = 1 << 12, ECH_TCP_GENERATIONS = 1 << 21 };

/* What a process says of itself, and rank 0 of all. */
typedef struct ech_tcp_card {
    int32_t rank, size;  /* as it was told */
    int32_t port;        /* at which it listens */
    uint32_t generation; /* of the last meeting; what rank 0 says of itself to all: of this one */
    int32_t process;
    uint64_t space; /* of the process id (ech_life_space) */
    char machine[128];
    char address[INET6_ADDRSTRLEN]; /* as rank 0 sees it */
    char secret[66];
} ech_tcp_card;

/* What the processes know once they have met. */
typedef struct ech_tcp_meeting {
    ech_tcp_card *cards; /* [size], of all ranks; the caller's to free */
    int first, near;     /* the ranks of this machine: its first, and how many */
    ech_board *board;    /* theirs */
    bool outlives;       /* ech_comm_outlive */
} ech_tcp_meeting;

/* Connects this process with all others, which the environment names: RANK, WORLD_SIZE, and MASTER_ADDR and MASTER_PORT, at
 * which rank 0 listens. Ranks of a machine must be consecutive. Maps their board. wanted: the number of processes; 0: any.
 * The caller guards it: it waits without a deadline. state->peer is to be released, also after an error (ech_tcp_part).
 * Errors: ECH_EUSAGE, the variables, another secret; ECH_ECOMM, a connection. Collective. */
ech_status ech_tcp_meet(ech_tcp_state *state, int wanted, double deadline_seconds,
                        ech_tcp_meeting *out);
/* Of this process's last meeting; ECH_TCP_GENERATIONS: there was none. */
uint32_t ech_tcp_generation(void);
/* Closes all connections. */
void ech_tcp_part(ech_tcp_state *state);
/* Whole texts over a connection of a meeting. Errors: ECH_ECOMM, it has ended. */
ech_status ech_tcp_write(int fd, const void *data, size_t bytes);
ech_status ech_tcp_read(int fd, void *data, size_t bytes);

/* Listens at a port, 0: any; *port: which it is. Errors: ECH_ECOMM. */
ech_status ech_tcp_listen(int *port, int *out);
/* Tries again and again until the deadline: who listens there may come later. Errors: ECH_EUSAGE, no such address; ECH_ECOMM. */
ech_status ech_tcp_connect(const char *address, int port, double deadline, int *out);

/* Meets the others and makes the endpoint, guarded. Errors: as ech_tcp_meet. Collective. */
ech_status ech_tcp_join(ech_tcp_state *state, int wanted, double deadline_seconds, ech_comm **out);
/* Closes all connections and frees the state. */
void ech_tcp_leave(ech_tcp_state *state);
/* Ends this process. The others see that its connections end. */
void ech_tcp_abort(ech_comm *comm);

#endif

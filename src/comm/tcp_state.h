/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `tcp`: the state of an endpoint, and how processes meet, also for `ucx`.
 */
#ifndef ECH_COMM_TCP_STATE_H
#define ECH_COMM_TCP_STATE_H

#include <netinet/in.h>

#include "comm/backend.h"
#include "comm/guard.h"

/* Environment variable: the job's secret, which all or none of its ranks present when they meet. */
#define ECH_SECRET_VARIABLE "ECHELON_SECRET"

/* The hint of errors of connections that end before all ranks have met. */
#define ECH_TCP_ENDED                                                                              \
    "; look for that rank's own error, and check that all ranks have the same MASTER_ADDR, "       \
    "MASTER_PORT and " ECH_SECRET_VARIABLE

/* Header of a message. All machines have the same byte order. */
typedef struct ech_tcp_head {
    uint64_t bytes;
    int64_t tag;
} ech_tcp_head;

/* A message that is sent or received, or that arrived before its receive was started. */
typedef struct ech_tcp_message {
    struct ech_tcp_message *next; /* of the peer's list */
    ech_tcp_head head;
    char *data;
    size_t at; /* bytes of data so far; for sends, with the header's */
    bool done, fits;
    /* for a receive: the message that arrived earlier, in its own memory */
    struct ech_tcp_message *came;
} ech_tcp_message;

typedef struct ech_tcp_peer {
    int fd; /* -1: this rank itself */
    /* Oldest first: messages not sent yet; receives without a message; messages without a
     * receive. */
    ech_tcp_message *sends, *receives, *early;
    size_t early_bytes; /* bytes of `early` */
    ech_tcp_head head;  /* header of the incoming message */
    size_t head_at;
    ech_tcp_message *coming; /* NULL: its header has not arrived yet */
} ech_tcp_peer;

/* A listener and its connected processes (tcp_door.c). */
typedef struct ech_tcp_door ech_tcp_door;

typedef struct ech_tcp_state {
    const char *name; /* of the backend */
    int files;        /* files that the backend opens per other rank, with connections */
    int rank, size;
    ech_tcp_peer *peer; /* [size] */
    ech_tcp_door *door; /* NULL: none. Rank 0 keeps its own open after the meeting */
    ech_guard *guard;
} ech_tcp_state;

/* The most ranks, and the bound of generations: both are part of UCX's tags, next to 31 other
 * bits. */
enum { ECH_TCP_MOST_RANKS = 1 << 12, ECH_TCP_GENERATIONS = 1 << 21 };

/* What a process reports about itself, and rank 0 about all. */
typedef struct ech_tcp_card {
    int32_t rank, size;  /* as configured */
    int32_t port;        /* at which it listens */
    uint32_t generation; /* of the last meeting; in rank 0's card for all: of this one */
    int32_t process;
    uint64_t space; /* of the process id (ech_life_space) */
    char machine[128];
    char address[INET6_ADDRSTRLEN]; /* as rank 0 sees it */
    char secret[66];
} ech_tcp_card;

/* What the processes know once they have met. */
typedef struct ech_tcp_meeting {
    ech_tcp_card *cards; /* [size], of all ranks; the caller frees it */
    int first, near;     /* the ranks of this machine: first rank, and number */
    ech_board *board;    /* of this machine's ranks */
    bool outlives;       /* ech_comm_outlive */
} ech_tcp_meeting;

/* Connects this process with all others. The environment has RANK, WORLD_SIZE, and MASTER_ADDR and
 * MASTER_PORT, at which rank 0 listens. Ranks of a machine must be consecutive. Maps their board.
 * wanted: the number of processes; 0: any. deadline_seconds bounds connecting alone; it waits for
 * other processes to come without a deadline, so the caller must guard it. Release state->peer with
 * ech_tcp_close, also after an error. Errors: ECH_EUSAGE, the variables, another secret; ECH_ECOMM,
 * a connection. Collective. */
ech_status ech_tcp_meet(ech_tcp_state *state, int wanted, double deadline_seconds,
                        ech_tcp_meeting *out);
/* The generation of this process's last meeting; ECH_TCP_GENERATIONS: there was none. */
uint32_t ech_tcp_generation(void);
/* Closes all connections. */
void ech_tcp_close(ech_tcp_state *state);
/* Write and read `bytes` bytes over a connection of a meeting. Errors: ECH_ECOMM, it has ended. */
ech_status ech_tcp_write(int fd, const void *data, size_t bytes);
ech_status ech_tcp_read(int fd, void *data, size_t bytes);

/* ---- sockets ---- */

/* Listens at an address (NULL: all addresses of this machine) and a port (0: any); *port: the port.
 * Accepting does not wait. Errors: ECH_ECOMM. */
ech_status ech_tcp_listen(const struct sockaddr *at, int *port, int *out);
/* Retries until the deadline: the listener may start later, and its name may not be in DNS yet.
 * Errors: ECH_EUSAGE, no such address; ECH_ECOMM. */
ech_status ech_tcp_connect(const char *address, int port, double deadline, int *out);
/* Writes an address without its port; "" for an unknown family. An IPv4 address mapped into IPv6 is
 * written as IPv4. */
void ech_tcp_print(const struct sockaddr *at, char text[INET6_ADDRSTRLEN]);

/* ---- the door ---- */

ech_status ech_tcp_door_open(const struct sockaddr *at, int *port, ech_tcp_door **out);
void ech_tcp_door_close(ech_tcp_door *door); /* accepts NULL */
/* Opens rank 0's door: at MASTER_ADDR if all its addresses are this machine's loopback, so that no
 * other machine can reach it; otherwise at all addresses. address: may be NULL. */
ech_status ech_tcp_open_leader(const char *address, int *port, ech_tcp_door **out);
/* Opens another rank's door: at the loopback if its connection with rank 0 is there; otherwise at
 * all addresses. */
ech_status ech_tcp_open_follower(int to_leader, int *port, ech_tcp_door **out);

/* Answers to a process that reports its rank. */
typedef enum ech_tcp_verdict {
    ECH_TCP_WELCOME = 1,
    ECH_TCP_REFUSED, /* another secret */
    ECH_TCP_OTHER_SIZE,
    ECH_TCP_TAKEN, /* that rank is already connected */
    ECH_TCP_LATER  /* that rank was connected and has died: its job is about to end */
} ech_tcp_verdict;
/* True if a rank is connected and has not ended. */
bool ech_tcp_is_there(const ech_tcp_state *state, int rank);
/* Waits without a deadline for one of the ranks >= `least`, and connects it. A process with another
 * secret is refused, but does not end the job. Errors: ECH_EUSAGE, two processes have one rank or
 * disagree on the number of ranks; ECH_ECOMM. */
ech_status ech_tcp_door_await(ech_tcp_door *door, ech_tcp_state *state, const ech_tcp_card *own,
                              int least, ech_tcp_card *who);
/* Starts a thread that answers all later processes that the rank is taken, until the door is
 * closed. Close the door before the state's connections. */
void ech_tcp_door_keep(ech_tcp_door *door, const ech_tcp_state *state, const ech_tcp_card *own);

/* ---- joining and leaving ---- */

/* Meets the others and makes the endpoint, guarded. Errors: as ech_tcp_meet. Collective. */
ech_status ech_tcp_join(ech_tcp_state *state, int wanted, double deadline_seconds, ech_comm **out);
/* Closes all connections and frees the state. */
void ech_tcp_leave(ech_tcp_state *state);
/* Ends this process. The other ranks notice that its connections end. */
void ech_tcp_abort(ech_comm *comm, int code);

#endif

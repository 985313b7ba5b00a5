/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `tcp`: the state of an endpoint, and how processes meet, those of `ucx`
 * too.
 */
#ifndef ECH_COMM_TCP_STATE_H
#define ECH_COMM_TCP_STATE_H

#include <netinet/in.h>

#include "comm/backend.h"
#include "comm/guard.h"

/* Environment variable: the job's secret, which all of its ranks name when they meet, or none does.
 * */
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
    /* Oldest first: not sent yet; receives that nothing has come for; what has come without a
     * receive. */
    ech_tcp_message *sends, *receives, *early;
    size_t early_bytes; /* that those take */
    ech_tcp_head head;  /* of what comes now */
    size_t head_at;
    ech_tcp_message *coming; /* NULL: its head has not come yet */
} ech_tcp_peer;

/* A listener and who has connected there (tcp_door.c). */
typedef struct ech_tcp_door ech_tcp_door;

typedef struct ech_tcp_state {
    const char *name; /* of the backend */
    int files;        /* that the backend opens for each other rank, connections among them */
    int rank, size;
    ech_tcp_peer *peer; /* [size] */
    ech_tcp_door *door; /* NULL: none. Rank 0 keeps its own open after the meeting */
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

/* Connects this process with all others, which the environment names: RANK, WORLD_SIZE, and
 * MASTER_ADDR and MASTER_PORT, at which rank 0 listens. Ranks of a machine must be consecutive.
 * Maps their board. wanted: the number of processes; 0: any. The caller guards it: it waits without
 * a deadline. state->peer is to be released, also after an error (ech_tcp_part). Errors:
 * ECH_EUSAGE, the variables, another secret; ECH_ECOMM, a connection. Collective. */
ech_status ech_tcp_meet(ech_tcp_state *state, int wanted, double deadline_seconds,
                        ech_tcp_meeting *out);
/* Of this process's last meeting; ECH_TCP_GENERATIONS: there was none. */
uint32_t ech_tcp_generation(void);
/* Closes all connections. */
void ech_tcp_part(ech_tcp_state *state);
/* Whole texts over a connection of a meeting. Errors: ECH_ECOMM, it has ended. */
ech_status ech_tcp_write(int fd, const void *data, size_t bytes);
ech_status ech_tcp_read(int fd, void *data, size_t bytes);

/* ---- sockets ---- */

/* Listens at an address (NULL: at all of this machine) and a port, 0: any; *port: which it is.
 * Accepting does not wait. Errors: ECH_ECOMM. */
ech_status ech_tcp_listen(const struct sockaddr *at, int *port, int *out);
/* Tries again and again until the deadline: who listens there may come later. Errors: ECH_EUSAGE,
 * no such address; ECH_ECOMM. */
ech_status ech_tcp_connect(const char *address, int port, double deadline, int *out);
/* Writes an address without its port, "" of an unknown family. An IPv4 address is written as one
 * also where IPv6 maps it. */
void ech_tcp_print(const struct sockaddr *at, char text[INET6_ADDRSTRLEN]);

/* ---- the door ---- */

ech_status ech_tcp_door_open(const struct sockaddr *at, int *port, ech_tcp_door **out);
void ech_tcp_door_close(ech_tcp_door *door); /* accepts NULL */
/* Rank 0's, at MASTER_ADDR if that is this machine's loopback, so that no other machine reaches it;
 * otherwise at all addresses. address: may be NULL. */
ech_status ech_tcp_open_leader(const char *address, int *port, ech_tcp_door **out);
/* Another rank's: at the loopback if its connection with rank 0 is there; otherwise at all
 * addresses. */
ech_status ech_tcp_open_follower(int to_leader, int *port, ech_tcp_door **out);

/* Answers to a process that says which rank it is. */
typedef enum ech_tcp_verdict {
    ECH_TCP_WELCOME = 1,
    ECH_TCP_REFUSED, /* another secret */
    ECH_TCP_OTHER_SIZE,
    ECH_TCP_TAKEN, /* that rank is there */
    ECH_TCP_LATER  /* that rank was there and has died: its job is about to end */
} ech_tcp_verdict;
/* Whether a rank is connected and has not ended. */
bool ech_tcp_is_there(const ech_tcp_state *state, int rank);
/* Waits without a deadline for one of the ranks from `least` on, and connects it. Who comes with
 * another secret is told so, and is no reason to end the job. Errors: ECH_EUSAGE, two processes are
 * one rank or know another number of ranks; ECH_ECOMM. */
ech_status ech_tcp_door_await(ech_tcp_door *door, ech_tcp_state *state, const ech_tcp_card *own,
                              int least, ech_tcp_card *who);
/* Starts a thread that tells whoever comes from now on that the rank is taken. Until the door is
 * closed, before the state's connections are. */
void ech_tcp_door_keep(ech_tcp_door *door, const ech_tcp_state *state, const ech_tcp_card *own);

/* ---- joining and leaving ---- */

/* Meets the others and makes the endpoint, guarded. Errors: as ech_tcp_meet. Collective. */
ech_status ech_tcp_join(ech_tcp_state *state, int wanted, double deadline_seconds, ech_comm **out);
/* Closes all connections and frees the state. */
void ech_tcp_leave(ech_tcp_state *state);
/* Ends this process. The others see that its connections end. */
void ech_tcp_abort(ech_comm *comm, int code);

#endif

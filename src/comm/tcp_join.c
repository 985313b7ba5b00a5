/* SPDX-License-Identifier: Apache-2.0
 *
 * How the processes of `tcp` meet: all connect with rank 0, which tells them where the others listen; then each connects with
 * those below it. A guard ends the process where that takes longer than the deadline.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/tcp_state.h"

/* What a process says of itself, and rank 0 of all. */
typedef struct card {
    int32_t rank, port; /* at which it listens */
    char machine[128];
    char address[INET6_ADDRSTRLEN]; /* as rank 0 sees it */
    char padding[2];
} card;

enum { MOST_RANKS = 4096, AGAIN_MS = 50 };

/* ---- variables ---- */

static ech_status read_number(const char *name, int64_t least, int64_t most, int *out)
{
    const char *text = getenv(name);
    int64_t value;
    if (!text || !ech_text_to_int(text, &value) || value < least || value > most)
        ECH_FAIL(ECH_EUSAGE,
                 "%s is %s%s%s: ranks that torchrun starts need a number from %lld to %lld", name,
                 text ? "\"" : "not set", text ? text : "", text ? "\"" : "", (long long)least,
                 (long long)most);
    *out = (int)value;
    return ECH_OK;
}

/* ---- sockets ---- */

static ech_status fail_socket(const char *what)
{
    ECH_FAIL(ECH_ECOMM, "%s: %s", what, strerror(errno));
}

static ech_status write_all(int fd, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = send(fd, (const char *)data + at, bytes - at, MSG_NOSIGNAL);
        if (n <= 0 && errno != EINTR)
            return fail_socket("a rank has ended its connection at the start");
        if (n > 0) at += (size_t)n;
    }
    return ECH_OK;
}

static ech_status read_all(int fd, void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = recv(fd, (char *)data + at, bytes - at, 0);
        if (n == 0) ECH_FAIL(ECH_ECOMM, "a rank has ended its connection at the start");
        if (n < 0 && errno != EINTR) return fail_socket("reading from a rank at the start");
        if (n > 0) at += (size_t)n;
    }
    return ECH_OK;
}

/* port 0: any; *port: which it is. */
static ech_status listen_at(int *port, int *out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t n = sizeof at;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail_socket("making a socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, MOST_RANKS) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) != 0) {
        int error = errno;
        close(fd);
        ECH_FAIL(ECH_ECOMM,
                 "rank 0 cannot listen at MASTER_PORT %d: %s; torchrun itself may have it: set "
                 "MASTER_PORT to a free port for all ranks",
                 *port, strerror(error));
    }
    *port = ntohs(at.sin_port);
    *out = fd;
    return ECH_OK;
}

static int try_connect(const struct addrinfo *found)
{
    int fd = -1;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) == 0) continue;
        int error = errno;
        close(fd);
        errno = error;
        fd = -1;
    }
    return fd;
}

/* Again and again until the deadline: who listens there may come later. */
static ech_status connect_to(const char *address, int port, double deadline, int *out)
{
    char text[16];
    struct addrinfo *found = NULL, like = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    double ends_at = ech_clock_now() + deadline;
    snprintf(text, sizeof text, "%d", port);
    int error = getaddrinfo(address, text, &like, &found);
    if (error)
        ECH_FAIL(ECH_EUSAGE, "MASTER_ADDR %s has no address: %s", address, gai_strerror(error));
    while ((*out = try_connect(found)) < 0 && ech_clock_now() < ends_at)
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000L}, NULL);
    error = errno;
    freeaddrinfo(found);
    if (*out < 0)
        ECH_FAIL(ECH_ECOMM, "%s, port %d, does not answer: %s; see whether that rank is up",
                 address, port, strerror(error));
    return ECH_OK;
}

static ech_status accept_one(int listener, card *who, int *out)
{
    struct sockaddr_in from;
    socklen_t n = sizeof from;
    int fd;
    do fd = accept4(listener, (struct sockaddr *)&from, &n, SOCK_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return fail_socket("waiting for ranks");
    *out = fd;
    ECH_TRY(read_all(fd, who, sizeof *who));
    who->machine[sizeof who->machine - 1] = '\0';
    (void)inet_ntop(AF_INET, &from.sin_addr, who->address, sizeof who->address);
    return ECH_OK;
}

static ech_status accept_rank(ech_tcp_state *state, int listener, int least, card *who)
{
    int fd = -1;
    ech_status st = accept_one(listener, who, &fd);
    bool fits = st == ECH_OK && who->rank >= least && who->rank < state->size &&
                state->peer[who->rank].fd < 0;
    if (fits) {
        state->peer[who->rank].fd = fd;
        return ECH_OK;
    }
    if (fd >= 0) close(fd);
    ECH_TRY(st);
    ECH_FAIL(ECH_EUSAGE, "a process says that it is rank %d of %d, which is wrong or there already",
             who->rank, state->size);
}

/* ---- all connections ---- */

/* The name alone is not enough: containers may share one, and machines may be called alike. */
static void name_machine(card *own)
{
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (!fgets(boot, sizeof boot, file)) boot[0] = '\0';
        fclose(file);
    }
    (void)gethostname(own->machine, 60);
    own->machine[60] = '\0';
    strncat(own->machine, boot, sizeof own->machine - 62);
}

/* Rank 0 hears of all and tells all. */
static ech_status lead(ech_tcp_state *state, int listener, card *cards)
{
    for (int r = 1; r < state->size; r++) {
        card who;
        ECH_TRY(accept_rank(state, listener, 1, &who));
        cards[who.rank] = who;
    }
    for (int r = 1; r < state->size; r++)
        ECH_TRY(write_all(state->peer[r].fd, cards, (size_t)state->size * sizeof *cards));
    return ECH_OK;
}

static ech_status follow(ech_tcp_state *state, int listener, const card *own, double deadline,
                         card *cards)
{
    int port;
    const char *address = getenv("MASTER_ADDR");
    if (!address || !*address)
        ECH_FAIL(ECH_EUSAGE, "MASTER_ADDR is not set: it is where rank 0 is");
    ECH_TRY(read_number("MASTER_PORT", 1, 65535, &port));
    ECH_TRY(connect_to(address, port, deadline, &state->peer[0].fd));
    ECH_TRY(write_all(state->peer[0].fd, own, sizeof *own));
    ECH_TRY(read_all(state->peer[0].fd, cards, (size_t)state->size * sizeof *cards));
    for (int r = 0; r < state->size; r++) {
        cards[r].machine[sizeof cards[r].machine - 1] = '\0';
        cards[r].address[sizeof cards[r].address - 1] = '\0';
    }
    for (int r = 1; r < state->rank; r++) {
        ECH_TRY(connect_to(cards[r].address, cards[r].port, deadline, &state->peer[r].fd));
        ECH_TRY(write_all(state->peer[r].fd, own, sizeof *own));
    }
    for (int r = state->rank + 1; r < state->size; r++)
        ECH_TRY(accept_rank(state, listener, state->rank + 1, &(card){0}));
    return ECH_OK;
}

static ech_status connect_all(ech_tcp_state *state, double deadline, card *cards)
{
    int listener = -1, port = 0;
    card own = {.rank = state->rank};
    name_machine(&own);
    if (state->rank == 0) ECH_TRY(read_number("MASTER_PORT", 1, 65535, &port));
    ECH_TRY(listen_at(&port, &listener));
    own.port = port;
    cards[0] = own;
    ech_status st = state->rank == 0 ? lead(state, listener, cards)
                                     : follow(state, listener, &own, deadline, cards);
    close(listener);
    for (int r = 0; r < state->size && st == ECH_OK; r++)
        if (r != state->rank)
            (void)setsockopt(state->peer[r].fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return st;
}

/* ---- the machine's board ---- */

static ech_status find_machine(const ech_tcp_state *state, const card *cards, int *first, int *n)
{
    const char *own = cards[state->rank].machine;
    int runs = 0;
    *first = *n = 0;
    for (int r = 0; r < state->size; r++) {
        if (strcmp(cards[r].machine, own) != 0) continue;
        if (r == 0 || strcmp(cards[r - 1].machine, own) != 0) {
            *first = r;
            runs++;
        }
        ++*n;
    }
    if (runs > 1)
        ECH_FAIL(ECH_EUSAGE,
                 "the ranks of this machine are not consecutive; number them machine by machine");
    return ECH_OK;
}

/* The first rank of the machine takes one (path "": it cannot), the others open it; the first removes its name then. */
static ech_status share_board(const ech_tcp_state *state, int first, int n, ech_board **board)
{
    ech_transient file = {.hold = -1};
    ech_status st = ECH_OK;
    int32_t answer;
    bool leads = state->rank == first;
    if (leads) st = ech_board_file_take(n, &file, board);
    for (int r = first + 1; leads && r < first + n; r++)
        ECH_TRY(write_all(state->peer[r].fd, file.path, sizeof file.path));
    for (int r = first + 1; leads && r < first + n; r++) {
        ECH_TRY(read_all(state->peer[r].fd, &answer, sizeof answer));
        if (st == ECH_OK && answer != ECH_OK) st = ECH_EABORTED;
    }
    if (leads && *file.path) ech_transient_remove(&file);
    if (leads) return st;
    ECH_TRY(read_all(state->peer[first].fd, file.path, sizeof file.path));
    file.path[sizeof file.path - 1] = '\0';
    st = *file.path ? ech_board_file_open(file.path, n, board) : ECH_EABORTED;
    answer = st;
    ECH_TRY(write_all(state->peer[first].fd, &answer, sizeof answer));
    return st;
}

/* ---- joining ---- */

static ech_status join_all(ech_tcp_state *state, double deadline, ech_comm **out)
{
    int first, n;
    ECH_FREED card *cards = ech_calloc((size_t)state->size, sizeof *cards);
    ech_board *board = NULL;
    state->peer = ech_calloc((size_t)state->size, sizeof *state->peer);
    for (int r = 0; r < state->size; r++) state->peer[r].fd = -1;
    ECH_TRY(connect_all(state, deadline, cards));
    ECH_TRY(find_machine(state, cards, &first, &n));
    ech_status st = share_board(state, first, n, &board);
    if (st != ECH_OK) {
        ech_board_file_unmap(board);
        return st;
    }
    *out = ech_comm_make(&ech_comm_tcp, state->rank, state->size, state->rank - first, n, deadline,
                         board);
    (*out)->state = state;
    return ECH_OK;
}

ech_status ech_tcp_join(ech_tcp_state *state, int wanted, double deadline_seconds, ech_comm **out)
{
    ECH_TRY(read_number("WORLD_SIZE", 1, MOST_RANKS, &state->size));
    ECH_TRY(read_number("RANK", 0, state->size - 1, &state->rank));
    if (wanted && wanted != state->size)
        ECH_FAIL(ECH_EUSAGE, "%d ranks were asked for, but WORLD_SIZE is %d", wanted, state->size);
    ECH_TRY(ech_guard_start(deadline_seconds, &state->guard));
    ech_guard_enter(state->guard, "the meeting of the ranks over TCP");
    ech_status st = join_all(state, deadline_seconds, out);
    ech_guard_leave(state->guard);
    if (st == ECH_OK) ech_guard_watch(state->guard, (*out)->board, (*out)->local_rank);
    return st;
}

void ech_tcp_leave(ech_tcp_state *state)
{
    ech_guard_stop(state->guard);
    for (int r = 0; r < state->size && state->peer; r++) {
        for (ech_tcp_message *m = state->peer[r].early, *next; m; m = next) {
            next = m->next;
            free(m->data);
            free(m);
        }
        if (state->peer[r].fd >= 0) close(state->peer[r].fd);
    }
    free(state->peer);
    free(state);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * How the processes of `tcp` and `ucx` meet: all connect with rank 0, which tells them where the others listen; then each connects with
 * those below it. A guard ends the process where that takes longer than the deadline.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
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
#include "comm/life.h"
#include "comm/tcp_state.h"

enum { MOST_RANKS = ECH_TCP_MOST_RANKS };
/* Answers to a process that says who it is. */
enum { WELCOME = 1, REFUSED = 2, OTHER_SIZE = 3 };
/* For it to say all of it, seconds: until then nobody else is heard. */
enum { CARD_SECONDS = 5 };

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

/* ---- who comes ---- */

/* Whether it says who it is, all of it in that time. What connects, and says nothing or ends, is none of this job. */
static bool hear_card(int fd, ech_tcp_card *who)
{
    double end = ech_clock_now() + CARD_SECONDS;
    for (size_t at = 0; at < sizeof *who;) {
        int ms = ech_clock_ms_until(end);
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        if (ms == 0) return false;
        if (poll(&polled, 1, ms) <= 0) continue; /* a signal, or time is up */
        ssize_t n = recv(fd, (char *)who + at, sizeof *who - at, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (n > 0) at += (size_t)n;
    }
    who->machine[sizeof who->machine - 1] = '\0';
    who->secret[sizeof who->secret - 1] = '\0';
    return true;
}

static ech_status accept_one(int listener, ech_tcp_card *who, int *out)
{
    struct sockaddr_in from;
    char address[INET_ADDRSTRLEN] = "";
    for (;;) {
        socklen_t n = sizeof from;
        int fd = accept4(listener, (struct sockaddr *)&from, &n, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0) ECH_FAIL(ECH_ECOMM, "waiting for ranks: %s", strerror(errno));
        (void)inet_ntop(AF_INET, &from.sin_addr, address, sizeof address);
        *out = fd;
        if (hear_card(fd, who)) break;
        close(fd);
        *out = -1;
        ech_log_warn(
            "a process at %s has connected and does not say which rank it is; it is ignored",
            address);
    }
    strcpy(who->address, address);
    return ECH_OK;
}

/* In a time that does not depend on where they differ. */
static bool is_secret(const ech_tcp_card *own, const ech_tcp_card *who)
{
    unsigned differs = 0;
    for (size_t i = 0; i < sizeof own->secret; i++)
        differs |= (unsigned char)own->secret[i] ^ (unsigned char)who->secret[i];
    return differs == 0;
}

/* Who comes with another secret is told so, and is no reason to end this job. */
static ech_status accept_known(int listener, const ech_tcp_card *own, ech_tcp_card *who, int *out)
{
    for (;;) {
        ECH_TRY(accept_one(listener, who, out));
        char verdict = !is_secret(own, who)     ? REFUSED
                       : who->size != own->size ? OTHER_SIZE
                                                : WELCOME;
        bool is_there = send(*out, &verdict, 1, MSG_NOSIGNAL) == 1; /* it may have died */
        if (verdict == WELCOME && is_there) return ECH_OK;
        if (verdict == OTHER_SIZE)
            ECH_FAIL(ECH_EUSAGE, "rank %d was told that WORLD_SIZE is %d, but here it is %d",
                     who->rank, who->size, own->size);
        close(*out);
        *out = -1;
        if (verdict == REFUSED)
            ech_log_warn("a process at %s says that it is rank %d, but names another secret; it is "
                         "refused",
                         who->address, who->rank);
    }
}

/* Closes the connections of ranks that have died since, which may be started once more. Returns how many ranks from 1 on are awaited.
 * A rank has nothing to say before it is spoken to. */
static int drop_ended(const ech_tcp_state *state)
{
    int awaited = 0;
    for (int r = 1; r < state->size; r++) {
        char byte;
        ssize_t n =
            state->peer[r].fd < 0 ? -1 : recv(state->peer[r].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        bool is_there =
            state->peer[r].fd >= 0 && (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)));
        if (is_there) continue;
        if (state->peer[r].fd >= 0) close(state->peer[r].fd);
        state->peer[r].fd = -1;
        awaited++;
    }
    return awaited;
}

static ech_status accept_rank(ech_tcp_state *state, int listener, int least,
                              const ech_tcp_card *own, ech_tcp_card *who)
{
    int fd = -1;
    ech_status st = accept_known(listener, own, who, &fd);
    bool can_be = st == ECH_OK && who->rank >= least && who->rank < state->size;
    if (state->rank == 0) drop_ended(state);
    if (can_be && state->peer[who->rank].fd < 0) {
        state->peer[who->rank].fd = fd;
        return ECH_OK;
    }
    if (fd >= 0) close(fd);
    ECH_TRY(st);
    ECH_FAIL(
        ECH_EUSAGE,
        "a process says that it is rank %d of %d, which %s; RANK is from 0 on, another one for "
        "each process",
        who->rank, state->size, can_be ? "is there already" : "cannot be");
}

/* Says who this is to rank `to`, to which it has just connected. */
static ech_status greet(const ech_tcp_state *state, int to, const ech_tcp_card *own)
{
    char verdict;
    ECH_TRY(ech_tcp_write(state->peer[to].fd, own, sizeof *own));
    ECH_TRY(ech_tcp_read(state->peer[to].fd, &verdict, 1));
    if (verdict == WELCOME) return ECH_OK;
    if (verdict == OTHER_SIZE)
        ECH_FAIL(ECH_EUSAGE, "rank %d refuses this process: WORLD_SIZE is not %d there", to,
                 own->size);
    ECH_FAIL(ECH_EUSAGE,
             "rank %d refuses this process as rank %d: its secret is another one; "
             "set " ECH_SECRET_VARIABLE
             " alike for all ranks of a job, and MASTER_PORT apart from other "
             "jobs'",
             to, own->rank);
}

/* ---- all connections ---- */

/* ech_tcp_pretend_machines; 0: the real machines. */
static int pretended_machines;

void ech_tcp_pretend_machines(int machines)
{
    pretended_machines = machines;
}

static bool outlives_others;

void ech_comm_outlive(bool outlives)
{
    outlives_others = outlives;
}

/* The name alone is not enough: containers may share one, and machines may be called alike. */
static void name_machine(ech_tcp_card *own, int size)
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
    if (pretended_machines) snprintf(own->machine, 61, "%d", own->rank * pretended_machines / size);
}

/* Sixteenths of a second: two jobs at one place are further apart, and none is repeated after weeks. */
static uint32_t count_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ticks = (uint64_t)now.tv_sec * 16 + (uint64_t)now.tv_nsec / 62500000;
    return (uint32_t)(ticks % ECH_TCP_GENERATIONS);
}

/* One under which none of these has met before. */
static uint32_t make_generation(const ech_tcp_card *cards, int n)
{
    uint32_t next = count_time();
    for (int i = 0; i < n; i++) {
        if (cards[i].generation != next) continue;
        next = (next + 1) % ECH_TCP_GENERATIONS;
        i = -1;
    }
    return next;
}

static uint32_t last_generation = ECH_TCP_GENERATIONS;

uint32_t ech_tcp_generation(void)
{
    return last_generation;
}

static ech_status make_card(const ech_tcp_state *state, ech_tcp_card *out)
{
    const char *secret = getenv(ECH_SECRET_VARIABLE);
    *out = (ech_tcp_card){.rank = state->rank,
                          .size = state->size,
                          .generation = last_generation,
                          .process = (int32_t)getpid(),
                          .space = ech_life_space()};
    name_machine(out, state->size);
    if (secret && strlen(secret) >= sizeof out->secret)
        ECH_FAIL(ECH_EUSAGE, ECH_SECRET_VARIABLE " has %zu characters; at most %zu are read",
                 strlen(secret), sizeof out->secret - 1);
    if (secret) strcpy(out->secret, secret);
    return ECH_OK;
}

/* Rank 0 hears of all and tells all. */
static ech_status lead(ech_tcp_state *state, int listener, ech_tcp_card *cards)
{
    while (drop_ended(state) > 0) {
        ech_tcp_card who;
        ECH_TRY(accept_rank(state, listener, 1, &cards[0], &who));
        cards[who.rank] = who;
    }
    cards[0].generation = make_generation(cards, state->size);
    for (int r = 1; r < state->size; r++)
        ECH_TRY(ech_tcp_write(state->peer[r].fd, cards, (size_t)state->size * sizeof *cards));
    return ECH_OK;
}

static ech_status follow(ech_tcp_state *state, int listener, const ech_tcp_card *own,
                         double deadline, ech_tcp_card *cards)
{
    int port;
    const char *address = getenv("MASTER_ADDR");
    if (!address || !*address)
        ECH_FAIL(ECH_EUSAGE, "MASTER_ADDR is not set: it is where rank 0 is");
    ECH_TRY(read_number("MASTER_PORT", 1, 65535, &port));
    ECH_TRY(ech_tcp_connect(address, port, deadline, &state->peer[0].fd));
    ECH_TRY(greet(state, 0, own));
    ECH_TRY(ech_tcp_read(state->peer[0].fd, cards, (size_t)state->size * sizeof *cards));
    for (int r = 0; r < state->size; r++) {
        cards[r].machine[sizeof cards[r].machine - 1] = '\0';
        cards[r].address[sizeof cards[r].address - 1] = '\0';
    }
    for (int r = 1; r < state->rank; r++) {
        ECH_TRY(ech_tcp_connect(cards[r].address, cards[r].port, deadline, &state->peer[r].fd));
        ECH_TRY(greet(state, r, own));
    }
    for (int r = state->rank + 1; r < state->size; r++)
        ECH_TRY(accept_rank(state, listener, state->rank + 1, own, &(ech_tcp_card){0}));
    return ECH_OK;
}

static ech_status connect_all(ech_tcp_state *state, double deadline, ech_tcp_card *cards)
{
    int listener = -1, port = 0;
    ech_tcp_card own;
    ECH_TRY(make_card(state, &own));
    cards[state->rank] = own;
    if (state->size == 1) return ECH_OK;
    if (state->rank == 0) ECH_TRY(read_number("MASTER_PORT", 1, 65535, &port));
    ECH_TRY(ech_tcp_listen(&port, &listener));
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

static ech_status find_machine(const ech_tcp_state *state, const ech_tcp_card *cards, int *first,
                               int *n)
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
        ECH_TRY(ech_tcp_write(state->peer[r].fd, file.path, sizeof file.path));
    for (int r = first + 1; leads && r < first + n; r++) {
        ECH_TRY(ech_tcp_read(state->peer[r].fd, &answer, sizeof answer));
        if (st == ECH_OK && answer != ECH_OK) st = ECH_EABORTED;
    }
    if (leads && *file.path) ech_transient_remove(&file);
    if (leads) return st;
    ECH_TRY(ech_tcp_read(state->peer[first].fd, file.path, sizeof file.path));
    file.path[sizeof file.path - 1] = '\0';
    st = *file.path ? ech_board_file_open(file.path, n, board) : ECH_EABORTED;
    answer = st;
    ECH_TRY(ech_tcp_write(state->peer[first].fd, &answer, sizeof answer));
    return st;
}

/* ---- joining ---- */

ech_status ech_tcp_meet(ech_tcp_state *state, int wanted, double deadline_seconds,
                        ech_tcp_meeting *out)
{
    ECH_TRY(read_number("WORLD_SIZE", 1, MOST_RANKS, &state->size));
    ECH_TRY(read_number("RANK", 0, state->size - 1, &state->rank));
    if (wanted && wanted != state->size)
        ECH_FAIL(ECH_EUSAGE, "%d ranks were asked for, but WORLD_SIZE is %d", wanted, state->size);
    state->peer = ech_calloc((size_t)state->size, sizeof *state->peer);
    for (int r = 0; r < state->size; r++) state->peer[r].fd = -1;
    ECH_FREED ech_tcp_card *cards = ech_calloc((size_t)state->size, sizeof *cards);
    ech_tcp_meeting met = {.cards = cards, .outlives = outlives_others};
    ECH_TRY(connect_all(state, deadline_seconds, cards));
    last_generation = cards[0].generation;
    ECH_TRY(find_machine(state, cards, &met.first, &met.near));
    ech_status st = share_board(state, met.first, met.near, &met.board);
    if (st != ECH_OK) {
        ech_board_file_unmap(met.board);
        return st;
    }
    cards = NULL; /* the caller's now */
    *out = met;
    return ECH_OK;
}

ech_status ech_tcp_join(ech_tcp_state *state, int wanted, double deadline_seconds, ech_comm **out)
{
    ech_tcp_meeting met;
    ECH_TRY(ech_guard_start(deadline_seconds, &state->guard));
    ech_guard_enter(state->guard, "the meeting of the ranks over TCP");
    ech_status st = ech_tcp_meet(state, wanted, deadline_seconds, &met);
    ech_guard_leave(state->guard);
    if (st != ECH_OK) return st;
    free(met.cards);
    *out = ech_comm_make(&ech_comm_tcp, state->rank, state->size, state->rank - met.first, met.near,
                         deadline_seconds, met.board);
    (*out)->state = state;
    if (!met.outlives) ech_guard_watch(state->guard, met.board, (*out)->local_rank);
    return ECH_OK;
}

void ech_tcp_part(ech_tcp_state *state)
{
    for (int r = 0; r < state->size && state->peer; r++) {
        for (ech_tcp_message *m = state->peer[r].early, *next; m; m = next) {
            next = m->next;
            free(m->data);
            free(m);
        }
        if (state->peer[r].fd >= 0) close(state->peer[r].fd);
    }
    free(state->peer);
    state->peer = NULL;
}

void ech_tcp_leave(ech_tcp_state *state)
{
    ech_guard_stop(state->guard);
    ech_tcp_part(state);
    free(state);
}

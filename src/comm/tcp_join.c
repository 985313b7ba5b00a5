/* SPDX-License-Identifier: Apache-2.0
 *
 * The way in which the processes of `tcp` and `ucx` meet. All connect with rank 0, which tells them
 * where the others listen. Then each connects with the ranks below it. A guard ends the process if
 * that takes longer than the deadline.
 */
#include <errno.h>
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
#include "comm/life.h"
#include "comm/tcp_state.h"

enum { MOST_RANKS = ECH_TCP_MOST_RANKS };
enum { AGAIN_MS = 50 };
/* Files of a rank alone: data, logs, a checkpoint, libraries. */
enum { OWN_FILES = 20 };

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

/* ---- introductions ---- */

/* Returns the number of awaited ranks, from 1 on. */
static int count_awaited(const ech_tcp_state *state)
{
    int awaited = 0;
    for (int r = 1; r < state->size; r++) awaited += !ech_tcp_is_there(state, r);
    return awaited;
}

/* Introduces this process to a rank to which it has just connected. *out: the answer; LATER: the
 * connection has ended. */
static void greet(int fd, const ech_tcp_card *own, ech_tcp_verdict *out)
{
    char byte;
    ssize_t n = send(fd, own, sizeof *own, MSG_NOSIGNAL);
    while (n == sizeof *own && (n = recv(fd, &byte, 1, 0)) < 0 && errno == EINTR) n = sizeof *own;
    *out = n == 1 ? (ech_tcp_verdict)byte : ECH_TCP_LATER;
}

static ech_status check_verdict(ech_tcp_verdict verdict, int to, const ech_tcp_card *own)
{
    if (verdict == ECH_TCP_WELCOME) return ECH_OK;
    if (verdict == ECH_TCP_LATER)
        ECH_FAIL(ECH_ECOMM, "rank %d has ended its connection at the start" ECH_TCP_ENDED, to);
    if (verdict == ECH_TCP_OTHER_SIZE)
        ECH_FAIL(ECH_EUSAGE,
                 "rank %d refuses this process: WORLD_SIZE is not %d there; set the same "
                 "WORLD_SIZE for all ranks",
                 to, own->size);
    if (verdict == ECH_TCP_TAKEN)
        ECH_FAIL(ECH_EUSAGE,
                 "rank %d refuses this process: rank %d is there already; give each process its "
                 "own RANK, and each job its own MASTER_PORT",
                 to, own->rank);
    ECH_FAIL(ECH_EUSAGE,
             "rank %d refuses this process as rank %d: its secret differs; set " ECH_SECRET_VARIABLE
             " to the same value for all ranks of a job, and MASTER_PORT to a port of its own",
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

/* The name alone is not enough: containers may share one, and machines may have the same name. */
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

/* Sixteenths of a second: two jobs at one place start with a larger distance, and values do not
 * repeat for weeks. */
static uint32_t count_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ticks = (uint64_t)now.tv_sec * 16 + (uint64_t)now.tv_nsec / 62500000;
    return (uint32_t)(ticks % ECH_TCP_GENERATIONS);
}

/* A generation that none of these has used before. */
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
        ECH_FAIL(ECH_EUSAGE,
                 ECH_SECRET_VARIABLE
                 " has %zu characters; at most %zu are read; set a shorter one for all ranks",
                 strlen(secret), sizeof out->secret - 1);
    if (secret) strcpy(out->secret, secret);
    return ECH_OK;
}

static void close_door(ech_tcp_state *state)
{
    ech_tcp_door_close(state->door);
    state->door = NULL;
}

/* Rank 0 collects all cards and sends them to all. Afterwards it answers processes that come too
 * late. */
static ech_status lead(ech_tcp_state *state, ech_tcp_card *own, ech_tcp_card *cards)
{
    const char *address = getenv("MASTER_ADDR");
    ECH_TRY(read_number("MASTER_PORT", 1, 65535, &own->port));
    ECH_TRY(ech_tcp_open_leader(address, &own->port, &state->door));
    cards[0] = *own;
    while (count_awaited(state) > 0) {
        ech_tcp_card who;
        ECH_TRY(ech_tcp_door_await(state->door, state, own, 1, &who));
        cards[who.rank] = who;
    }
    cards[0].generation = make_generation(cards, state->size);
    for (int r = 1; r < state->size; r++)
        ECH_TRY(ech_tcp_write(state->peer[r].fd, cards, (size_t)state->size * sizeof *cards));
    if (outlives_others)
        close_door(state); /* a suspended rank may be replaced at the next meeting */
    else
        ech_tcp_door_keep(state->door, state, own);
    return ECH_OK;
}

/* Connects with rank 0, repeatedly until the deadline if that ends the connection, since it may
 * belong to a previous start. Opens a door for higher ranks, at the address of this rank's
 * connection. */
static ech_status find_leader(ech_tcp_state *state, ech_tcp_card *own, double deadline)
{
    int port;
    double ends_at = ech_clock_now() + deadline;
    ech_tcp_verdict verdict = ECH_TCP_LATER;
    const char *address = getenv("MASTER_ADDR");
    if (!address || !*address)
        ECH_FAIL(ECH_EUSAGE, "MASTER_ADDR is not set; set it to the address of rank 0's machine");
    ECH_TRY(read_number("MASTER_PORT", 1, 65535, &port));
    for (int *fd = &state->peer[0].fd; verdict == ECH_TCP_LATER && ech_clock_now() < ends_at;) {
        if (*fd >= 0) close(*fd);
        *fd = -1;
        ECH_TRY(ech_tcp_connect(address, port, ends_at - ech_clock_now(), fd));
        if (state->rank < state->size - 1 && !state->door)
            ECH_TRY(ech_tcp_open_follower(*fd, &own->port, &state->door));
        greet(*fd, own, &verdict);
        if (verdict == ECH_TCP_LATER)
            nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000L}, NULL);
    }
    return check_verdict(verdict, 0, own);
}

static ech_status follow(ech_tcp_state *state, ech_tcp_card *own, double deadline,
                         ech_tcp_card *cards)
{
    ech_tcp_verdict verdict;
    ECH_TRY(find_leader(state, own, deadline));
    ECH_TRY(ech_tcp_read(state->peer[0].fd, cards, (size_t)state->size * sizeof *cards));
    for (int r = 0; r < state->size; r++) {
        cards[r].machine[sizeof cards[r].machine - 1] = '\0';
        cards[r].address[sizeof cards[r].address - 1] = '\0';
    }
    for (int r = 1; r < state->rank; r++) {
        ECH_TRY(ech_tcp_connect(cards[r].address, cards[r].port, deadline, &state->peer[r].fd));
        greet(state->peer[r].fd, own, &verdict);
        ECH_TRY(check_verdict(verdict, r, own));
    }
    for (int r = state->rank + 1; r < state->size; r++)
        ECH_TRY(ech_tcp_door_await(state->door, state, own, state->rank + 1, &(ech_tcp_card){0}));
    close_door(state);
    return ECH_OK;
}

static ech_status connect_all(ech_tcp_state *state, double deadline, ech_tcp_card *cards)
{
    ech_tcp_card own;
    ECH_TRY(make_card(state, &own));
    cards[state->rank] = own;
    if (state->size == 1) return ECH_OK;
    ECH_TRY(state->rank == 0 ? lead(state, &own, cards) : follow(state, &own, deadline, cards));
    for (int r = 0; r < state->size; r++)
        if (r != state->rank)
            (void)setsockopt(state->peer[r].fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return ECH_OK;
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

/* Tells the machine's other ranks the board's path ("": there is none), and waits until they have
 * opened it. */
static ech_status announce_board(const ech_tcp_state *state, int first, int n,
                                 const ech_transient *file)
{
    ech_status st = ECH_OK;
    int32_t answer;
    for (int r = first + 1; r < first + n; r++)
        ECH_TRY(ech_tcp_write(state->peer[r].fd, file->path, sizeof file->path));
    for (int r = first + 1; r < first + n; r++) {
        ECH_TRY(ech_tcp_read(state->peer[r].fd, &answer, sizeof answer));
        if (st == ECH_OK && answer != ECH_OK) st = ECH_EABORTED;
    }
    return st;
}

/* The first rank of the machine makes the board, the others open it; then the first removes its
 * name. */
static ech_status share_board(const ech_tcp_state *state, int first, int n, ech_board **board)
{
    ech_transient file = {.hold = -1};
    int32_t answer;
    if (state->rank == first) {
        ech_status made = ech_board_file_take(n, &file, board);
        ech_status told = announce_board(state, first, n, &file);
        if (*file.path) ech_transient_remove(&file);
        return made != ECH_OK ? made : told;
    }
    ECH_TRY(ech_tcp_read(state->peer[first].fd, file.path, sizeof file.path));
    file.path[sizeof file.path - 1] = '\0';
    ech_status st = *file.path ? ech_board_file_open(file.path, n, board) : ECH_EABORTED;
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
        ECH_FAIL(ECH_EUSAGE, "--ranks %d, but WORLD_SIZE is %d; leave --ranks out", wanted,
                 state->size);
    ECH_TRY(ech_open_files_check(state->name, OWN_FILES + state->files * (state->size - 1)));
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

void ech_tcp_close(ech_tcp_state *state)
{
    close_door(state); /* its thread reads the connections */
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
    ech_tcp_close(state);
    free(state);
}

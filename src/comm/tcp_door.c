/* SPDX-License-Identifier: Apache-2.0
 *
 * The door of a meeting: a listener, and the callers, which have connected and not yet reported
 * their rank. All callers are read at the same time, so a silent one delays no other. Their number
 * is bounded: a new one replaces the oldest.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/tcp_state.h"

enum { MOST_CALLERS = 64, MOST_WARNINGS = 8 };
/* Seconds in which a caller must report its rank. */
static const double card_seconds = 5;

typedef struct caller {
    int fd;
    size_t heard; /* bytes of the card */
    double ends_at;
    ech_tcp_card card;
    char address[INET6_ADDRSTRLEN];
} caller;

struct ech_tcp_door {
    int listener;
    caller caller[MOST_CALLERS]; /* oldest first */
    int callers, warnings;

    /* ech_tcp_door_keep. */
    pthread_t thread;
    bool is_kept;
    int stop; /* an eventfd: readable once the thread must end; -1: there is none */
    const ech_tcp_state *state;
    ech_tcp_card own;
};

/* ---- callers ---- */

/* A stranger must not fill the log. */
static bool may_warn(ech_tcp_door *door)
{
    if (door->warnings == MOST_WARNINGS)
        ech_log_warn("further processes that do not belong to this job are ignored without a "
                     "message");
    return door->warnings++ < MOST_WARNINGS;
}

static void turn_away(ech_tcp_door *door, int i)
{
    caller *c = &door->caller[i];
    if (may_warn(door))
        ech_log_warn(
            "a process at %s has connected and does not say which rank it is; it is ignored",
            c->address);
    close(c->fd);
    memmove(c, c + 1, (size_t)(--door->callers - i) * sizeof *c);
}

static ech_status admit(ech_tcp_door *door)
{
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    int fd = accept4(door->listener, (struct sockaddr *)&from, &n, SOCK_CLOEXEC);
    bool is_full = fd < 0 && (errno == EMFILE || errno == ENFILE);
    if (is_full && door->callers > 0) {
        turn_away(door, 0);
        return ECH_OK;
    }
    if (fd < 0 && !is_full) return ECH_OK; /* it has gone already */
    if (fd < 0)
        ECH_FAIL(ECH_ECOMM, "waiting for ranks: %s; raise the limit on open files (ulimit -n)",
                 strerror(errno));
    if (door->callers == MOST_CALLERS) turn_away(door, 0);
    caller *c = &door->caller[door->callers++];
    *c = (caller){.fd = fd, .ends_at = ech_clock_now() + card_seconds};
    ech_tcp_print((struct sockaddr *)&from, c->address);
    return ECH_OK;
}

typedef enum hearing { HEARD, WAITS, ENDED } hearing;

static hearing hear(caller *c)
{
    while (c->heard < sizeof c->card) {
        ssize_t n =
            recv(c->fd, (char *)&c->card + c->heard, sizeof c->card - c->heard, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return ech_clock_now() < c->ends_at ? WAITS : ENDED;
        if (n <= 0) return ENDED;
        c->heard += (size_t)n;
    }
    c->card.machine[sizeof c->card.machine - 1] = '\0';
    c->card.secret[sizeof c->card.secret - 1] = '\0';
    strcpy(c->card.address, c->address);
    return HEARD;
}

/* Polls the listener, `stop` and all callers until one of them has data, or a caller's time is
 * up. */
static void wait_for_any(const ech_tcp_door *door, struct pollfd *polled)
{
    double ends_at = 0;
    polled[0] = (struct pollfd){.fd = door->listener, .events = POLLIN};
    polled[1] = (struct pollfd){.fd = door->stop, .events = POLLIN};
    for (int i = 0; i < door->callers; i++) {
        polled[2 + i] = (struct pollfd){.fd = door->caller[i].fd, .events = POLLIN};
        if (i == 0 || door->caller[i].ends_at < ends_at) ends_at = door->caller[i].ends_at;
    }
    int ms = door->callers ? ech_clock_ms_until(ends_at) : -1;
    if (poll(polled, 2 + (nfds_t)door->callers, ms) < 0) polled[0].revents = polled[1].revents = 0;
}

/* Returns the next process that reports its rank. *fd -1: the thread must end. */
static ech_status await_any(ech_tcp_door *door, ech_tcp_card *who, int *fd)
{
    for (;;) {
        struct pollfd polled[2 + MOST_CALLERS];
        wait_for_any(door, polled);
        *fd = -1;
        if (polled[1].revents) return ECH_OK;
        for (int i = 0; i < door->callers;) {
            caller *c = &door->caller[i];
            hearing what = hear(c);
            if (what == ENDED) turn_away(door, i);
            i += what == WAITS;
            if (what != HEARD) continue;
            *who = c->card;
            *fd = c->fd;
            memmove(c, c + 1, (size_t)(--door->callers - i) * sizeof *c);
            return ECH_OK;
        }
        if (polled[0].revents) ECH_TRY(admit(door));
    }
}

/* ---- admission ---- */

/* In a time that does not depend on where they differ. */
static bool is_secret(const ech_tcp_card *own, const ech_tcp_card *who)
{
    unsigned differs = 0;
    for (size_t i = 0; i < sizeof own->secret; i++)
        differs |= (unsigned char)own->secret[i] ^ (unsigned char)who->secret[i];
    return differs == 0;
}

bool ech_tcp_is_there(const ech_tcp_state *state, int rank)
{
    struct pollfd polled = {.fd = state->peer[rank].fd, .events = POLLRDHUP};
    return polled.fd >= 0 && poll(&polled, 1, 0) == 0;
}

static ech_tcp_verdict judge(const ech_tcp_state *state, const ech_tcp_card *own, int least,
                             const ech_tcp_card *who)
{
    if (!is_secret(own, who)) return ECH_TCP_REFUSED;
    if (who->size != own->size) return ECH_TCP_OTHER_SIZE;
    bool can_be = who->rank >= least && who->rank < own->size;
    return can_be && !ech_tcp_is_there(state, who->rank) ? ECH_TCP_WELCOME : ECH_TCP_TAKEN;
}

/* False: the process has ended. */
static bool tell(int fd, ech_tcp_verdict verdict)
{
    char byte = (char)verdict;
    return send(fd, &byte, 1, MSG_NOSIGNAL) == 1;
}

static void warn_of(ech_tcp_door *door, const ech_tcp_card *who, ech_tcp_verdict verdict)
{
    bool is_worth = verdict == ECH_TCP_REFUSED || verdict == ECH_TCP_TAKEN;
    if (is_worth && may_warn(door))
        ech_log_warn("a process at %s says that it is rank %d, but %s; it is refused", who->address,
                     who->rank,
                     verdict == ECH_TCP_TAKEN ? "that one is there already"
                                              : "names another secret");
}

ech_status ech_tcp_door_await(ech_tcp_door *door, ech_tcp_state *state, const ech_tcp_card *own,
                              int least, ech_tcp_card *who)
{
    for (;;) {
        int fd;
        ECH_TRY(await_any(door, who, &fd));
        ech_tcp_verdict verdict = judge(state, own, least, who);
        bool is_there = tell(fd, verdict);
        if (verdict == ECH_TCP_WELCOME && is_there) {
            if (state->peer[who->rank].fd >= 0) close(state->peer[who->rank].fd); /* it has died */
            state->peer[who->rank].fd = fd;
            return ECH_OK;
        }
        close(fd);
        if (verdict == ECH_TCP_OTHER_SIZE)
            ECH_FAIL(ECH_EUSAGE,
                     "rank %d was told that WORLD_SIZE is %d, but here it is %d; set the same "
                     "WORLD_SIZE for all ranks",
                     who->rank, who->size, own->size);
        if (verdict == ECH_TCP_TAKEN)
            ECH_FAIL(ECH_EUSAGE,
                     "a process says that it is rank %d of %d, which %s; give each process its own "
                     "RANK, from 0 on",
                     who->rank, own->size,
                     who->rank >= least && who->rank < own->size ? "is there already"
                                                                 : "cannot be");
        if (is_there) warn_of(door, who, verdict);
    }
}

/* ---- after the meeting ---- */

static void *keep(void *argument)
{
    ech_tcp_door *door = argument;
    int fd = -1;
    ech_tcp_card who;
    ech_log_set_rank(door->own.size > 1 ? door->own.rank : -1);
    while (await_any(door, &who, &fd) == ECH_OK && fd >= 0) {
        ech_tcp_verdict verdict = judge(door->state, &door->own, 0, &who);
        if (verdict == ECH_TCP_WELCOME) verdict = ECH_TCP_LATER;
        if (tell(fd, verdict)) warn_of(door, &who, verdict);
        close(fd);
    }
    return NULL;
}

void ech_tcp_door_keep(ech_tcp_door *door, const ech_tcp_state *state, const ech_tcp_card *own)
{
    door->state = state;
    door->own = *own;
    door->stop = eventfd(0, EFD_CLOEXEC);
    /* Without it the other processes get no answer, which is no reason to end the job. */
    door->is_kept = door->stop >= 0 && ech_thread_start(&door->thread, keep, door) == 0;
}

/* ---- opening and closing ---- */

ech_status ech_tcp_door_open(const struct sockaddr *at, int *port, ech_tcp_door **out)
{
    int listener;
    ECH_TRY(ech_tcp_listen(at, port, &listener));
    *out = ech_calloc(1, sizeof **out);
    (*out)->listener = listener;
    (*out)->stop = -1;
    return ECH_OK;
}

void ech_tcp_door_close(ech_tcp_door *door)
{
    if (!door) return;
    if (door->is_kept) {
        eventfd_write(door->stop, 1);
        pthread_join(door->thread, NULL);
    }
    for (int i = 0; i < door->callers; i++) close(door->caller[i].fd);
    if (door->stop >= 0) close(door->stop);
    close(door->listener);
    free(door);
}

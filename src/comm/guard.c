/* SPDX-License-Identifier: Apache-2.0
 *
 * The guard: its watchdog thread, and its reports of ranks that hang or have died.
 */
#include "comm/guard.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/board.h"
#include "comm/life.h"

/* ---- ranks that a call of MPI waits for, as far as this machine knows ---- */

enum { ENVIRONMENT_BYTES = 1 << 17 };

/* The rank that a process got from its launcher, for messages only; -1: unknown. */
static int label_of(pid_t process)
{
    int label = -1;
    ECH_FREED char *text = ech_calloc(ENVIRONMENT_BYTES, 1);
    size_t n = ech_life_read(process, "environ", text, ENVIRONMENT_BYTES);
    for (size_t at = 0; at < n && label < 0; at += strlen(text + at) + 1)
        if (sscanf(text + at, "PMIX_RANK=%d", &label) != 1 &&
            sscanf(text + at, "PMI_RANK=%d", &label) != 1)
            label = -1;
    return label;
}

/* Searches the processes that this one's launcher has started. */
static void find_stopped(ech_text *out)
{
    ech_process_ids started = {0};
    ech_life_children(getppid(), &started);
    for (size_t i = 0; i < started.n; i++) {
        ech_life_signs signs;
        ech_life_look(started.at[i], &signs);
        if (signs.state != 'T') continue;
        int rank = label_of(started.at[i]);
        if (out->n) ech_text_append(out, ", ");
        if (rank >= 0) ech_text_append(out, "rank %d ", rank);
        ech_text_append(out, "(process %d) is stopped", (int)started.at[i]);
    }
    free(started.at);
}

/* For a job at its end: the ranks that have not left the board. */
static void find_present(const ech_board *board, ech_text *out)
{
    for (int i = 0; i < board->slots; i++) {
        if (atomic_load(&board->slot[i].process) == 0) continue;
        int rank = atomic_load(&board->slot[i].rank);
        ech_text_append(out, "%srank %d: ", out->n ? "; " : "", rank);
        ech_board_describe(board, rank, out);
    }
}

/* "rank 2 (process 4711) is stopped", or another description. board NULL: there is none yet. */
static void absent_describe(const ech_board *board, ech_text *out)
{
    find_stopped(out);
    if (!out->n && board) find_present(board, out);
    if (!out->n)
        ech_text_append(out, "none of this machine is stopped; check whether all processes and "
                             "machines of the job are running");
}

/* Milliseconds between searches for ranks that have not joined the board yet, and until a death is
 * reported: a launcher that ends all ranks at the same time is not a death to explain. */
enum { COMING_MS = 100, SETTLE_MS = 100 };

/* Milliseconds between readings of the clock during a call: a longer gap is a suspension. */
enum { LOOK_MS = 500 };

/* Seconds that the process has to unwind after a death. */
static const double unwind_seconds = 5;

/* Calls of the library take seconds by themselves if many processes share few cores. */
static const double least_deadline = 20;

struct ech_guard {
    pthread_t thread;
    pthread_mutex_t lock; /* guards the following fields, as far as both threads use them */
    int wake;             /* an eventfd: something has changed */
    double deadline;      /* seconds */
    const char *call;     /* in progress; NULL: none */
    double call_ends_by;  /* on the clock */
    double looked_at;     /* when the clock was read last, if it runs */
    bool over;
    ech_board *board;
    int slot;

    /* Used only by the thread: */
    ech_watch watch; /* its descriptor: wake; no slots until there is a board */
    double ends_by;  /* the process must have ended by then; 0: no limit */
};

void ech_guard_enter(ech_guard *guard, const char *call)
{
    pthread_mutex_lock(&guard->lock);
    guard->call = call;
    guard->looked_at = ech_clock_now();
    guard->call_ends_by = guard->looked_at + guard->deadline;
    pthread_mutex_unlock(&guard->lock);
    eventfd_write(guard->wake, 1);
}

void ech_guard_leave(ech_guard *guard)
{
    pthread_mutex_lock(&guard->lock);
    guard->call = NULL;
    pthread_mutex_unlock(&guard->lock);
}

void ech_guard_watch(ech_guard *guard, ech_board *board, int slot)
{
    pthread_mutex_lock(&guard->lock);
    guard->slot = slot;
    guard->board = board;
    pthread_mutex_unlock(&guard->lock);
    eventfd_write(guard->wake, 1);
}

/* ---- calls that take too long ---- */

static void check_call(ech_guard *guard)
{
    pthread_mutex_lock(&guard->lock);
    const char *call = guard->call;
    double now = ech_clock_now();
    guard->call_ends_by += ech_clock_take_gap(&guard->looked_at, now); /* it was suspended itself */
    bool late = call && now > guard->call_ends_by;
    const ech_board *board = guard->board;
    pthread_mutex_unlock(&guard->lock);
    if (!late) return;
    ECH_FREED_TEXT absent = {0};
    absent_describe(board, &absent);
    ech_fail_at(__FILE__, __LINE__, ECH_ECOMM,
                "%s has waited %g s for the other ranks: %s; if they may take that long, raise "
                "parallel.deadline",
                call, guard->deadline, absent.at);
    _exit(1);
}

/* ---- deaths ---- */

static void report_death(ech_guard *guard, int slot)
{
    ech_board *board = guard->board;
    int rank = atomic_load(&board->slot[slot].rank),
        own = atomic_load(&board->slot[guard->slot].rank);
    guard->ends_by = ech_clock_now() + unwind_seconds;
    if (ech_board_claim_report(board)) {
        ECH_FREED_TEXT where = {0};
        ech_board_print(board);
        ech_board_describe(board, rank, &where);
        ech_fail_at(__FILE__, __LINE__, ECH_ECOMM,
                    "rank %d (process %d) has died, and the job with it: %s; the launcher reports "
                    "the cause; if nobody killed it, memory may have run out: see dmesg",
                    rank, (int)guard->watch.process[slot], where.at);
    }
    ech_board_abort(board, own);
}

static void note_end(ech_guard *guard, int slot)
{
    bool has_left = atomic_load(&guard->board->slot[slot].process) != guard->watch.process[slot];
    if (has_left || atomic_load(&guard->board->is_watched)) return;
    if (ech_board_lose(guard->board, slot)) return;
    poll(NULL, 0, SETTLE_MS);
    if (guard->ends_by <= 0 && !ech_board_aborted(guard->board)) report_death(guard, slot);
}

/* ---- the thread ---- */

/* The longest time to poll; -1: nothing is due. */
static int patience_ms(const ech_guard *guard, bool coming)
{
    return coming ? COMING_MS : guard->call || guard->ends_by > 0 ? LOOK_MS : -1;
}

static void begin_watch(ech_guard *guard, ech_board *board)
{
    ech_watch_end(&guard->watch);
    ech_watch_begin(&guard->watch, board, board ? atomic_load(&board->members) : 0);
    guard->watch.polled[0].fd = guard->wake;
}

static void *run(void *argument)
{
    ech_guard *guard = argument;
    ech_watch *watch = &guard->watch;
    for (;;) {
        pthread_mutex_lock(&guard->lock);
        bool over = guard->over;
        if (guard->board && !watch->board) begin_watch(guard, guard->board);
        bool coming = watch->board && !ech_watch_update(watch, NULL);
        int ms = patience_ms(guard, coming);
        pthread_mutex_unlock(&guard->lock);
        if (over) return NULL;
        eventfd_t count;
        ech_watch_poll(watch, ms);
        if (watch->polled[0].revents) eventfd_read(guard->wake, &count);
        for (int i = -1; (i = ech_watch_next_end(watch, i + 1)) >= 0;) note_end(guard, i);
        if (guard->ends_by > 0 && ech_clock_now() > guard->ends_by) _exit(1);
        check_call(guard);
    }
}

ech_status ech_guard_start(double deadline_seconds, ech_guard **out)
{
    ech_guard *guard = ech_calloc(1, sizeof *guard);
    guard->deadline = deadline_seconds > least_deadline ? deadline_seconds : least_deadline;
    guard->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    begin_watch(guard, NULL);
    pthread_mutex_init(&guard->lock, NULL);
    int error = guard->wake < 0 ? errno : ech_thread_start(&guard->thread, run, guard);
    if (error) {
        if (guard->wake >= 0) close(guard->wake);
        pthread_mutex_destroy(&guard->lock);
        ech_watch_end(&guard->watch);
        free(guard);
        ECH_FAIL(ECH_EIO, "cannot start another thread (%s): " ECH_NO_THREAD, strerror(error));
    }
    *out = guard;
    return ECH_OK;
}

void ech_guard_stop(ech_guard *guard)
{
    if (!guard) return;
    pthread_mutex_lock(&guard->lock);
    guard->over = true;
    pthread_mutex_unlock(&guard->lock);
    eventfd_write(guard->wake, 1);
    pthread_join(guard->thread, NULL);
    ech_watch_end(&guard->watch);
    close(guard->wake);
    pthread_mutex_destroy(&guard->lock);
    free(guard);
}

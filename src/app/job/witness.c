/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks' processes and their board, seen from above.
 */
#include "app/job/witness.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "app/command.h"
#include "app/job/descendant.h"
#include "app/job/newcomer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/board.h"
#include "comm/life.h"

/* Milliseconds between looks for ranks that have not come yet: one that dies between two of them is
 * not seen. */
enum { COMING_MS = 25, LOOK_MS = 1000, PATH_BYTES = 256, NOT_STARTED = 127 };

/* Seconds that a launcher has to end a job of which a rank has died, then for its own end, and that
 * ranks have to end after their launcher. Open MPI takes two, in all it must stay below ten. */
static const double patience = 5, abort_patience = 5, last_patience = 1.5, stragglers_patience = 2;

/* What has been done so far because patience ended. */
typedef enum phase { WATCHING, RANKS_KILLED, LAUNCHER_BLAMED } phase;

struct ech_witness {
    ech_board *board;
    char path[PATH_BYTES];
    int slots;
    int32_t *known; /* process of each slot, once seen; 0: none yet */
    int *life;      /* a descriptor that can be read when it has ended; -1: none */
    struct pollfd *polled;
    ech_newcomers newcomers; /* until all have come */
    phase phase;
    double ended_at; /* seconds on the clock: a rank's process ended that had not left; 0: none */
    int first_dead;  /* the rank that died first; -1: none, or several at once */
    bool has_dead;   /* before anybody raised the abort flag */
    pid_t early;     /* the process that died before any had come; 0: none, or several at once */
};

ech_status ech_witness_create(int ranks, ech_witness **out)
{
    ech_board *board = NULL;
    char path[PATH_BYTES];
    ECH_TRY(ech_board_file_create(ranks, path, sizeof path, &board));
    atomic_store(&board->is_watched, 1);
    ech_witness *witness = ech_calloc(1, sizeof *witness);
    size_t n = (size_t)ranks;
    *witness = (ech_witness){.board = board,
                             .slots = ranks,
                             .known = ech_calloc(n, sizeof *witness->known),
                             .life = ech_calloc(n, sizeof *witness->life),
                             .polled = ech_calloc(n + 1, sizeof *witness->polled),
                             .first_dead = -1};
    memcpy(witness->path, path, sizeof path);
    for (size_t i = 0; i < n; i++) witness->life[i] = -1;
    setenv(ECH_BOARD_VARIABLE, path, 1);
    *out = witness;
    return ECH_OK;
}

void ech_witness_follow(ech_witness *witness, pid_t launcher)
{
    witness->newcomers.launcher = launcher;
}

static void forget(ech_witness *witness, int slot)
{
    close(witness->life[slot]);
    witness->life[slot] = -1;
}

void ech_witness_destroy(ech_witness *witness)
{
    if (!witness) return;
    unsetenv(ECH_BOARD_VARIABLE);
    unlink(witness->path); /* the ranks have done so if they came that far */
    ech_board_file_unmap(witness->board);
    for (int i = 0; i < witness->slots; i++)
        if (witness->life[i] >= 0) forget(witness, i);
    ech_newcomers_forget(&witness->newcomers);
    free(witness->known);
    free(witness->life);
    free(witness->polled);
    free(witness);
}

/* ---- lives ---- */

static int32_t process_of(const ech_witness *witness, int slot)
{
    return atomic_load(&witness->board->slot[slot].process);
}

/* Descriptors of processes that have come to the board. True if all have. *deaths: of ranks that came
 * and died between two looks, without having left; *rank: the last of them. */
static bool meet(ech_witness *witness, int *deaths, int *rank)
{
    int known = 0, members = atomic_load(&witness->board->members);
    for (int i = 0; i < witness->slots; i++) {
        int32_t process = process_of(witness, i);
        if (!witness->known[i] && process > 0) {
            uint64_t space = atomic_load(&witness->board->slot[i].space);
            ech_life life = ech_life_open(process, space, &witness->life[i]);
            if (life != ECH_LIFE_LATER) witness->known[i] = process;
            if (life == ECH_LIFE_SHOWN && !ech_descendant_is_ours(process)) forget(witness, i);
            if (life == ECH_LIFE_OVER && process_of(witness, i) != 0) {
                *rank = atomic_load(&witness->board->slot[i].rank);
                ++*deaths;
            }
        }
        known += witness->known[i] != 0;
    }
    return members > 0 && known >= members;
}

/* Deaths that one look has shown. Together with a signal they may be the launcher's doing: nobody is
 * first then. */
static void note_deaths(ech_witness *witness, int dead, int rank, bool alone)
{
    bool aborted = ech_board_aborted(witness->board);
    if (dead == 0 || witness->ended_at > 0) return;
    witness->ended_at = ech_clock_now();
    witness->has_dead = !aborted;
    if (dead == 1 && !aborted && alone) witness->first_dead = rank;
}

/* What the last look has shown. */
static void note_ends(ech_witness *witness)
{
    int dead = 0, rank = -1;
    for (int i = 0; i < witness->slots; i++) {
        if (!witness->polled[i + 1].revents) continue;
        forget(witness, i);
        if (process_of(witness, i) == 0) continue; /* it had left */
        rank = atomic_load(&witness->board->slot[i].rank);
        dead++;
    }
    note_deaths(witness, dead, rank, !witness->polled[0].revents);
}

static int rank_of(const ech_witness *witness, pid_t process)
{
    for (int i = 0; i < witness->slots; i++)
        if (process_of(witness, i) == process) return atomic_load(&witness->board->slot[i].rank);
    return -1;
}

/* A launcher may lose its way when a rank dies that has just begun (Open MPI 4 does), and no board
 * shows that one. A rank that is done and ends before all were seen to come ends with the others. */
static void meet_newcomers(ech_witness *witness)
{
    int dead = 0, rank = -1;
    pid_t ended, last = 0;
    ech_newcomers_find(&witness->newcomers);
    while ((ended = ech_newcomers_next_end(&witness->newcomers)) != 0) {
        rank = rank_of(witness, last = ended);
        dead++;
    }
    if (dead == 1 && witness->ended_at <= 0) witness->early = last;
    note_deaths(witness, dead, rank, true);
}

/* A rank that gives up ends the job through the launcher, which may not answer. */
static void note_abort(ech_witness *witness)
{
    if (witness->ended_at <= 0 && ech_board_aborted(witness->board))
        witness->ended_at = ech_clock_now() + abort_patience;
}

/* Up to `ms` for fd (-1: none) or a death. */
static bool look(ech_witness *witness, int fd, int ms)
{
    witness->polled[0] = (struct pollfd){.fd = fd, .events = POLLIN};
    for (int i = 0; i < witness->slots; i++)
        witness->polled[i + 1] = (struct pollfd){.fd = witness->life[i], .events = POLLIN};
    return poll(witness->polled, (nfds_t)witness->slots + 1, ms) > 0;
}

static void kill_ranks(const ech_witness *witness)
{
    ech_newcomers_kill(&witness->newcomers);
    for (int i = 0; i < witness->slots; i++)
        if (witness->life[i] >= 0)
            syscall(SYS_pidfd_send_signal, witness->life[i], SIGKILL, NULL, 0);
}

/* Milliseconds until patience ends next; -1: it does not. */
static int left_ms(const ech_witness *witness)
{
    if (witness->ended_at <= 0 || witness->phase == LAUNCHER_BLAMED) return -1;
    double end = witness->ended_at + patience;
    if (witness->phase == RANKS_KILLED) end += last_patience;
    double left = end - ech_clock_now();
    return left > 0 ? (int)(left * 1000) + 1 : 0;
}

static void end_patience(ech_witness *witness)
{
    if (witness->phase == WATCHING) {
        ech_log_warn("a rank has ended, and the launcher has not ended the job: killing the ranks");
        kill_ranks(witness);
        witness->phase = RANKS_KILLED;
    } else {
        ech_log_warn("the launcher does not end: killing it");
        witness->phase = LAUNCHER_BLAMED;
    }
}

bool ech_witness_wait(ech_witness *witness, int fd)
{
    if (!witness) return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1) >= 0;
    for (;;) {
        int dead = 0, rank = -1;
        bool complete = meet(witness, &dead, &rank);
        if (dead)
            note_deaths(witness, dead, rank, poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0) == 0);
        if (complete)
            ech_newcomers_forget(&witness->newcomers);
        else
            meet_newcomers(witness);
        note_abort(witness);
        int ms = left_ms(witness);
        if (ms == 0) {
            end_patience(witness);
            if (witness->phase == LAUNCHER_BLAMED) return false;
            continue;
        }
        int most = complete ? LOOK_MS : COMING_MS;
        if (ms < 0 || ms > most) ms = most;
        if (!look(witness, fd, ms)) continue;
        note_ends(witness);
        if (witness->polled[0].revents) return true;
    }
}

static bool are_alive(ech_witness *witness)
{
    bool alive = false;
    for (int i = 0; i < witness->slots; i++) {
        if (witness->life[i] >= 0 && witness->polled[i + 1].revents) forget(witness, i);
        alive |= witness->life[i] >= 0;
    }
    return alive;
}

/* Ranks end with their launcher, those of a launcher that was killed a moment later. */
static void see_off(ech_witness *witness)
{
    double end = ech_clock_now() + stragglers_patience, left = stragglers_patience;
    int dead = 0, rank = -1;
    meet(witness, &dead, &rank); /* what died with the launcher needs no further note */
    for (look(witness, -1, 0); are_alive(witness) && left > 0; left = end - ech_clock_now())
        look(witness, -1, (int)(left * 1000) + 1);
    kill_ranks(witness);
}

/* ---- the report ---- */

static int count_present(const ech_witness *witness)
{
    int present = 0;
    for (int i = 0; i < witness->slots; i++) present += process_of(witness, i) != 0;
    return present;
}

int ech_witness_progress(const ech_witness *witness)
{
    return atomic_load(&witness->board->progress);
}

/* Whether nothing is to be added to what the launcher or the ranks have said. */
static bool is_told(const ech_witness *witness, const ech_ending *ending)
{
    bool came = atomic_load(&witness->board->members) > 0;
    if (ending->stops > 1 || ending->code == ECH_EXIT_DONE || ending->code == ECH_EXIT_USAGE ||
        ending->code == ECH_EXIT_STOPPED)
        return true;
    if (!came) return ending->code == ECH_EXIT_FAILED || ending->code == NOT_STARTED;
    if (count_present(witness) == 0) return true; /* all have come to their end */
    return ech_board_aborted(witness->board) && !witness->has_dead;
}

/* Who the others wait for; -1 if nobody waits. */
static int awaited(const ech_witness *witness)
{
    for (int i = 0; i < witness->slots; i++) {
        int peer = atomic_load(&witness->board->slot[i].waits_for);
        if (peer >= 0) return ech_board_culprit(witness->board, peer);
    }
    return -1;
}

static void describe_end(const ech_ending *ending, ech_text *out)
{
    int signal = ending->code - 128;
    const char *who = ending->is_launcher ? "the launcher" : "its process";
    if (ending->signal) {
        ech_text_append(out, "%s was ended by signal %d (%s)", who, ending->signal,
                        strsignal(ending->signal));
        if (ending->is_launcher) return;
    } else {
        ech_text_append(out, "%s exit code is %d", ending->is_launcher ? "the launcher's" : "its",
                        ending->code);
    }
    if (ending->is_launcher && signal > 0 && signal < NSIG)
        ech_text_append(out, ", which means signal %d (%s)", signal, strsignal(signal));
    if (signal == SIGKILL)
        ech_text_append(out, "; if nobody sent it, memory may have run out: see dmesg");
}

static void name_culprit(const ech_witness *witness, const ech_ending *ending, ech_text *out)
{
    int rank = witness->first_dead;
    if (witness->early && rank < 0) {
        ech_text_append(out, "a rank (process %d) has died as it began, and the job with it",
                        (int)witness->early);
        return;
    }
    if (atomic_load(&witness->board->members) == 0) {
        ech_text_append(out, "the job has died before a rank of this machine began");
        return;
    }
    bool ours = witness->phase == LAUNCHER_BLAMED; /* who ended the launcher */
    if (rank < 0 && (ours || !ending->signal)) rank = awaited(witness);
    if (rank < 0)
        ech_text_append(out, "the job has died");
    else if (rank == witness->first_dead)
        ech_text_append(out, "rank %d has died, and the job with it: ", rank);
    else
        ech_text_append(out, "the job has died; likely for rank %d: ", rank);
    if (rank >= 0) ech_board_describe(witness->board, rank, out);
}

ech_status ech_witness_report(ech_witness *witness, const ech_ending *ending)
{
    see_off(witness);
    if (is_told(witness, ending)) return ECH_OK;
    if (ech_board_claim_report(witness->board)) ech_board_print(witness->board);
    ech_text who = {0}, how = {0};
    name_culprit(witness, ending, &who);
    describe_end(ending, &how);
    ech_status status = ech_fail_at(__FILE__, __LINE__, ECH_ECOMM, "%s (%s)", who.at, how.at);
    ech_text_free(&who);
    ech_text_free(&how);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks' processes and their board, watched from above until their end.
 */
#include "app/job/witness_state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/job/rank_process.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/life.h"

/* Milliseconds between looks for ranks that have not come yet: one that dies between two of them is
 * not seen. */
enum { COMING_MS = 25 };

/* Seconds that a launcher has to end a job of which a rank has died, then for its own end, and that
 * ranks have to end after their launcher. Open MPI takes two, in all it must stay below ten. */
static const double patience = 5, abort_patience = 5, last_patience = 1.5, stragglers_patience = 2;
/* Then, until it is given up: frozen processes are not even killed. */
static const double kill_patience = 5;

ech_status ech_witness_create(int ranks, double deadline, ech_witness **out)
{
    ech_board *board = NULL;
    char path[ECH_WITNESS_PATH];
    ech_job_folder *folder = NULL;
    int hold = -1;
    ECH_TRY(ech_board_file_create(ranks, path, sizeof path, &board, &hold));
    ech_status status = ech_job_folder_create(&folder);
    if (status != ECH_OK) {
        unlink(path);
        close(hold);
        ech_board_file_unmap(board);
        return status;
    }
    atomic_store(&board->is_watched, 1);
    ech_witness *witness = ech_calloc(1, sizeof *witness);
    size_t n = (size_t)ranks;
    *witness = (ech_witness){.board = board,
                             .hold = hold,
                             .folder = folder,
                             .slots = ranks,
                             .stall = {.deadline = deadline},
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

void ech_witness_follow(ech_witness *witness, pid_t child, bool is_launcher)
{
    witness->child = child;
    if (is_launcher) witness->processes.launcher = child;
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
    close(witness->hold);
    ech_job_folder_destroy(witness->folder);
    ech_board_file_unmap(witness->board);
    for (int i = 0; i < witness->slots; i++)
        if (witness->life[i] >= 0) forget(witness, i);
    ech_rank_processes_clear(&witness->processes);
    ech_text_free(&witness->how);
    free(witness->known);
    free(witness->life);
    free(witness->polled);
    free(witness);
}

/* ---- lives ---- */

pid_t ech_witness_process(const ech_witness *witness, int slot)
{
    pid_t known = witness->known[slot];
    return witness->life[slot] >= 0 || ech_witness_present(witness, slot) == known ? known : 0;
}

/* Descriptors of processes that have come to the board. True if all have. *deaths: of ranks that came
 * and died between two looks, without having left; *rank: the last of them. */
static bool meet(ech_witness *witness, int *deaths, int *rank)
{
    int known = 0, members = atomic_load(&witness->board->members);
    for (int i = 0; i < witness->slots; i++) {
        int32_t process = ech_witness_present(witness, i);
        if (!witness->known[i] && process > 0) {
            uint64_t space = atomic_load(&witness->board->slot[i].space);
            ech_life life = ech_life_open(process, space, &witness->life[i]);
            if (life != ECH_LIFE_LATER) witness->known[i] = process;
            if (life == ECH_LIFE_SHOWN && !ech_rank_process_is_ours(process)) forget(witness, i);
            if (life == ECH_LIFE_OVER && ech_witness_present(witness, i) != 0) {
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

/* Before anybody raised the flag, and as long as the launcher has not looked at it. */
static void note_signal(ech_witness *witness, pid_t process)
{
    ech_life_signs signs;
    if (witness->ended_at > 0 || witness->killed_by) return;
    ech_life_look(process, &signs);
    if (signs.state == 'Z' && WIFSIGNALED(signs.end)) witness->killed_by = WTERMSIG(signs.end);
}

/* What the last look has shown. */
static void note_ends(ech_witness *witness)
{
    int dead = 0, rank = -1;
    for (int i = 0; i < witness->slots; i++) {
        if (!witness->polled[i + 1].revents) continue;
        forget(witness, i);
        if (ech_witness_present(witness, i) == 0) continue; /* it had left */
        rank = atomic_load(&witness->board->slot[i].rank);
        note_signal(witness, witness->known[i]);
        dead++;
    }
    note_deaths(witness, dead, rank, !witness->polled[0].revents);
}

static int rank_of(const ech_witness *witness, pid_t process)
{
    for (int i = 0; i < witness->slots; i++)
        if (ech_witness_present(witness, i) == process)
            return atomic_load(&witness->board->slot[i].rank);
    return -1;
}

/* A launcher may lose its way when a rank dies that has just begun (Open MPI 4 does), and no board
 * shows that one. A rank that is done and ends before all were seen to come ends with the others. */
static void watch_processes(ech_witness *witness)
{
    int dead = 0, rank = -1;
    pid_t ended, last = 0;
    ech_rank_processes_update(&witness->processes);
    witness->any |= witness->processes.seen.n > 0;
    while ((ended = ech_rank_processs_next_end(&witness->processes)) != 0) {
        rank = rank_of(witness, last = ended);
        note_signal(witness, ended);
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
    ech_rank_processs_kill(&witness->processes);
    for (int i = 0; i < witness->slots; i++)
        if (witness->life[i] >= 0)
            syscall(SYS_pidfd_send_signal, witness->life[i], SIGKILL, NULL, 0);
}

/* Milliseconds until patience ends next; -1: it does not. */
static int left_ms(const ech_witness *witness)
{
    if (witness->ended_at <= 0 || witness->phase == ECH_CHILD_LOST) return -1;
    double end = witness->ended_at + patience;
    if (witness->phase >= ECH_RANKS_KILLED) end += last_patience;
    if (witness->phase >= ECH_CHILD_BLAMED) end += kill_patience;
    double left = end - ech_clock_now();
    return left > 0 ? (int)(left * 1000) + 1 : 0;
}

/* True when the child is to be killed, or given up. */
static bool end_patience(ech_witness *witness)
{
    if (witness->phase == ECH_WATCHING) {
        if (!witness->halted)
            ech_log_warn("a rank has ended, or the job is to end, and the launcher has not ended "
                         "it: killing the ranks");
        kill_ranks(witness);
        witness->phase = ECH_RANKS_KILLED;
    } else if (witness->phase == ECH_RANKS_KILLED) {
        if (!witness->halted) ech_log_warn("the launcher does not end: killing it");
        witness->phase = ECH_CHILD_BLAMED;
    } else {
        ech_log_warn(
            "process %d does not end, though it was killed: its control group is frozen, or "
            "a call of the system does not come back",
            (int)witness->child);
        witness->phase = ECH_CHILD_LOST;
    }
    return witness->phase >= ECH_CHILD_BLAMED;
}

/* Ranks that stand still end without a launcher that does, mostly, too. */
static void note_stall(ech_witness *witness)
{
    if (witness->phase != ECH_WATCHING || !ech_witness_check_stall(witness)) return;
    witness->ended_at = ech_clock_now() - patience;
}

void ech_witness_hurry(ech_witness *witness)
{
    if (witness && witness->ended_at <= 0) witness->ended_at = ech_clock_now();
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
            ech_rank_processes_clear(&witness->processes);
        else
            watch_processes(witness);
        note_abort(witness);
        note_stall(witness);
        int ms = left_ms(witness);
        if (ms == 0) {
            if (end_patience(witness)) return false;
            continue;
        }
        int most = complete ? (int)(ech_stall_interval(&witness->stall) * 1000) + 1 : COMING_MS;
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
void ech_witness_see_off(ech_witness *witness)
{
    double end = ech_clock_now() + stragglers_patience, left = stragglers_patience;
    int dead = 0, rank = -1;
    meet(witness, &dead, &rank); /* what died with the launcher needs no further note */
    for (look(witness, -1, 0); are_alive(witness) && left > 0; left = end - ech_clock_now())
        look(witness, -1, (int)(left * 1000) + 1);
    if (!are_alive(witness)) return;
    kill_ranks(witness);
    end = ech_clock_now() + kill_patience;
    for (left = kill_patience; are_alive(witness) && left > 0; left = end - ech_clock_now())
        look(witness, -1, (int)(left * 1000) + 1);
}

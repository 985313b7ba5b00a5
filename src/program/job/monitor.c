/* SPDX-License-Identifier: Apache-2.0
 *
 * Watching rank processes and their board until their end, and ending those that hang.
 */
#include "program/job/monitor_state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/* Milliseconds between searches for ranks that have not joined yet: one that starts and dies
 * between two is not seen. */
enum { COMING_MS = 25 };

/* Seconds for a launcher to end a job with a dead rank, then to end itself, and for ranks to end
 * after their launcher. Open MPI needs two. The sum must stay below ten. */
static const double patience = 5, abort_patience = 5, last_patience = 1.5, stragglers_patience = 2;
/* Then, until it is left alone: SIGKILL does not end a frozen process. */
static const double kill_patience = 5;

/* ---- the job folder ----
 *
 * A temporary folder for the files that MPI and UCX make for a job (Open MPI: the launcher's
 * session folder and the memory that ranks of a machine share). A killed launcher or rank would
 * not remove them. The monitor removes the folder; if the monitor is killed, too, the next start of
 * any job does (comm/transient.h). */

/* Environment variables that tell Open MPI 4 and 5, and UCX, where to put its files; shared memory
 * only where the folder is memory. */
static const struct setting {
    const char *name;
    bool shares;
} settings[] = {
    {"OMPI_MCA_orte_tmpdir_base", false},
    {"PRTE_MCA_prte_tmpdir_base", false},
    {"OMPI_MCA_btl_vader_backing_directory", true},
    {"OMPI_MCA_btl_sm_backing_directory", true},
    {"UCX_POSIX_DIR", true},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* Whether a scheduler has allocated several machines, or a host file names some. */
static bool has_several_machines(void)
{
    static const char *const lists[] = {"PBS_NODEFILE", "LSB_HOSTS", "PE_HOSTFILE",
                                        "OMPI_MCA_orte_default_hostfile"};
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    int64_t n;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (getenv(lists[i])) return true;
    return nodes && (!ech_text_to_int(nodes, &n) || n > 1);
}

/* Makes the folder and sets the environment variables that point MPI to it, where the user has not.
 * hold is -1 for a job on several machines: it has no folder, since the other machines would not
 * see it. */
static ech_status create_folder(ech_transient *out)
{
    *out = (ech_transient){.hold = -1};
    if (has_several_machines()) return ECH_OK;
    ECH_TRY(ech_transient_create(true, out));
    bool is_memory = strncmp(out->path, "/dev/shm/", strlen("/dev/shm/")) == 0;
    for (int i = 0; i < SETTINGS; i++)
        if (is_memory || !settings[i].shares) setenv(settings[i].name, out->path, 0);
    return ECH_OK;
}

static void destroy_folder(const ech_transient *folder)
{
    if (folder->hold < 0) return;
    for (int i = 0; i < SETTINGS; i++) {
        const char *value = getenv(settings[i].name);
        if (value && strcmp(value, folder->path) == 0) unsetenv(settings[i].name);
    }
    ech_transient_remove(folder);
}

/* ---- the monitor ---- */

ech_status ech_monitor_create(int ranks, double deadline, ech_monitor **out)
{
    ech_board *board;
    ech_transient file;
    ECH_TRY(ech_board_file_create(ranks, &file, &board));
    ech_monitor *monitor = ech_calloc(1, sizeof *monitor);
    *monitor = (ech_monitor){.board = board,
                             .file = file,
                             .stall = {.deadline = deadline},
                             .first_evaluator = ranks,
                             .first_dead = -1};
    ech_watch_begin(&monitor->watch, board, ranks);
    atomic_store(&board->is_watched, 1);
    setenv(ECH_BOARD_VARIABLE, file.path, 1);
    ech_status status = create_folder(&monitor->folder);
    if (status == ECH_OK)
        *out = monitor;
    else
        ech_monitor_destroy(monitor);
    return status;
}

void ech_monitor_set_evaluators(ech_monitor *monitor, int first)
{
    monitor->first_evaluator = first;
}

void ech_monitor_follow(ech_monitor *monitor, pid_t child, bool is_launcher)
{
    monitor->child = child;
    if (is_launcher) monitor->processes.launcher = child;
}

void ech_monitor_destroy(ech_monitor *monitor)
{
    if (!monitor) return;
    unsetenv(ECH_BOARD_VARIABLE);
    ech_transient_remove(&monitor->file); /* the ranks have done so if they came that far */
    destroy_folder(&monitor->folder);
    ech_board_file_unmap(monitor->board);
    ech_watch_end(&monitor->watch);
    ech_rank_processes_clear(&monitor->processes);
    ech_text_free(&monitor->how);
    free(monitor);
}

/* ---- lives ---- */

pid_t ech_monitor_process(const ech_monitor *monitor, int slot)
{
    pid_t process = monitor->watch.process[slot];
    bool lives = monitor->watch.polled[slot + 1].fd >= 0;
    return lives || ech_monitor_present(monitor, slot) == process ? process : 0;
}

/* Notes `dead` deaths found at once. With `alone` false the launcher may have killed them on a
 * signal: then none of them counts as the first. */
static void note_deaths(ech_monitor *monitor, int dead, int rank, bool alone)
{
    bool aborted = ech_board_aborted(monitor->board);
    if (dead == 0 || monitor->ended_at > 0) return;
    monitor->ended_at = ech_clock_now();
    monitor->has_dead = !aborted;
    if (dead == 1 && !aborted && alone) monitor->first_dead = rank;
}

/* The signal that ended the first process to die, as long as the launcher has not waited for it. */
static void note_signal(ech_monitor *monitor, pid_t process)
{
    ech_life_signs signs;
    if (monitor->ended_at > 0 || monitor->killed_by) return;
    ech_life_look(process, &signs);
    if (signs.state == 'Z' && WIFSIGNALED(signs.end)) monitor->killed_by = WTERMSIG(signs.end);
}

/* Evaluates the last poll. */
static void note_ends(ech_monitor *monitor)
{
    int dead = 0, rank = -1;
    for (int i = -1; (i = ech_watch_next_end(&monitor->watch, i + 1)) >= 0;) {
        if (ech_monitor_present(monitor, i) == 0) continue; /* it had left */
        if (ech_board_lose(monitor->board, i)) continue;
        rank = atomic_load(&monitor->board->slot[i].rank);
        note_signal(monitor, monitor->watch.process[i]);
        dead++;
    }
    note_deaths(monitor, dead, rank, !monitor->watch.polled[0].revents);
}

static int rank_of(const ech_monitor *monitor, pid_t process)
{
    for (int i = 0; i < monitor->watch.slots; i++)
        if (ech_monitor_present(monitor, i) == process)
            return atomic_load(&monitor->board->slot[i].rank);
    return -1;
}

/* A launcher may hang when a rank dies that has just started (Open MPI 4 does), and the board does
 * not show that rank. */
static void watch_processes(ech_monitor *monitor)
{
    int dead = 0, rank = -1;
    pid_t ended, last = 0;
    ech_rank_processes_update(&monitor->processes);
    monitor->any |= monitor->processes.seen.n > 0;
    while ((ended = ech_rank_processes_next_end(&monitor->processes)) != 0) {
        rank = rank_of(monitor, last = ended);
        note_signal(monitor, ended);
        dead++;
    }
    if (dead == 1 && monitor->ended_at <= 0) monitor->early = last;
    note_deaths(monitor, dead, rank, true);
}

/* A rank that aborts ends the job by its launcher, which may not react. */
static void note_abort(ech_monitor *monitor)
{
    if (monitor->ended_at <= 0 && ech_board_aborted(monitor->board))
        monitor->ended_at = ech_clock_now() + abort_patience;
}

static void kill_ranks(const ech_monitor *monitor)
{
    ech_rank_processes_kill(&monitor->processes);
    for (int i = 1; i <= monitor->watch.slots; i++)
        if (monitor->watch.polled[i].fd >= 0)
            syscall(SYS_pidfd_send_signal, monitor->watch.polled[i].fd, SIGKILL, NULL, 0);
}

/* Milliseconds until patience ends next; -1: it does not. */
static int left_ms(const ech_monitor *monitor)
{
    if (monitor->ended_at <= 0 || monitor->phase == ECH_CHILD_UNKILLABLE) return -1;
    double end = monitor->ended_at + patience;
    if (monitor->phase >= ECH_RANKS_KILLED) end += last_patience;
    if (monitor->phase >= ECH_CHILD_HANGS) end += kill_patience;
    return ech_clock_ms_until(end);
}

/* The next phase. True when the child is to be killed, or left alone. */
static bool end_patience(ech_monitor *monitor)
{
    if (monitor->phase == ECH_WATCHING) {
        if (!monitor->halted)
            ech_log_warn("a rank has ended or the job must end, and the launcher still runs; "
                         "killing the ranks");
        kill_ranks(monitor);
        monitor->phase = ECH_RANKS_KILLED;
    } else if (monitor->phase == ECH_RANKS_KILLED) {
        if (!monitor->halted) ech_log_warn("the launcher does not end: killing it");
        monitor->phase = ECH_CHILD_HANGS;
    } else {
        ech_log_warn(
            "process %d was killed but does not end: its control group is frozen, or it hangs in a "
            "system call",
            (int)monitor->child);
        monitor->phase = ECH_CHILD_UNKILLABLE;
    }
    return monitor->phase >= ECH_CHILD_HANGS;
}

/* Ends a stalled job at once. */
static void note_stall(ech_monitor *monitor)
{
    if (monitor->phase != ECH_WATCHING || !ech_monitor_check_stall(monitor)) return;
    monitor->ended_at = ech_clock_now() - patience;
}

void ech_monitor_note_stop_now(ech_monitor *monitor)
{
    if (monitor->ended_at <= 0) monitor->ended_at = ech_clock_now();
}

bool ech_monitor_wait(ech_monitor *monitor, int fd)
{
    monitor->watch.polled[0].fd = fd;
    for (;;) {
        bool complete = ech_watch_update(&monitor->watch, ech_rank_process_is_ours);
        if (complete)
            ech_rank_processes_clear(&monitor->processes);
        else
            watch_processes(monitor);
        note_abort(monitor);
        note_stall(monitor);
        int ms = left_ms(monitor);
        if (ms == 0) {
            if (end_patience(monitor)) return false;
            continue;
        }
        int most = complete ? (int)(ech_stall_interval(&monitor->stall) * 1000) + 1 : COMING_MS;
        if (ms < 0 || ms > most) ms = most;
        if (!ech_watch_poll(&monitor->watch, ms)) continue;
        note_ends(monitor);
        if (monitor->watch.polled[0].revents) return true;
    }
}

/* Waits until all ranks have ended, at most so long. */
static bool await_ends(ech_monitor *monitor, double seconds)
{
    ech_watch *watch = &monitor->watch;
    double end = ech_clock_now() + seconds;
    for (int ms = 0;; ms = ech_clock_ms_until(end)) {
        int alive = 0;
        ech_watch_poll(watch, ms);
        for (int i = -1; (i = ech_watch_next_end(watch, i + 1)) >= 0;) continue;
        for (int i = 1; i <= watch->slots; i++) alive += watch->polled[i].fd >= 0;
        if (alive == 0 || ech_clock_now() >= end) return alive == 0;
    }
}

/* Ranks end with their launcher, or a moment later if it was killed. Deaths that follow the
 * launcher's are not noted. */
void ech_monitor_end_ranks(ech_monitor *monitor)
{
    ech_watch_update(&monitor->watch, ech_rank_process_is_ours);
    monitor->watch.polled[0].fd = -1;
    if (await_ends(monitor, stragglers_patience)) return;
    kill_ranks(monitor);
    await_ends(monitor, kill_patience);
}

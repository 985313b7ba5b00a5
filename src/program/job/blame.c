/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a job's end: whether there is one, and the rank that it names.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "program/command.h"
#include "program/job/monitor_state.h"
#include "base/log.h"

enum { NOT_STARTED = 127 };

/* Names processes that were killed and have not ended, and returns whether there are any. They
 * would be in the way of the next start: they still have the run's folders open. */
static bool name_survivors(const ech_monitor *monitor)
{
    bool any = monitor->phase == ECH_CHILD_UNKILLABLE;
    for (int i = 0; i < monitor->watch.slots; i++) {
        if (monitor->watch.polled[i + 1].fd < 0) continue;
        ech_log_warn("rank %d (process %d) was killed and has not ended yet",
                     atomic_load(&monitor->board->slot[i].rank), (int)monitor->watch.process[i]);
        any = true;
    }
    return any;
}

static int count_present(const ech_monitor *monitor)
{
    int present = 0;
    for (int i = 0; i < monitor->watch.slots; i++) present += ech_monitor_present(monitor, i) != 0;
    return present;
}

/* The signal that ended the process that died first; 0: none, or unknown. */
static int first_signal(const ech_monitor *monitor, const ech_job_end *end)
{
    bool ours = monitor->halted || monitor->phase >= ECH_CHILD_HANGS; /* this process ended it */
    int seen = monitor->killed_by ? monitor->killed_by : atomic_load(&monitor->board->killed_by);
    if (seen && !monitor->halted) return seen;
    if (ours) return 0;
    if (end->child_signal) return end->child_signal;
    int told = end->is_launcher ? end->code - 128 : 0; /* as launchers tell it */
    return told > 0 && told < NSIG ? told : 0;
}

/* Whether the end needs no report: it is as it should be, or explained by the launcher or a
 * rank. */
static bool is_told(const ech_monitor *monitor, const ech_job_end *end)
{
    bool came = atomic_load(&monitor->board->members) > 0;
    if (monitor->halted) return false;
    if (end->stops > 1 || end->code == ECH_EXIT_DONE || end->code == ECH_EXIT_USAGE ||
        end->code == ECH_EXIT_STOPPED)
        return true;
    if (atomic_load(&monitor->board->killed_by)) return false;
    if (!came && end->code == NOT_STARTED) return true;
    if (!came) return end->code == ECH_EXIT_FAILED && (monitor->any || !end->is_launcher);
    if (count_present(monitor) == 0) return true; /* all have come to their end */
    bool has_dead = monitor->has_dead || ech_board_has_dead(monitor->board);
    return ech_board_aborted(monitor->board) && !has_dead;
}

/* The rank that holds up the others; -1 if none waits. */
static int awaited(const ech_monitor *monitor)
{
    for (int i = 0; i < monitor->watch.slots; i++) {
        int peer = atomic_load(&monitor->board->slot[i].mark[ECH_BOARD_RANK].waits_for);
        if (peer >= 0) return ech_board_culprit(monitor->board, peer, ECH_BOARD_RANK);
    }
    return -1;
}

static void describe_end(const ech_job_end *end, ech_text *out)
{
    int signal = end->code - 128;
    const char *child = end->is_launcher ? "the launcher" : "its process";
    if (end->child_signal) {
        ech_text_append(out, "%s was ended by signal %d (%s)", child, end->child_signal,
                        strsignal(end->child_signal));
        if (end->is_launcher) return;
    } else {
        ech_text_append(out, "%s exit code is %d", end->is_launcher ? "the launcher's" : "its",
                        end->code);
    }
    if (end->is_launcher && signal > 0 && signal < NSIG)
        ech_text_append(out, ", which means signal %d (%s)", signal, strsignal(signal));
    else if (end->is_launcher && end->signal)
        ech_text_append(out, "; a rank was ended by signal %d (%s)", end->signal,
                        strsignal(end->signal));
    if (signal == SIGKILL || (end->is_launcher && end->signal == SIGKILL))
        ech_text_append(out, "; if nobody sent it, memory may have run out: see dmesg");
}

static void name_culprit(const ech_monitor *monitor, const ech_job_end *end, ech_text *out)
{
    int rank = monitor->first_dead;
    bool ours = monitor->phase == ECH_CHILD_HANGS; /* this process ended the launcher */
    bool came = atomic_load(&monitor->board->members) > 0;
    if (came && rank < 0 && (ours || !end->child_signal)) rank = awaited(monitor);
    if (monitor->early && monitor->first_dead < 0)
        ech_text_append(out, "a rank (process %d) has died as it began, and the job with it",
                        (int)monitor->early);
    else if (!came && !monitor->any && end->is_launcher)
        ech_text_append(out, "the launcher ended before it started a rank; run the command above "
                             "in a shell, without --quiet, to see why");
    else if (!came)
        ech_text_append(out, "the job has died before a rank of this machine began");
    else if (rank < 0)
        ech_text_append(out, "the job has died");
    else {
        bool is_first = rank == monitor->first_dead;
        ech_text_append(out,
                        is_first ? "rank %d has died, and the job with it: "
                                 : "the job has died; likely for rank %d: ",
                        rank);
        ech_board_describe(monitor->board, rank, out);
    }
}

/* What keeps launchers from starting ranks, where they say nothing of it, or something else. */
static void name_cause(const ech_monitor *monitor, const ech_job_end *end, ech_text *out)
{
    char room[32];
    if (atomic_load(&monitor->board->members) > 0 || !end->is_launcher) return;
    if (ech_transient_is_tight(monitor->watch.slots, room, sizeof room))
        ech_text_append(out, "; /dev/shm has only %s free: " ECH_TRANSIENT_REMEDY, room);
}

static ech_status report(ech_monitor *monitor, const ech_job_end *end)
{
    ECH_FREED_TEXT what = {0}, how = {0};
    if (is_told(monitor, end)) return ECH_OK;
    if (monitor->halted) {
        ech_monitor_describe_halt(monitor, &what);
        ECH_FAIL(ECH_ECOMM, "%s", what.at);
    }
    if (ech_board_claim_report(monitor->board)) ech_board_print(monitor->board);
    name_culprit(monitor, end, &what);
    describe_end(end, &how);
    name_cause(monitor, end, &how);
    ECH_FAIL(ECH_ECOMM, "%s (%s)", what.at, how.at);
}

ech_status ech_monitor_report(ech_monitor *monitor, ech_job_end *end)
{
    ech_monitor_end_ranks(monitor);
    end->stays = name_survivors(monitor);
    end->signal = first_signal(monitor, end);
    end->final = atomic_load(&monitor->board->is_final) != 0;
    end->steps = atomic_load(&monitor->board->progress);
    ech_status status = report(monitor, end);
    end->killed = status != ECH_OK;
    return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a job's end: whether there is one, and the rank that it names.
 */
#include <signal.h>
#include <string.h>

#include "app/command.h"
#include "app/job/monitor_state.h"
#include "base/log.h"

enum { NOT_STARTED = 127 };

bool ech_monitor_is_over(const ech_monitor *monitor)
{
    bool alive = monitor->phase == ECH_CHILD_UNKILLABLE;
    for (int i = 0; i < monitor->slots; i++) alive |= monitor->life[i] >= 0;
    return !alive;
}

/* They would be in the way of the next start: they still have the run's folders open. */
static void name_survivors(const ech_monitor *monitor)
{
    for (int i = 0; i < monitor->slots; i++)
        if (monitor->life[i] >= 0)
            ech_log_warn("rank %d (process %d) was killed and has not ended yet",
                         atomic_load(&monitor->board->slot[i].rank), (int)monitor->known[i]);
}

static int count_present(const ech_monitor *monitor)
{
    int present = 0;
    for (int i = 0; i < monitor->slots; i++) present += ech_monitor_present(monitor, i) != 0;
    return present;
}

int ech_monitor_signal(const ech_monitor *monitor, const ech_ending *ending)
{
    bool ours = monitor->halted || monitor->phase >= ECH_CHILD_HANGS; /* who ended the child */
    if (monitor->killed_by && !monitor->halted) return monitor->killed_by;
    if (ending->signal) return ours ? 0 : ending->signal;
    int told = ending->is_launcher ? ending->code - 128 : 0; /* as launchers tell it */
    return !ours && told > 0 && told < NSIG ? told : 0;
}

bool ech_monitor_forbids_restart(const ech_monitor *monitor)
{
    return atomic_load(&monitor->board->is_final) != 0;
}

int ech_monitor_progress(const ech_monitor *monitor)
{
    return atomic_load(&monitor->board->progress);
}

/* Whether the end needs no report: it is as it should be, or explained by the launcher or a rank. */
static bool is_told(const ech_monitor *monitor, const ech_ending *ending)
{
    bool came = atomic_load(&monitor->board->members) > 0;
    if (monitor->halted) return false;
    if (ending->stops > 1 || ending->code == ECH_EXIT_DONE || ending->code == ECH_EXIT_USAGE ||
        ending->code == ECH_EXIT_STOPPED)
        return true;
    if (!came && ending->code == NOT_STARTED) return true;
    if (!came) return ending->code == ECH_EXIT_FAILED && (monitor->any || !ending->is_launcher);
    if (count_present(monitor) == 0) return true; /* all have come to their end */
    return ech_board_aborted(monitor->board) && !monitor->has_dead;
}

/* The rank that holds up the others; -1 if none waits. */
static int awaited(const ech_monitor *monitor)
{
    for (int i = 0; i < monitor->slots; i++) {
        int peer = atomic_load(&monitor->board->slot[i].mark[ECH_BOARD_RANK].waits_for);
        if (peer >= 0) return ech_board_culprit(monitor->board, peer, ECH_BOARD_RANK);
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

static void name_culprit(const ech_monitor *monitor, const ech_ending *ending, ech_text *out)
{
    int rank = monitor->first_dead;
    if (monitor->early && rank < 0) {
        ech_text_append(out, "a rank (process %d) has died as it began, and the job with it",
                        (int)monitor->early);
        return;
    }
    if (atomic_load(&monitor->board->members) == 0 && !monitor->any && ending->is_launcher) {
        ech_text_append(out, "the launcher has ended before it started a rank; give the line above "
                             "to a shell without --quiet, if it has that: then it says why");
        return;
    }
    if (atomic_load(&monitor->board->members) == 0) {
        ech_text_append(out, "the job has died before a rank of this machine began");
        return;
    }
    bool ours = monitor->phase == ECH_CHILD_HANGS; /* who ended the launcher */
    if (rank < 0 && (ours || !ending->signal)) rank = awaited(monitor);
    if (rank < 0)
        ech_text_append(out, "the job has died");
    else if (rank == monitor->first_dead)
        ech_text_append(out, "rank %d has died, and the job with it: ", rank);
    else
        ech_text_append(out, "the job has died; likely for rank %d: ", rank);
    if (rank >= 0) ech_board_describe(monitor->board, rank, out);
}

ech_status ech_monitor_report(ech_monitor *monitor, const ech_ending *ending)
{
    ech_monitor_end_ranks(monitor);
    name_survivors(monitor);
    if (is_told(monitor, ending)) return ECH_OK;
    if (monitor->halted) {
        ech_text what = {0};
        ech_monitor_describe_halt(monitor, &what);
        ech_status halted = ech_fail_at(__FILE__, __LINE__, ECH_ECOMM, "%s", what.at);
        ech_text_free(&what);
        return halted;
    }
    if (ech_board_claim_report(monitor->board)) ech_board_print(monitor->board);
    ECH_FREED_TEXT who = {0}, how = {0};
    name_culprit(monitor, ending, &who);
    describe_end(ending, &how);
    return ech_fail_at(__FILE__, __LINE__, ECH_ECOMM, "%s (%s)", who.at, how.at);
}

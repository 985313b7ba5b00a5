/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule by which a job has stalled, observations of its ranks by /proc and their board, and what
 * is said and done about a stalled job.
 */
#include <signal.h>
#include <stdlib.h>

#include "program/job/monitor_state.h"
#include "base/clock.h"
#include "base/log.h"

/* Seconds: at most between observations; at most counted for one, however late it comes; and until
 * ranks that were told to continue and to stop, but are suspended all the same, count as
 * stalled. */
static const double interval = 1, most_counted = 2, suspended_patience = 10;

double ech_stall_interval(const ech_stall *stall)
{
    return stall->deadline / 4 < interval ? stall->deadline / 4 : interval;
}

ech_stall_kind ech_stall_update(ech_stall *stall, const ech_observation *seen, double seconds)
{
    double time = seconds < most_counted ? seconds : most_counted;
    bool same = seen->pulse == stall->last.pulse;
    bool idle = same && seen->shown > 0 && seen->ticks == stall->last.ticks;
    bool suspended = seen->asked && seen->shown > 0 && seen->suspended == seen->shown;
    bool unresponsive = seen->asked && stall->last.asked && same;
    stall->idle = idle ? stall->idle + time : 0;
    stall->suspended = suspended ? stall->suspended + time : 0;
    stall->unresponsive = unresponsive ? stall->unresponsive + time : 0;
    stall->last = *seen;
    if (stall->suspended >= suspended_patience ||
        (suspended && stall->suspended >= stall->deadline))
        return ECH_STALL_SUSPENDED;
    if (stall->idle >= stall->deadline) return ECH_STALL_IDLE;
    return stall->unresponsive >= stall->deadline ? ECH_STALL_UNRESPONSIVE : ECH_STALL_NONE;
}

/* ---- observations ---- */

static const char *state_name(const ech_life_signs *signs)
{
    static const struct {
        char state;
        const char *name;
    } names[] = {{'T', "stopped"},
                 {'t', "held by a debugger"},
                 {'D', "in a call of the system that cannot be interrupted"},
                 {'R', "running"},
                 {'Z', "ended"},
                 {'X', "ended"}};
    if (signs->is_frozen) return "frozen with its control group";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].state == signs->state) return names[i].name;
    return "asleep";
}

/* Appends the rank processes that have joined the board, without evaluators unless `all_roles`,
 * then those that have not joined. False: not all are known. */
static bool list_ranks(const ech_monitor *monitor, bool all_roles, ech_process_ids *out)
{
    bool all = true;
    for (int i = 0; i < monitor->watch.slots; i++) {
        bool evaluates = atomic_load(&monitor->board->slot[i].rank) >= monitor->first_evaluator;
        if (evaluates && !all_roles) continue;
        pid_t process = ech_monitor_process(monitor, i);
        if (process)
            ECH_PUSH(*out, process);
        else
            all &= ech_monitor_present(monitor, i) <= 0;
    }
    for (size_t i = 0; i < monitor->processes.seen.n; i++)
        ECH_PUSH(*out, monitor->processes.seen.at[i].process);
    return all;
}

/* Observes all ranks, also those that have not joined the board; before there is any, the
 * launcher. */
static ech_observation observe(const ech_monitor *monitor)
{
    ech_observation seen = {.pulse = ech_board_pulse(monitor->board), .asked = monitor->asked};
    ech_process_ids ranks = {0};
    bool all = list_ranks(monitor, false, &ranks);
    if (ranks.n == 0 && monitor->child) ECH_PUSH(ranks, monitor->child);
    for (size_t i = 0; i < ranks.n && all; i++) {
        ech_life_signs signs;
        ech_life_look(ranks.at[i], &signs);
        all = signs.state != 0;
        seen.ticks += signs.ticks;
        seen.suspended += signs.state == 'T' || signs.state == 't' || signs.is_frozen;
    }
    seen.shown = all ? (int)ranks.n : 0;
    free(ranks.at);
    return seen;
}

static void describe(pid_t process, ech_text *out)
{
    ech_life_signs signs;
    ech_life_look(process, &signs);
    ech_text_append(out, "(process %d) is %s", (int)process, state_name(&signs));
}

/* Prints a line per rank; the first is also for the error. */
static void print_positions(ech_monitor *monitor)
{
    ech_text *how = &monitor->how;
    bool prints = ech_board_claim_report(monitor->board);
    for (int i = 0; i < monitor->watch.slots; i++) {
        ECH_FREED_TEXT line = {0};
        pid_t process = ech_monitor_process(monitor, i);
        int rank = atomic_load(&monitor->board->slot[i].rank);
        if (!process) continue;
        ech_text_append(&line, "rank %d ", rank);
        describe(process, &line);
        if (!how->n) ech_text_append(how, "%s", line.at);
        ech_text_append(&line, ": ");
        ech_board_describe(monitor->board, rank, &line);
        if (prints) ech_log_warn("%s", line.at);
    }
    if (how->n) return;
    bool any = monitor->processes.seen.n > 0;
    ech_text_append(how, any ? "a rank " : "the process that starts them ");
    describe(any ? monitor->processes.seen.at[0].process : monitor->child, how);
}

bool ech_monitor_check_stall(ech_monitor *monitor)
{
    double now = ech_clock_now(), seconds = now - monitor->observed_at;
    if (monitor->observed_at > 0 && seconds < ech_stall_interval(&monitor->stall)) return false;
    ech_observation seen = observe(monitor);
    bool first = monitor->observed_at <= 0;
    monitor->observed_at = now;
    monitor->halted = ech_stall_update(&monitor->stall, &seen, first ? 0 : seconds);
    if (monitor->halted) print_positions(monitor);
    return monitor->halted != ECH_STALL_NONE;
}

void ech_monitor_describe_halt(const ech_monitor *monitor, ech_text *out)
{
    double deadline = monitor->stall.deadline;
    if (monitor->halted == ECH_STALL_IDLE)
        ech_text_append(out,
                        "no rank has made progress for %g s (parallel.deadline), so the job was "
                        "ended: ",
                        deadline);
    else if (monitor->halted == ECH_STALL_SUSPENDED)
        ech_text_append(out,
                        "the job was told to stop, but no rank can act; all were killed without "
                        "a save: ");
    else
        ech_text_append(out,
                        "the job was told to stop, but no rank has made progress for %g s "
                        "(parallel.deadline); all were killed without a save: ",
                        deadline);
    ech_text_append(out, "%s", monitor->how.at);
}

/* Sends SIGCONT, which also withdraws a SIGSTOP that the process has not acted on. Whether it was
 * stopped. */
static bool continue_process(pid_t process)
{
    ech_life_signs signs;
    ech_life_look(process, &signs);
    return kill(process, SIGCONT) == 0 && signs.state == 'T';
}

void ech_monitor_note_stop(ech_monitor *monitor)
{
    int n = 0;
    ech_process_ids processes = {0};
    monitor->asked = true;
    list_ranks(monitor, true, &processes);
    if (monitor->child) ECH_PUSH(processes, monitor->child);
    for (size_t i = 0; i < processes.n; i++) n += continue_process(processes.at[i]);
    free(processes.at);
    if (n) ech_log_info("resumed stopped processes of the job, so that it can end: %d", n);
}

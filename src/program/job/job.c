/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of restarts, and the starts of a job until one ends it.
 */
#include "program/job/job.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "program/command.h"
#include "program/job/supervise.h"
#include "base/terminal.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/folder.h"

/* ---- the rule by which a job is restarted ---- */

enum { MOST_IDLE = 2 };

/* Whether a signal was sent by a person, a scheduler or the out-of-memory killer. Others come from
 * the program itself or a limit on it, and would come at the next start, too. */
static bool is_from_outside(int sent)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE,  SIGILL,  SIGABRT,
                              SIGTRAP, SIGSYS, SIGPIPE, SIGXCPU, SIGXFSZ};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (sent == own[i]) return false;
    return sent > 0;
}

bool ech_restarts_go_on(ech_restarts *restarts, const ech_job_end *end, const ech_job_saved *saved,
                        const char **why)
{
    *why = NULL;
    if (end->code == ECH_EXIT_DONE || end->code == ECH_EXIT_USAGE ||
        end->code == ECH_EXIT_STOPPED || end->asked || restarts->most == 0)
        return false;
    bool won = saved->step > restarts->saved.step || saved->completed > restarts->saved.completed;
    restarts->vain = !won;
    if (won)
        restarts->idle = 0;
    else if (!end->killed || !is_from_outside(end->signal))
        restarts->idle++;
    restarts->saved = *saved;
    if (end->final)
        *why = "another start would not go on from its newest checkpoint";
    else if (end->stays)
        *why = "a process of it has not ended, though it was killed";
    else if (!end->killed && end->steps == 0)
        *why = "it failed before its first step, and would do so again";
    else if (restarts->used == restarts->most)
        *why = "all restarts are used up";
    else if (restarts->idle >= MOST_IDLE)
        *why =
            "two starts have failed by themselves and saved no new checkpoint; if they came far, "
            "lower checkpoint.every";
    if (*why) return false;
    restarts->used++;
    return true;
}

/* ---- starts ---- */

enum { PAUSE_S = 5 };

static void set_number(const char *name, const char *format, double value)
{
    char text[32];
    snprintf(text, sizeof text, format, value);
    setenv(name, text, 1);
}

static void set_environment(const ech_job *job, int restart, double elapsed)
{
    ech_launch_line_set(job->line);
    set_number(ECH_TERMINAL_VARIABLE, "%.0f", ech_terminal_columns());
    if (job->restarts == 0) return;
    set_number(ECH_RESTART_VARIABLE, "%.0f", restart);
    set_number(ECH_ELAPSED_VARIABLE, "%.3f", elapsed);
}

static ech_status run_once(const ech_job *job, ech_job_end *end)
{
    ech_monitor *monitor = NULL;
    ech_child child = {.words = job->line->word.at,
                       .is_launcher = job->by_launcher,
                       .stop_signal = job->stop_signal};
    *end = (ech_job_end){.code = ECH_EXIT_USAGE}; /* what cannot be started is not restarted */
    ECH_TRY(ech_monitor_create(job->ranks, job->deadline, &monitor));
    ech_monitor_set_evaluators(monitor, job->first_evaluator);
    ech_status status = ech_supervise(&child, monitor, end);
    if (status == ECH_OK) status = ech_monitor_report(monitor, end);
    ech_monitor_destroy(monitor);
    return status;
}

/* Whether they verify is for the ranks to find out. */
static ech_job_saved find_saved(const char *directory)
{
    ECH_CLEANUP(ech_folders_free) ech_folders folders = {0};
    ech_job_saved saved = {.step = -1};
    if (!directory || ech_folder_list_complete(directory, &folders) != ECH_OK) return saved;
    if (folders.n) saved.step = folders.at[0].step;
    for (size_t i = 0; i < folders.n; i++) {
        int64_t completed = ech_folder_completed(&folders.at[i]);
        if (completed > saved.completed) saved.completed = completed;
    }
    return saved;
}

/* Waits before a restart, longer if the last start made no progress: the fault may pass. False if
 * the job is told to stop during the wait. */
static bool pause_before(const ech_restarts *restarts)
{
    sigset_t stops;
    const struct timespec length = {.tv_sec = restarts->vain ? PAUSE_S : 0};
    sigemptyset(&stops);
    sigaddset(&stops, SIGUSR2);
    sigaddset(&stops, SIGTERM);
    return sigtimedwait(&stops, NULL, &length) < 0;
}

static void announce(const ech_restarts *restarts)
{
    char from[64] = "the beginning";
    if (restarts->saved.step >= 0)
        snprintf(from, sizeof from, "step %lld, the newest checkpoint",
                 (long long)restarts->saved.step);
    ech_log_info("restart %d of %d, from %s%s", restarts->used, restarts->most, from,
                 restarts->vain ? ", in a few seconds: the last start has saved nothing" : "");
}

ech_status ech_job_run(const ech_job *job, int *code)
{
    double began_at = ech_clock_now();
    const char *why;
    ECH_FREED_TEXT text = {0};
    ech_restarts restarts = {.most = job->restarts, .saved = find_saved(job->checkpoints)};
    ech_launch_line_print(job->line, &text);
    ech_log_info("%s", text.at);
    for (;;) {
        ech_job_end end;
        set_environment(job, restarts.used, ech_clock_now() - began_at);
        ech_status status = run_once(job, &end);
        *code = end.code;
        const ech_job_saved saved = find_saved(job->checkpoints);
        if (!ech_restarts_go_on(&restarts, &end, &saved, &why)) {
            if (why) ech_log_warn("not started again: %s", why);
            return status;
        }
        announce(&restarts);
        if (!pause_before(&restarts)) {
            *code = ECH_EXIT_STOPPED;
            return ECH_OK;
        }
    }
}

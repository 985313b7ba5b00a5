/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule by which a job is started again.
 */
#include <signal.h>
#include <stddef.h>

#include "app/command.h"
#include "app/job/job.h"

enum { MOST_IDLE = 2 };

/* What a program does to itself, or a limit on it does: it would come again. The others are sent: by
 * people, schedulers, and the system that runs out of memory. */
static bool is_from_outside(int sent)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE,  SIGILL,  SIGABRT,
                              SIGTRAP, SIGSYS, SIGPIPE, SIGXCPU, SIGXFSZ};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (sent == own[i]) return false;
    return sent > 0;
}

bool ech_restarts_go_on(ech_restarts *restarts, const ech_job_end *end, int64_t newest,
                        const char **why)
{
    *why = NULL;
    if (end->code == ECH_EXIT_DONE || end->code == ECH_EXIT_USAGE ||
        end->code == ECH_EXIT_STOPPED || end->asked || restarts->most == 0)
        return false;
    bool won = newest > restarts->saved;
    restarts->vain = !won;
    if (won)
        restarts->idle = 0;
    else if (!end->killed || !is_from_outside(end->signal))
        restarts->idle++;
    restarts->saved = newest;
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
            "two starts have failed of themselves and saved no new checkpoint; if they came far, "
            "lower checkpoint.every";
    if (*why) return false;
    restarts->used++;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule by which a job is started again.
 */
#include "app/command.h"
#include "app/job/job.h"

enum { MOST_IDLE = 2 };

bool ech_restarts_go_on(ech_restarts *restarts, const ech_job_end *end, int64_t newest,
                        const char **why)
{
    *why = NULL;
    if (end->code == ECH_EXIT_DONE || end->code == ECH_EXIT_USAGE ||
        end->code == ECH_EXIT_STOPPED || end->asked || restarts->most == 0)
        return false;
    restarts->idle = newest > restarts->saved ? 0 : restarts->idle + 1;
    restarts->saved = newest;
    if (end->stays)
        *why = "a process of it has not ended, though it was killed";
    else if (!end->killed && end->steps == 0)
        *why = "it failed before its first step, and would do so again";
    else if (restarts->used == restarts->most)
        *why = "all restarts are used up";
    else if (restarts->idle >= MOST_IDLE)
        *why = "two starts in a row have saved no new checkpoint; if they came far, lower "
               "checkpoint.every";
    if (*why) return false;
    restarts->used++;
    return true;
}

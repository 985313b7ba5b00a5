/* SPDX-License-Identifier: Apache-2.0
 *
 * A job: this program run as a child, which is a launcher of ranks or one process with all ranks. The job is
 * watched until its end and restarted from the newest checkpoint after a failure.
 *
 * A start has failed when its exit code is not 0, 2 or 75 and it was not told to stop. The job is then
 * restarted unless
 *   - no training step was done and no rank was killed: data or machine are not as they should be, and the
 *     next start would fail likewise;
 *   - a rank has said that a restart would not resume from its newest checkpoint;
 *   - a process of it cannot be killed: it still has the run's folders open;
 *   - two starts have failed by themselves without a new checkpoint since the first of the two: the job
 *     makes no progress. A signal from outside (SIGKILL, SIGTERM) is no such failure;
 *   - all restarts are used up.
 */
#ifndef ECH_APP_JOB_JOB_H
#define ECH_APP_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "app/job/launcher.h"
#include "app/job/monitor.h"

/* Environment of a job that may be restarted: how often it has been. */
#define ECH_RESTART_VARIABLE "ECHELON_RESTART_COUNT"
/* Environment of a job: seconds that its earlier starts have taken; training.time_limit counts them. */
#define ECH_ELAPSED_VARIABLE "ECHELON_ELAPSED"

typedef struct ech_job {
    const ech_launch_line *line;
    int ranks;
    bool by_launcher;
    int stop_signal;         /* tells a rank to save and stop; 0: ranks have no such signal */
    double deadline;         /* seconds after which a stalled job is ended (app/job/stall.h) */
    int restarts;            /* at most */
    const char *checkpoints; /* folder of the run's checkpoints, for restarts */
} ech_job;

/* Prints the command line and runs it, with restarts, until it ends. *code: the last exit code. Errors:
 * ECH_ECOMM if ranks have died without an error message of their own; all positions are printed then. */
ech_status ech_job_run(const ech_job *job, int *code);

/* State of the rule above. Begins as {.most = K, .saved = step of the newest checkpoint, or -1}. */
typedef struct ech_restarts {
    int most, used;
    int idle;      /* starts that failed by themselves since the last new checkpoint */
    bool vain;     /* the last start has saved no new checkpoint */
    int64_t saved; /* step of the newest checkpoint when the last start began */
} ech_restarts;

/* Whether to restart after `end`; `newest`: step of the newest checkpoint now, or -1. If not, *why is the
 * reason, NULL if the end was no failure or no restarts were asked for. */
bool ech_restarts_go_on(ech_restarts *restarts, const ech_job_end *end, int64_t newest,
                        const char **why);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * This program started again as a job: below a launcher, or as a single process of all ranks; watched
 * until its end, and started again from the newest checkpoint after a failure.
 *
 * A start fails when it ends with another code than 0, 2 and 75 and nobody has asked it to stop. It is
 * not repeated
 *   - when it did no training step and no rank was killed: data or machine are not as they should be,
 *     and the next start would see the same;
 *   - when it has said that another start would not go on from its newest checkpoint;
 *   - when a process of it cannot be killed: it still has the run's folders;
 *   - when two failed of themselves and no start since the first of them has saved a new checkpoint: they
 *     would go round in circles. A signal from outside (SIGKILL, SIGTERM) is no such failure;
 *   - when all restarts are used up.
 */
#ifndef ECH_APP_JOB_JOB_H
#define ECH_APP_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "app/job/launcher.h"

/* In the environment of a job that may be restarted: how often it has been. */
#define ECH_RESTART_VARIABLE "ECHELON_RESTART_COUNT"
/* Seconds that earlier starts have taken: training.time_limit is for all of them. */
#define ECH_ELAPSED_VARIABLE "ECHELON_ELAPSED"

typedef struct ech_job {
    const ech_launch_line *line;
    int ranks;
    bool by_launcher;
    int stop_signal;         /* asks a rank to stop; 0: ranks cannot be asked */
    double deadline;         /* seconds that all ranks together may stand still */
    int restarts;            /* at most */
    const char *checkpoints; /* their folder, for restarts */
} ech_job;

/* Prints the line, runs it as often as it takes, and waits for its end. *code: the last exit code.
 * Errors: ECH_ECOMM if ranks have died without a word; their positions are printed then. */
ech_status ech_job_run(const ech_job *job, int *code);

/* How a start has ended. */
typedef struct ech_job_end {
    int code;
    bool killed; /* a rank or the launcher, without a word */
    int signal;  /* that killed whoever died first; 0: none, or not known */
    bool asked;  /* somebody asked it to stop */
    bool final;  /* it has said that another start would not go on from here */
    bool stays;  /* a process of it cannot be killed */
    int steps;   /* training steps done */
} ech_job_end;

/* What restarts have come to. Starts with {.most = K, .saved = newest checkpoint's step, or -1}. */
typedef struct ech_restarts {
    int most, used;
    int idle;      /* starts that failed of themselves since one has saved something new */
    bool vain;     /* the last start has saved nothing new */
    int64_t saved; /* newest checkpoint when the last start began */
} ech_restarts;

/* Whether to start again, `newest` being the newest checkpoint's step by now, or -1. If not,
 * *why: the reason, or NULL where there is nothing to explain. */
bool ech_restarts_go_on(ech_restarts *restarts, const ech_job_end *end, int64_t newest,
                        const char **why);

#endif

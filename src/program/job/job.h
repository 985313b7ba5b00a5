/* SPDX-License-Identifier: Apache-2.0
 *
 * A job: this program run as a child, which is a launcher of ranks or one process with all ranks.
 * The job is watched until its end and restarted from the newest checkpoint after a failure.
 *
 * A start (one execution of the job's command line) has failed when its exit code is not 0, 2 or 75
 * and it was not told to stop. The job is then restarted unless
 * - no training step was done and no rank was killed: the data or the machine are at fault, and
 *   the next start would fail in the same way;
 * - a rank has reported that a restart would not resume from its newest checkpoint;
 * - a process of the job cannot be killed: it still has the run's folders open;
 * - two starts have failed by themselves without a new checkpoint between them: the job makes no
 *   progress. A start that a signal from outside (SIGKILL, SIGTERM) has killed does not count
 *   here;
 * - all restarts are used up.
 */
#ifndef ECH_PROGRAM_JOB_JOB_H
#define ECH_PROGRAM_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "program/job/launcher.h"
#include "program/job/monitor.h"

/* Environment variable of a job that may be restarted: number of restarts so far. */
#define ECH_RESTART_VARIABLE "ECHELON_RESTART_COUNT"
/* Environment variable of such a job: seconds that its earlier starts have taken;
 * training.time_limit counts them. */
#define ECH_ELAPSED_VARIABLE "ECHELON_ELAPSED"

/* The pointers are borrowed. */
typedef struct ech_job {
    const ech_launch_line *line; /* complete */
    int ranks;
    int first_evaluator;     /* ranks from here on are evaluators */
    bool by_launcher;        /* the line starts a launcher; else one process with all ranks */
    int stop_signal;         /* tells a rank to save and stop; 0: ranks have no such signal */
    double deadline;         /* seconds after which a stalled job is ended (program/job/stall.h) */
    int restarts;            /* the most restarts */
    const char *checkpoints; /* folder of the run's checkpoints; NULL: no restarts */
} ech_job;

/* Logs the command line and executes it, with restarts, until the job ends. *code: the exit code of
 * the last start. Errors: as for ech_monitor_report of the last start; ECH_EIO. */
ech_status ech_job_run(const ech_job *job, int *code);

/* The checkpoints of a run, by their names and times. One may be damaged; its run then saves
 * below. */
typedef struct ech_job_saved {
    int64_t step;      /* training step of the newest; -1: there is none */
    int64_t completed; /* when the last one was completed (ech_folder_completed) */
} ech_job_saved;

/* State of the rule above. Begins as {.most = K, .saved = the run's checkpoints}. */
typedef struct ech_restarts {
    int most, used; /* restarts: at most, and so far */
    int idle;       /* starts that failed by themselves since a checkpoint was saved last */
    bool vain;      /* the last start has saved no checkpoint */
    ech_job_saved saved;
} ech_restarts;

/* Decides whether to restart after `end`; counts the restart. `saved`: the run's checkpoints now.
 * If false, *why is the reason (static text), or NULL if the start had not failed or most is 0. */
bool ech_restarts_go_on(ech_restarts *restarts, const ech_job_end *end, const ech_job_saved *saved,
                        const char **why);

#endif

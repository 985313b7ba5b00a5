/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are processes: the library starts none, so the program starts them as a job
 * (program/job/job.h), and each of them executes the same command as a rank.
 */
#ifndef ECH_PROGRAM_LAUNCH_H
#define ECH_PROGRAM_LAUNCH_H

#include "base/status.h"
#include "program/run_line.h"

struct ech_config;

/* A command on a run. Pointers are borrowed. */
typedef struct ech_launch_request {
    const char *command; /* "train" */
    const ech_run_line *line;
    char *const *options; /* [n] the command's own options, for the command line of a job */
    int n;
    bool reads_weights, trains; /* as in ech_start (app/setup/run.h) */
    /* changes the configuration that is checked, as the command does; NULL: it changes nothing */
    void (*adjust)(struct ech_config *config);
    int stop_signal; /* tells a rank of a job to save and stop; 0: ranks are killed */
    int restarts;    /* of the job after failures, at most */
} ech_launch_request;

typedef struct ech_launch_outcome {
    bool is_done; /* a job has run; else this process has the run's ranks, or one of them */
    int code;     /* of the job, or ECH_EXIT_FAILED if that is not one of program/command.h */
    int ranks;    /* for the library's options, if there was no job */
} ech_launch_outcome;

/* If no launcher started this process, runs a job where several ranks are to be processes
 * (parallel.comm mpi, ucx or nccl), or where restarts are requested. It checks the run first, so
 * that errors are reported before any rank starts. Errors: of the run; --restarts in a launcher's
 * process. */
ech_status ech_launch_ranks(const ech_launch_request *request, ech_launch_outcome *out);

#endif

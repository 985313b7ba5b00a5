/* SPDX-License-Identifier: Apache-2.0
 *
 * The job monitor: the process that started a job's ranks watches the ranks of its machine. It
 * reads their board, which it made and can read after they have died, and observes their processes.
 * So it knows which rank died first, ends a job that hangs (a watchdog), and ensures that no
 * process is left.
 */
#ifndef ECH_PROGRAM_JOB_MONITOR_H
#define ECH_PROGRAM_JOB_MONITOR_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct ech_monitor ech_monitor;

/* How one start of a job has ended. */
typedef struct ech_job_end {
    /* Set by ech_supervise. The child is a launcher, or one process with all ranks. */
    bool is_launcher;
    int code;         /* the child's exit code; 128 + signal if a signal ended it */
    int child_signal; /* signal that ended the child itself; 0: none */
    int stops; /* 0: not told to stop; 1: told to save and stop; larger: told to stop immediately */
    bool asked; /* this process was told to stop, or got SIGUSR2 to forward */
    /* Set by ech_monitor_report. */
    bool killed; /* it returned an error: ranks died without an error message, or the job stalled */
    int signal;  /* signal that ended the process that died first; 0: none, or unknown */
    bool final;  /* a rank has called ech_comm_forbid_restart */
    bool stays;  /* a process of the job cannot be killed */
    int steps;   /* training steps done */
} ech_job_end;

/* Makes a board for at most `ranks` ranks and a folder for MPI's files, and puts their paths into
 * this process's environment, which the child inherits. deadline: seconds until a stalled job is
 * ended. Errors: ECH_EIO. */
ech_status ech_monitor_create(int ranks, double deadline, ech_monitor **out);
void ech_monitor_destroy(ech_monitor *monitor); /* removes board and folder; accepts NULL */

/* Declares ranks from `first` on to be evaluators: they poll for work as long as they live, which
 * does not show progress of the job. */
void ech_monitor_set_evaluators(ech_monitor *monitor, int first);

/* Names the child once it has started. Rank processes below a launcher are watched from their start
 * on. */
void ech_monitor_follow(ech_monitor *monitor, pid_t child, bool is_launcher);

/* Notes that the job was told to stop: sends SIGCONT to its processes, since a suspended one
 * (SIGSTOP) could not react. From now on inactive ranks are ended sooner (ECH_STALL_SUSPENDED,
 * _UNRESPONSIVE). */
void ech_monitor_note_stop(ech_monitor *monitor);
/* Notes that the job was told to stop immediately: ranks that have not ended after 5 s are
 * killed. */
void ech_monitor_note_stop_now(ech_monitor *monitor);

/* Waits until `fd` is readable and returns true; meanwhile watches the ranks. If the launcher has
 * not ended the job 5 s after a rank's death (10 s after a rank has raised the abort flag), or if
 * the job has stalled, kills the ranks. If the child has still not ended 1.5 s later, returns
 * false: the caller must kill it. Called once more, returns false after another 5 s: the child
 * cannot be killed. */
bool ech_monitor_wait(ech_monitor *monitor, int fd);

/* After the child's end: gives the ranks 2 s to end, kills the remaining ones, and completes *end.
 * Errors: ECH_ECOMM if ranks died without an error message of their own, or the job had stalled; it
 * then prints what each rank waits for, and the error names the rank that is the likely cause.
 * ECH_OK if the job ended well, a rank has printed its error, or the user wanted an immediate
 * end. */
ech_status ech_monitor_report(ech_monitor *monitor, ech_job_end *end);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the process that started a launcher sees of the ranks on its machine: their board, which it
 * made for them and still has when they are dead, and their processes, so that it knows who died
 * first and that nobody is left.
 */
#ifndef ECH_APP_JOB_MONITOR_H
#define ECH_APP_JOB_MONITOR_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct ech_monitor ech_monitor;

/* How a child, a launcher or the process of all ranks, has ended. */
typedef struct ech_ending {
    bool is_launcher;
    int code;   /* its exit code; 128 + signal if a signal ended it */
    int signal; /* that ended the child itself; 0: none */
    int stops;  /* how often this process was told to stop */
    bool asked; /* it was, or was to hand on that the ranks are to stop */
} ech_ending;

/* Makes a board for at most `ranks` ranks, and a folder for the files of their MPI, and puts the paths into
 * the environment. deadline: seconds
 * that the ranks may stand still all together. Errors: ECH_EIO. */
ech_status ech_monitor_create(int ranks, double deadline, ech_monitor **out);
void ech_monitor_destroy(ech_monitor *monitor); /* removes both; accepts NULL */

/* The process that was started. Ranks of a launcher are watched before they come to the board. */
void ech_monitor_follow(ech_monitor *monitor, pid_t child, bool is_launcher);

/* The job was told to stop. Ranks that are stopped (SIGSTOP) go on, since they could not do so; and there
 * is less patience then with ranks that do nothing. Accepts NULL. */
void ech_monitor_note_stop(ech_monitor *monitor);
/* It was told to stop at once: who has not ended soon is killed. Accepts NULL. */
void ech_monitor_note_stop_now(ech_monitor *monitor);

/* Waits until `fd` can be read and watches the ranks meanwhile: true. When the launcher has not
 * ended the job some seconds after a rank's death, or when all ranks stand still, the ranks are
 * killed, and a little later this returns false, once: the child itself hangs; and once more some
 * seconds later: it cannot be killed either. NULL: only waits. */
bool ech_monitor_wait(ech_monitor *monitor, int fd);

/* After the launcher's end. If ranks have ended without a word: all positions, then the likely
 * culprit as an error, ECH_ECOMM. Nothing to say (ECH_OK) where the job ended well, where a rank has
 * told why itself, and where the user wanted an end at once. */
ech_status ech_monitor_report(ech_monitor *monitor, const ech_ending *ending);

/* The signal that has ended who died first, the launcher or a rank; 0: none, or not known. */
int ech_monitor_signal(const ech_monitor *monitor, const ech_ending *ending);

/* Whether nobody of the job is left; after the report. */
bool ech_monitor_is_over(const ech_monitor *monitor);

/* Whether a rank has said that starting the job again would not go on from here. */
bool ech_monitor_forbids_restart(const ech_monitor *monitor);

/* Training steps that the job has done. */
int ech_monitor_progress(const ech_monitor *monitor);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the process that started a launcher sees of the ranks on its machine: their board, which it
 * made for them and still has when they are dead, and their processes, so that it knows who died
 * first and that nobody is left.
 */
#ifndef ECH_APP_JOB_WITNESS_H
#define ECH_APP_JOB_WITNESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct ech_witness ech_witness;

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
ech_status ech_witness_create(int ranks, double deadline, ech_witness **out);
void ech_witness_destroy(ech_witness *witness); /* removes both; accepts NULL */

/* The process that was started. Ranks of a launcher are watched before they come to the board. */
void ech_witness_follow(ech_witness *witness, pid_t child, bool is_launcher);

/* The job was told to stop. Ranks that are stopped (SIGSTOP) go on, since they could not do so; and there
 * is less patience then with ranks that do nothing. Accepts NULL. */
void ech_witness_ask(ech_witness *witness);
/* It was told to stop at once: who has not ended soon is killed. Accepts NULL. */
void ech_witness_hurry(ech_witness *witness);

/* Waits until `fd` can be read and watches the ranks meanwhile: true. When the launcher has not
 * ended the job some seconds after a rank's death, or when all ranks stand still, the ranks are
 * killed, and a little later this returns false, once: the child itself hangs; and once more some
 * seconds later: it cannot be killed either. NULL: only waits. */
bool ech_witness_wait(ech_witness *witness, int fd);

/* After the launcher's end. If ranks have ended without a word: all positions, then the likely
 * culprit as an error, ECH_ECOMM. Nothing to say (ECH_OK) where the job ended well, where a rank has
 * told why itself, and where the user wanted an end at once. */
ech_status ech_witness_report(ech_witness *witness, const ech_ending *ending);

/* The signal that has ended who died first, the launcher or a rank; 0: none, or not known. */
int ech_witness_signal(const ech_witness *witness, const ech_ending *ending);

/* Whether nobody of the job is left; after the report. */
bool ech_witness_is_over(const ech_witness *witness);

/* Whether a rank has said that starting the job again would not go on from here. */
bool ech_witness_forbids_restart(const ech_witness *witness);

/* Training steps that the job has done. */
int ech_witness_progress(const ech_witness *witness);

#endif

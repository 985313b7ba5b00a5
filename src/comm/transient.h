/* SPDX-License-Identifier: Apache-2.0
 *
 * Files and folders that must not outlive a job, in /dev/shm, $TMPDIR or /tmp, named
 * "echelon-USER-PROCESS-TIME". Their maker holds a lock (flock) on each. The system releases it
 * when the last process that has the file open ends, even if killed. A file of such a name without
 * a lock is therefore left over from a killed job, and the next start removes it. Process ids are
 * reused, so nothing relies on them.
 */
#ifndef ECH_COMM_TRANSIENT_H
#define ECH_COMM_TRANSIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct ech_transient {
    char path[256];
    int hold; /* the descriptor that holds the lock; -1: another process holds it */
} ech_transient;

/* Calls ech_transient_sweep, then makes a file (open for reading and writing) or a folder, whose
 * descriptor stays open across exec. Errors: ECH_EIO, none can be made. */
ech_status ech_transient_create(bool is_folder, ech_transient *out);

/* Removes the file or the folder with its content, and releases the lock. Silent: the next start
 * removes what cannot be removed now. */
void ech_transient_remove(const ech_transient *transient);

/* True if /dev/shm has too little room for the shared memory of MPI or UCX between that number of
 * ranks on this machine. room: how much it has, as text. */
bool ech_transient_is_tight(int ranks, char *room, size_t size);
#define ECH_TRANSIENT_REMEDY                                                                       \
    "ranks share memory there; enlarge it (docker --shm-size=1g), or set parallel.comm=local, "    \
    "whose ranks are threads"

/* Removes files left over from killed jobs of this user. Silent about what cannot be removed. */
void ech_transient_sweep(void);

#endif

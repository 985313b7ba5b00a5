/* SPDX-License-Identifier: Apache-2.0
 *
 * Files and folders that do not outlive a job, in /dev/shm, $TMPDIR or /tmp: "echelon-USER-PROCESS-TIME". Who
 * makes one holds a lock on it, which the system takes away when the last process that has it open is
 * gone, however it ended. So what has such a name and is not locked a killed job has left, and the next
 * start removes it; numbers of processes, which come again, decide nothing.
 */
#ifndef ECH_COMM_TRANSIENT_H
#define ECH_COMM_TRANSIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Removes what killed jobs of this user have left, then makes a file, open for reading and writing, or a
 * folder. Its path is written to path[size]; *hold is to be closed when it is no longer needed, and
 * removed before; a folder's is handed on by exec. Errors: ECH_EIO. */
ech_status ech_transient_create(bool is_folder, char *path, size_t size, int *hold);

/* What killed jobs of this user have left. Silent about what cannot be removed. */
void ech_transient_sweep(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Files and folders that must not outlive a job, in /dev/shm, $TMPDIR or /tmp, named
 * "echelon-USER-PROCESS-TIME". Their maker holds a lock (flock) on each, which the system releases when the
 * last process that has it open ends, even if killed. A file of such a name without a lock is therefore left
 * over from a killed job, and the next start removes it. Process ids are reused and are not relied on.
 */
#ifndef ECH_COMM_TRANSIENT_H
#define ECH_COMM_TRANSIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Calls ech_transient_sweep, then makes a file (open for reading and writing) or a folder and writes its path
 * to path[size]. *hold is the locked descriptor: remove the file or folder, then close it. A folder's stays
 * open across exec. Errors: ECH_EIO. */
ech_status ech_transient_create(bool is_folder, char *path, size_t size, int *hold);

/* Removes what killed jobs of this user have left. Silent about what cannot be removed. */
void ech_transient_sweep(void);

#endif

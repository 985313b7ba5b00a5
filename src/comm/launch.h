/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: finds out that this process was started as one of several by a launcher that
 * this build's MPI does not know. It would be a lone rank 0 then, N times over, each training
 * alone.
 */
#ifndef ECH_COMM_LAUNCH_H
#define ECH_COMM_LAUNCH_H

#include "base/status.h"

/* getenv, or a test's own. */
typedef const char *(*ech_launch_lookup)(const char *name);

/* What MPI says of itself: how many ranks it sees, its version, the path of its launcher. A size
 * other than 1 is fine. Errors: ECH_EUSAGE, with what was seen and what to type instead. */
ech_status ech_launch_check(ech_launch_lookup lookup, int mpi_size, const char *mpi_version,
                            const char *mpi_launcher);

#endif

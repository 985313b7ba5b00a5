/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: detects that a launcher which this build's MPI does not know has started this
 * process as one of several. MPI then sees one rank in each of the N processes, and each would train alone.
 */
#ifndef ECH_COMM_LAUNCH_H
#define ECH_COMM_LAUNCH_H

#include "base/status.h"

/* getenv, or a test's replacement. */
typedef const char *(*ech_launch_lookup)(const char *name);

/* mpi_size, mpi_version, mpi_launcher: the number of ranks that MPI sees, its version, the path of its
 * launcher. Errors: ECH_EUSAGE if mpi_size is 1 and the environment shows a launcher of several processes;
 * the message names it and the command to type instead. */
ech_status ech_launch_check(ech_launch_lookup lookup, int mpi_size, const char *mpi_version,
                            const char *mpi_launcher);

#endif

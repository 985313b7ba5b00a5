/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers (mpirun, mpiexec, srun), recognized by the environment variables that they give their processes.
 */
#ifndef ECH_COMM_LAUNCH_H
#define ECH_COMM_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_launched {
    const char *by;     /* "Open MPI's mpirun" */
    int64_t size, rank; /* number of ranks, and this one's; size 0: unknown */
} ech_launched;
/* Whether a launcher started this process as a rank. */
bool ech_launched_here(ech_launched *out);

/* Detects that a launcher which this build's MPI does not know has started this process as one of several. MPI
 * then sees one rank in each of the N processes, and each would train alone. mpi_size, mpi_version,
 * mpi_launcher: the number of ranks that MPI sees, its version, the path of its launcher. Errors: ECH_EUSAGE if
 * mpi_size is 1 and the environment shows a launcher of several processes; the message names it and the
 * command to type instead. */
ech_status ech_launched_check(int mpi_size, const char *mpi_version, const char *mpi_launcher);

#endif

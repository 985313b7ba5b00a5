/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers (mpirun, mpiexec, srun, torchrun), recognized from the environment variables that they give their processes.
 * None of the calls is collective.
 */
#ifndef ECH_COMM_LAUNCH_H
#define ECH_COMM_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* What the launcher's variables say; MPI_LOCALNRANKS and MPI_LOCALRANKID count the ranks of one machine alone. */
typedef struct ech_launched {
    const char *by;   /* the launcher, for messages: "Open MPI's mpirun". Static */
    int64_t size;     /* number of ranks; 0: the launcher does not say */
    int64_t rank;     /* this process's, from 0 */
    bool without_mpi; /* its processes meet at MASTER_ADDR and MASTER_PORT */
} ech_launched;
/* Whether a launcher started this process as a rank. False: *out is not changed. */
bool ech_launched_here(ech_launched *out);

/* Detects a launcher that does not fit this build's MPI: mpirun of another MPI, or srun without PMIx. It starts N
 * processes, but in each of them this build's MPI sees one rank, so each would train alone. mpi_size, mpi_version,
 * mpi_launcher: the number of ranks that this build's MPI sees, its version, the path of its launcher. Errors:
 * ECH_EUSAGE if mpi_size is 1 and the environment shows a launcher that started several processes (size > 1, or an
 * unknown size and rank > 0). The message names that launcher and the command to type instead. */
ech_status ech_launched_check(int mpi_size, const char *mpi_version, const char *mpi_launcher);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers (mpirun, mpiexec, srun, torchrun), recognized by the environment variables that they
 * set for their processes. No call is collective.
 */
#ifndef ECH_COMM_LAUNCH_H
#define ECH_COMM_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The contents of the launcher's variables. MPI_LOCALNRANKS and MPI_LOCALRANKID count only the
 * ranks of one machine. */
typedef struct ech_launched {
    const char *by;   /* the launcher, for messages: "Open MPI's mpirun". Static */
    int64_t size;     /* number of ranks; 0: unknown */
    int64_t rank;     /* this process's, from 0 */
    bool without_mpi; /* its processes meet at MASTER_ADDR and MASTER_PORT */
} ech_launched;
/* True if a launcher started this process as a rank. False: *out is not changed. */
bool ech_launched_here(ech_launched *out);

/* Detects a launcher whose processes do not find each other. Examples: mpirun of another MPI, srun
 * without PMIx, or any launcher without RANK and WORLD_SIZE under `ucx`. It starts N processes, but
 * each sees one rank, and would train alone. Argument `size` is the number of ranks that this
 * process sees; `by` is what joins them, for messages ("ucx (UCX 1.13.1)"). The path of the program
 * that starts such ranks is `program`; NULL: they need RANK and WORLD_SIZE. Errors: ECH_EUSAGE if
 * size is 1 and the environment shows a launcher that started several processes (size > 1, or an
 * unknown size and rank > 0). The message names that launcher and what to do instead. */
ech_status ech_launched_check(int size, const char *by, const char *program);

#endif

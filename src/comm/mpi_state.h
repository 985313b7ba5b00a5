/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `mpi`: what an endpoint keeps, and how it begins and ends.
 */
#ifndef ECH_COMM_MPI_STATE_H
#define ECH_COMM_MPI_STATE_H

#include <mpi.h>

#include "base/memory.h"
#include "comm/backend.h"
#include "comm/guard.h"

typedef struct ech_mpi_part {
    MPI_Request request;
    int bytes; /* expected by a receive; -1: not counted */
    int next;  /* of the message, or of the free list */
} ech_mpi_part;

typedef struct ech_mpi_state {
    MPI_Comm points, groups;
    int tag_limit;
    bool synchronous;
    size_t cut;
    bool finalizes; /* this endpoint has called MPI_Init */
    ECH_LIST(ech_mpi_part) parts;
    int free_part;
    ech_guard *guard;
} ech_mpi_state;

/* The library's version, as "Open MPI 4.1.4", and the path of its launcher. */
const char *ech_mpi_version(void);
const char *ech_mpi_launcher(void);

/* The error that `code` of the function `what` is; ECH_OK for success. */
ech_status ech_mpi_check(int code, const char *what);

/* Starts the library, finds the ranks of this machine and their board, and makes the endpoint of
 * this process. Collective over all processes. `wanted`: how many there must be, or 0. */
ech_status ech_mpi_join(ech_mpi_state *state, int wanted, double deadline_seconds, ech_comm **out);
/* Leaves MPI as it was found, and frees the state. Collective. */
void ech_mpi_leave(ech_mpi_state *state);

#endif

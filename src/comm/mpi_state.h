/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `mpi`: the state of an endpoint, and how a process joins and leaves MPI.
 */
#ifndef ECH_COMM_MPI_STATE_H
#define ECH_COMM_MPI_STATE_H

#include "base/memory.h"
#include "comm/backend.h"
#include "comm/guard.h"
#include "comm/mpi_library.h"

/* One MPI request of a message, which may need several (part_bytes). */
typedef struct ech_mpi_part {
    ech_mpi_request request;
    int bytes; /* expected by a receive; -1: not checked */
    int next;  /* the next part of the message, or of the free list; -1: this is the last */
} ech_mpi_part;

typedef struct ech_mpi_state {
    ech_mpi_comm points, groups; /* of all ranks: for point-to-point messages, and for groups */
    int tag_limit;           /* the largest tag of this MPI */
    bool synchronous;        /* send with MPI_Issend (ech_mpi_tune) */
    size_t part_bytes;       /* most bytes per MPI request */
    bool finalizes;          /* this endpoint has called MPI_Init, and will call MPI_Finalize */
    ECH_LIST(ech_mpi_part) parts;
    int free_part; /* the first free one in `parts`; -1: none */
    ech_guard *guard;
} ech_mpi_state;

/* ECH_OK for MPI_SUCCESS, else ECH_ECOMM with MPI's text; `what` names the function. */
ech_status ech_mpi_check(int code, const char *what);
/* Calls MPI_`function` and checks its result. */
#define ECH_MPI(function, ...) ech_mpi_check(ech_mpi.function(__VA_ARGS__), "MPI_" #function)

/* Initializes MPI, finds the ranks of this machine, maps their board, and makes the endpoint of
 * this process. Collective over all processes, which must be `wanted` (0: any number). */
ech_status ech_mpi_join(ech_mpi_state *state, int wanted, double deadline_seconds, ech_comm **out);
/* Finalizes MPI if ech_mpi_join has initialized it, and frees the state. Collective. */
void ech_mpi_leave(ech_mpi_state *state);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives over MPI, run by mpirun: mpi_reduce MODE.
 *
 *   checks       everything that test_reduce checks over threads, and the same bits as over threads
 *   synchronous  the same with sends that complete only when received
 *   split        the same with messages split into many parts
 *   threads, threads_synchronous, threads_split   two threads a rank at once, in these three ways
 *   abort        rank 1 aborts, the others must come out of their waits and say so
 *   deadline     rank 1 never comes, the others must name it
 *   misfit       a receive for other sizes than what is sent
 *   lone         as if a foreign launcher had started this process: refused
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/backend.h"
#include "comm/checks_halves.h"
#include "comm/checks_threads.h"

/* ---- the same bits as over threads ---- */

typedef struct bits {
    ech_reduction reduction;
    ech_dtype dtype, wire;
    char *sums; /* [BITS], of rank `of` */
    int of;
} bits;
enum { BITS = 10007 };

static ech_status reduce_fractions(ech_comm *comm, void *context)
{
    bits *b = context;
    int rank = ech_comm_rank(comm);
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    size_t bytes = BITS * ech_dtype_bytes(b->dtype);
    char *x = malloc(bytes);
    void *scratch =
        malloc(ech_reduction_scratch(b->reduction, b->wire, BITS, checks_lineup(comm)) + 1);
    checks_fill(x, b->dtype, BITS, rank, false);
    ech_tensor view = ech_tensor_1d(x, b->dtype, BITS);
    ech_status st = ech_group_reduce(group, b->reduction, &view, b->wire, scratch);
    if (rank == b->of) memcpy(b->sums, x, bytes);
    free(x);
    free(scratch);
    ech_group_destroy(group);
    return st;
}

static ech_status compare_with_local(ech_comm *comm, ech_reduction reduction,
                                     const struct checks_types *types)
{
    bits here = {.reduction = reduction,
                 .dtype = types->dtype,
                 .wire = types->wire,
                 .of = ech_comm_rank(comm)},
         threads = here;
    size_t item = ech_dtype_bytes(types->dtype);
    here.sums = calloc(BITS, item);
    threads.sums = calloc(BITS, item);
    ech_status st = reduce_fractions(comm, &here);
    if (st == ECH_OK) st = ranks_run(ech_comm_size(comm), 60, reduce_fractions, &threads, NULL);
    bool same = memcmp(here.sums, threads.sums, BITS * item) == 0;
    free(here.sums);
    free(threads.sums);
    ECH_TRY(st);
    RANKS_CHECK(same);
    return ECH_OK;
}

/* ---- modes ---- */

static ech_status run_checks(ech_comm *comm)
{
    for (int i = 0; i < ECH_REDUCTIONS; i++) ECH_TRY(checks_reduction(comm, (ech_reduction)i));
    ECH_TRY(checks_long_reduction(comm, ECH_REDUCTION_DIRECT));
    ECH_TRY(checks_long_reduction(comm, ECH_REDUCTION_RING));
    for (int i = 0; i < ECH_REDUCTIONS; i++)
        if (i != ECH_REDUCTION_LIBRARY) ECH_TRY(checks_sums_in_a_row(comm, (ech_reduction)i));
    for (int i = 0; i < ECH_REDUCTIONS; i++) {
        if (!ech_reduction_has_halves((ech_reduction)i)) continue;
        ECH_TRY(checks_halves(comm, (ech_reduction)i));
        if (i != ECH_REDUCTION_LIBRARY) ECH_TRY(checks_halves_in_a_row(comm, (ech_reduction)i));
    }
    for (int i = 0; i < ECH_REDUCTIONS; i++)
        for (int t = 0; t < CHECKS_TYPES && i != ECH_REDUCTION_LIBRARY; t++)
            if (checks_takes((ech_reduction)i, &checks_types[t]))
                ECH_TRY(compare_with_local(comm, (ech_reduction)i, &checks_types[t]));
    ECH_TRY(checks_messages(comm));
    ECH_TRY(checks_fold(comm));
    ECH_TRY(checks_gather(comm));
    ECH_TRY(checks_broadcast(comm));
    return checks_mixed_groups(comm);
}

/* The library's own reduction too, of one thread beside the other's messages. */
static ech_status reduce_by_library(ech_comm *comm, void *context)
{
    (void)context;
    for (int turn = 0; turn < 3; turn++) ECH_TRY(checks_reduction(comm, ECH_REDUCTION_LIBRARY));
    return ECH_OK;
}

static ech_status run_threads(ech_comm *comm)
{
    ECH_TRY(checks_threads(comm));
    return checks_both(comm, reduce_by_library, NULL, checks_use_messages, NULL);
}

/* Waits for rank 1, which does not send; returns the wait's status. */
static ech_status wait_for_one(ech_comm *comm)
{
    int in;
    ech_request request;
    ECH_TRY(ech_comm_receive_start(comm, 1, 9, &in, sizeof in, &request));
    return ech_comm_wait(comm, &request, 1);
}

/* Rank 1 ends the job once rank 0 has come out, however long that takes. */
static ech_status run_abort(ech_comm *comm)
{
    enum { OUT = 1 };
    if (ech_comm_rank(comm) == 1) {
        ech_comm_raise(comm);
        while (atomic_load(&comm->board->slot[0].step) != OUT) usleep(1000);
        return ECH_EIO;
    }
    ech_status st = wait_for_one(comm);
    if (st == ECH_EABORTED) fprintf(stderr, "rank %d came out\n", ech_comm_rank(comm));
    if (st == ECH_EABORTED) ech_comm_set_position(comm, OUT, "came out");
    return st;
}

static ech_status run_deadline(ech_comm *comm)
{
    ech_comm_set_position(comm, 3, ech_comm_rank(comm) == 1 ? "lost in block 5" : "receive");
    ECH_TRY(checks_meet(comm));
    comm->deadline = 0.2;
    if (ech_comm_rank(comm) == 1)
        for (;;) pause(); /* until the others' MPI_Abort */
    return wait_for_one(comm);
}

static ech_status run_misfit(ech_comm *comm)
{
    char bytes[12] = {0};
    ech_request request;
    if (ech_comm_rank(comm) == 0) {
        ECH_TRY(ech_comm_send_start(comm, 1, 4, bytes, 8, &request));
        return ech_comm_wait(comm, &request, 1);
    }
    ech_log_set_quiet(true);
    ECH_TRY(ech_comm_receive_start(comm, 0, 4, bytes, 12, &request));
    ech_status st = ech_comm_wait(comm, &request, 1);
    RANKS_CHECK(st == ECH_EINTERNAL);
    RANKS_CHECK(strstr(ech_last_error(), "rank 0 sends 8 bytes to rank 1 with tag 4"));
    fprintf(stderr, "the misfit was seen\n");
    return st;
}

static int run_lone(void)
{
    setenv("MPI_LOCALNRANKS", "4", 1);
    setenv("MPI_LOCALRANKID", "2", 1);
    ech_comm *comm;
    ech_status st = ech_comm_open(ech_comm_find("mpi"), 0, 5, &comm);
    return st == ECH_EUSAGE && strstr(ech_last_error(), "MPI_LOCALNRANKS=4") ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    if (strcmp(mode, "lone") == 0) return run_lone();
    ech_comm *comm;
    if (ech_comm_open(ech_comm_find("mpi"), 0, 60, &comm) != ECH_OK) return 1;
    ech_log_set_rank(ech_comm_rank(comm));

    ech_status st = ECH_EUSAGE;
    if (strstr(mode, "synchronous")) ech_mpi_tune(comm, true, 1 << 30);
    if (strstr(mode, "split")) ech_mpi_tune(comm, false, 1000);
    if (strcmp(mode, "abort") == 0)
        st = run_abort(comm);
    else if (strcmp(mode, "deadline") == 0)
        st = run_deadline(comm);
    else if (strcmp(mode, "misfit") == 0)
        st = run_misfit(comm);
    else if (strncmp(mode, "threads", 7) == 0)
        st = run_threads(comm);
    else
        st = run_checks(comm);
    if (st != ECH_OK) ech_comm_abort(comm, st);
    ech_comm_close(comm);
    return st == ECH_OK ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of comm/collective.h over MPI, run by mpirun: mpi_collective MODE.
 *
 *   checks       everything that test_collective checks over threads
 *   synchronous  the same with sends that complete only when received
 *   split        the same with messages split into many parts
 *   threads, threads_synchronous, threads_split   two threads a rank at once, in these three ways
 *   machines     as if a launcher had dealt the processes out to two machines in turn
 *   abort        rank 1 aborts, the others must come out of the collective and say so
 */
#include <unistd.h>

#include "comm/backend.h"
#include "comm/checks_collective.h"

static ech_status run_checks(ech_comm *comm)
{
    ECH_TRY(checks_collectives(comm));
    return checks_long_collectives(comm);
}

/* The world's processes 0, 2, .. come first, then 1, 3, ...: the ranks of each machine follow each
 * other, and everything goes on as before. */
static ech_status run_machines(ech_comm *comm, int world_rank)
{
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm), first_ones = (N + 1) / 2;
    int machine = world_rank % 2;
    RANKS_CHECK(rank == world_rank / 2 + (machine ? first_ones : 0));
    RANKS_CHECK(ech_comm_local_size(comm) == (machine ? N - first_ones : first_ones));
    for (int other = 0; other < N; other++) {
        int pair[2] = {rank, other};
        bool near = (other >= first_ones) == (machine == 1);
        RANKS_CHECK(ech_comm_is_near(comm, pair, 2) == near);
        RANKS_CHECK(ech_comm_is_near(comm, pair + 1, 1) == near);
    }
    RANKS_CHECK(comm->rank - comm->local_rank == (machine ? first_ones : 0));
    RANKS_CHECK(comm->board->slot[comm->local_rank].rank == rank);
    ECH_TRY(checks_messages(comm));
    ECH_TRY(checks_reduction(comm, ECH_REDUCTION_LIBRARY));
    return checks_collectives(comm);
}

/* Rank 1 ends the job once rank 0 has come out, however long that takes. */
static ech_status run_abort(ech_comm *comm)
{
    enum { OUT = 1 };
    ech_group *group;
    float in[64] = {0}, out[64];
    ECH_TRY(checks_world(comm, &group));
    ech_status st = ECH_EIO;
    if (ech_comm_rank(comm) != 1) {
        st = ech_group_all_gather(group, out, in, sizeof *in, 64);
    } else {
        ech_comm_raise(comm);
        while (atomic_load(&comm->board->slot[0].step) != OUT) usleep(1000);
    }
    if (st == ECH_EABORTED) fprintf(stderr, "rank %d came out\n", ech_comm_rank(comm));
    if (st == ECH_EABORTED) ech_comm_set_position(comm, OUT, "came out");
    ech_group_destroy(group);
    return st;
}

/* Before MPI says it: the launcher's word. */
static int find_world_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (int i = 0; i < 3; i++)
        if (getenv(names[i])) return atoi(getenv(names[i]));
    return -1;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    bool machines = strcmp(mode, "machines") == 0;
    if (machines) ech_mpi_pretend_machines(2);
    ech_comm *comm;
    if (ech_comm_open(ech_comm_find("mpi"), 0, 60, &comm) != ECH_OK) return 1;
    ech_log_set_rank(ech_comm_rank(comm));

    ech_status st = ECH_OK;
    if (strstr(mode, "synchronous")) ech_mpi_tune(comm, true, 1 << 30);
    if (strstr(mode, "split")) ech_mpi_tune(comm, false, 1000);
    if (machines)
        st = run_machines(comm, find_world_rank());
    else if (strcmp(mode, "abort") == 0)
        st = run_abort(comm);
    else if (strncmp(mode, "threads", 7) == 0)
        st = checks_threads_collectives(comm);
    else
        st = run_checks(comm);
    if (st != ECH_OK) ech_comm_abort(comm, st);
    ech_comm_close(comm);
    return st == ECH_OK ? 0 : 1;
}

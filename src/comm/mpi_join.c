/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `mpi`: how a process joins and leaves. Most calls of MPI here wait for all processes
 * without a deadline; the guard has one.
 */
#include <stdlib.h>

#include "base/log.h"
#include "comm/launch.h"
#include "comm/mpi_state.h"

/* If there is too little, MPI ends the process without a reason. The first rank reports it. */
static void warn_of_shared_memory(void)
{
    char room[32];
    ech_launched launched;
    bool is_first = ech_launched_here(&launched) && launched.rank == 0 && launched.size > 1;
    if (is_first && ech_transient_is_tight(1, room, sizeof room))
        ech_log_warn("/dev/shm has only %s free, and MPI may not start: " ECH_TRANSIENT_REMEDY,
                     room);
}

/* For a single rank of Open MPI 4; the number of ranks is known once MPI has started. */
enum { FILES = 32 };

static ech_status init_library(ech_mpi_state *state)
{
    int initialized, finalized, level;
    ECH_TRY(ECH_MPI(Finalized, &finalized));
    if (finalized)
        ECH_FAIL(ECH_EUNSUPPORTED, "MPI cannot start again in a process where it has ended; start "
                                   "a new process for each run");
    ECH_TRY(ECH_MPI(Initialized, &initialized));
    if (!initialized) {
        ECH_TRY(ech_open_files_check(ech_comm_mpi.name, FILES));
        warn_of_shared_memory();
        ECH_TRY(ECH_MPI(Init_thread, NULL, NULL, ECH_MPI_THREAD_MULTIPLE, &level));
        state->finalizes = true;
    }
    ECH_TRY(ECH_MPI(Comm_set_errhandler, ech_mpi.COMM_WORLD, ech_mpi.ERRORS_RETURN));
    ECH_TRY(ECH_MPI(Query_thread, &level));
    if (level < ECH_MPI_THREAD_SERIALIZED)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s offers thread level %d, but %d (serialized) is needed: "
                 "use an MPI built with thread support",
                 ech_mpi_version(), level, ECH_MPI_THREAD_SERIALIZED);
    return ECH_OK;
}

static ech_status check_size(int wanted)
{
    int size;
    ECH_TRY(ECH_MPI(Comm_size, ech_mpi.COMM_WORLD, &size));
    if (wanted && wanted != size)
        ECH_FAIL(ECH_EUSAGE, "%d ranks were asked for, but the launcher started %d: use %s -n %d",
                 wanted, size, ech_comm_mpi.launcher, wanted);
    return ECH_OK;
}

/* ech_mpi_pretend_machines; 0: the real machines. */
static int pretended_machines;

void ech_mpi_pretend_machines(int machines)
{
    pretended_machines = machines;
}

/* The processes of this machine, in the order of MPI_COMM_WORLD. */
static ech_status find_machine(ech_mpi_comm *machine)
{
    int rank;
    ECH_TRY(ECH_MPI(Comm_rank, ech_mpi.COMM_WORLD, &rank));
    if (pretended_machines)
        return ECH_MPI(Comm_split, ech_mpi.COMM_WORLD, rank % pretended_machines, rank, machine);
    return ECH_MPI(Comm_split_type, ech_mpi.COMM_WORLD, ECH_MPI_COMM_TYPE_SHARED, rank,
                   ech_mpi.INFO_NULL, machine);
}

/* All processes, machine by machine in the order of their first ones: even if the launcher assigns
 * processes to machines in turn, the ranks of a machine are consecutive. If they are already, ranks
 * are the same as in MPI_COMM_WORLD; rank 0 always is. */
static ech_status order_ranks(ech_mpi_comm machine, ech_mpi_comm *out)
{
    int first; /* of the machine; processes with equal keys keep their order */
    ECH_TRY(ECH_MPI(Comm_rank, ech_mpi.COMM_WORLD, &first));
    ECH_TRY(ECH_MPI(Bcast, &first, 1, ech_mpi.INT, 0, machine));
    return ECH_MPI(Comm_split, ech_mpi.COMM_WORLD, 0, first, out);
}

static ech_status make_communicators(ech_mpi_state *state, ech_mpi_comm machine)
{
    ECH_TRY(order_ranks(machine, &state->points));
    ECH_TRY(ECH_MPI(Comm_dup, state->points, &state->groups));
    int found, *limit;
    ECH_TRY(ECH_MPI(Comm_get_attr, ech_mpi.COMM_WORLD, ECH_MPI_TAG_UB, &limit, &found));
    if (!found || *limit < ECH_COMM_TAGS - 1)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s has tags up to %d, but %d are needed, a limit of its transport: try another "
                 "one (UCX or libfabric), another MPI, or parallel.comm=ucx",
                 ech_mpi_version(), found ? *limit : 0, ECH_COMM_TAGS);
    state->tag_limit = *limit;
    return ECH_OK;
}

/* The board's file: local rank 0 makes it (path "": it cannot), the others of this machine open
 * it. */
static ech_status open_board(ech_mpi_comm machine, int local_rank, int local_size,
                             ech_transient *file, ech_board **board)
{
    char *path = file->path;
    ech_status st = ECH_OK;
    if (local_rank == 0) st = ech_board_file_take(local_size, file, board);
    ECH_TRY(ECH_MPI(Bcast, path, sizeof file->path, ech_mpi.CHAR, 0, machine));
    if (local_rank != 0) st = *path ? ech_board_file_open(path, local_size, board) : ECH_EABORTED;
    /* All ranks of the job continue, or none. */
    int mine = st, worst;
    ECH_TRY(ECH_MPI(Allreduce, &mine, &worst, 1, ech_mpi.INT, ech_mpi.MIN, ech_mpi.COMM_WORLD));
    if (st == ECH_OK && worst != ECH_OK) st = ECH_EABORTED;
    return st;
}

/* Once all ranks have opened the file its name is not needed: nothing of a killed job remains. */
static ech_status share_board(ech_mpi_comm machine, int local_rank, int local_size,
                              ech_board **board)
{
    ech_transient file = {.hold = -1};
    ech_status st = open_board(machine, local_rank, local_size, &file, board);
    if (local_rank == 0 && *file.path) ech_transient_remove(&file);
    return st;
}

/* Makes the endpoint of this process among the processes of its machine. */
static ech_status join_machine(ech_mpi_state *state, ech_mpi_comm machine, double deadline_seconds,
                               ech_comm **out)
{
    int rank, size, local_rank, local_size;
    ECH_TRY(make_communicators(state, machine));
    ECH_TRY(ECH_MPI(Comm_rank, state->points, &rank));
    ECH_TRY(ECH_MPI(Comm_size, state->points, &size));
    ECH_TRY(ECH_MPI(Comm_rank, machine, &local_rank));
    ECH_TRY(ECH_MPI(Comm_size, machine, &local_size));

    ech_board *board = NULL;
    ech_status st = share_board(machine, local_rank, local_size, &board);
    if (st != ECH_OK) {
        ech_board_file_unmap(board);
        return st;
    }
    *out =
        ech_comm_make(&ech_comm_mpi, rank, size, local_rank, local_size, deadline_seconds, board);
    (*out)->state = state;
    return ECH_OK;
}

static ech_status join_processes(ech_mpi_state *state, int wanted, double deadline_seconds,
                                 ech_comm **out)
{
    ech_mpi_comm machine;
    ECH_TRY(init_library(state));
    ECH_TRY(check_size(wanted));
    ECH_TRY(find_machine(&machine));
    ech_status st = join_machine(state, machine, deadline_seconds, out);
    ech_mpi.Comm_free(&machine);
    return st;
}

ech_status ech_mpi_join(ech_mpi_state *state, int wanted, double deadline_seconds, ech_comm **out)
{
    ECH_TRY(ech_guard_start(deadline_seconds, &state->guard));
    ech_guard_enter(state->guard, "the start of MPI");
    ech_status st = join_processes(state, wanted, deadline_seconds, out);
    ech_guard_leave(state->guard);
    if (st == ECH_OK) ech_guard_watch(state->guard, (*out)->board, (*out)->local_rank);
    return st;
}

void ech_mpi_leave(ech_mpi_state *state)
{
    int finalized = 0;
    if (state->guard) ech_guard_enter(state->guard, "the end of MPI");
    ech_mpi.Finalized(&finalized);
    if (!finalized) {
        if (state->points != ech_mpi.COMM_NULL) ech_mpi.Comm_free(&state->points);
        if (state->groups != ech_mpi.COMM_NULL) ech_mpi.Comm_free(&state->groups);
        if (state->finalizes) ech_mpi.Finalize();
    }
    ech_guard_stop(state->guard);
    free(state->parts.at);
    free(state);
}

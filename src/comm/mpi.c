/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `mpi`: a process a rank. The only file that knows MPI (3.1); its errors end here.
 *
 * Ranks are numbered machine by machine, so that neighbours share one as far as they can. Two
 * communicators of all ranks keep the caller's tags and the groups' apart. A message is one or
 * more parts of at most `cut` bytes, since MPI counts in int; all parts are posted at once, so
 * their order is the order of messages.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/backend.h"
#include "comm/launch.h"

/* The launcher of the MPI that this was built with comes from CMake. */
static const char mpiexec[] = ECH_MPIEXEC;

enum { CUT = 1 << 30, PATH_BYTES = 256, NO_PART = -1 };

typedef struct part {
    MPI_Request request;
    int bytes; /* expected by a receive; -1: not counted */
    int next;  /* of the message, or of the free list */
} part;

typedef struct mpi_state {
    MPI_Comm points, groups;
    int tag_limit;
    bool synchronous;
    size_t cut;
    bool finalizes; /* this endpoint has called MPI_Init */
    ECH_LIST(part) parts;
    int free_part;
} mpi_state;

static const char *launcher(void)
{
    return mpiexec;
}

/* "Open MPI v4.1.4, package: ..." -> "Open MPI 4.1.4"; "MPICH Version:\t4.0.2\n..." likewise. */
static char version_text[64];
static void make_version(void)
{
    char raw[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    if (MPI_Get_library_version(raw, &n) != MPI_SUCCESS) strcpy(raw, "an MPI without a version");
    char flavor[32] = "", number[24] = "";
    if (sscanf(raw, "Open MPI v%23[^, \n]", number) == 1)
        strcpy(flavor, "Open MPI");
    else if (sscanf(raw, "%31[A-Za-z] Version: %23[^, \n]", flavor, number) != 2)
        snprintf(flavor, sizeof flavor, "%.*s", (int)strcspn(raw, ",\n"), raw);
    snprintf(version_text, sizeof version_text, "%s%s%s", flavor, *number ? " " : "", number);
}

static const char *version(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_version);
    return version_text;
}

static ech_status check(int code, const char *what)
{
    if (code == MPI_SUCCESS) return ECH_OK;
    char text[MPI_MAX_ERROR_STRING];
    int n;
    if (MPI_Error_string(code, text, &n) != MPI_SUCCESS) snprintf(text, sizeof text, "?");
    ECH_FAIL(ECH_ECOMM, "%s: %s", what, text);
}

/* ---- joining ---- */

static ech_status init_library(mpi_state *state)
{
    int initialized, finalized, level;
    ECH_TRY(check(MPI_Finalized(&finalized), "MPI_Finalized"));
    if (finalized)
        ECH_FAIL(ECH_EUNSUPPORTED, "MPI cannot start again in a process where it has ended");
    ECH_TRY(check(MPI_Initialized(&initialized), "MPI_Initialized"));
    if (!initialized) {
        ECH_TRY(check(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread"));
        state->finalizes = true;
    }
    ECH_TRY(check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI error handler"));
    ECH_TRY(check(MPI_Query_thread(&level), "MPI_Query_thread"));
    if (level < MPI_THREAD_SERIALIZED)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s offers thread level %d, but %d (serialized) is needed: "
                 "use an MPI built with thread support",
                 version(), level, MPI_THREAD_SERIALIZED);
    return ECH_OK;
}

static const char *look_up(const char *name)
{
    return getenv(name);
}

static ech_status check_size(int wanted)
{
    int size;
    ECH_TRY(check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size"));
    ECH_TRY(ech_launch_check(look_up, size, version(), mpiexec));
    if (wanted && wanted != size)
        ECH_FAIL(ECH_EUSAGE, "%d ranks were asked for, but the launcher started %d: use %s -n %d",
                 wanted, size, mpiexec, wanted);
    return ECH_OK;
}

/* 0: machines are what they are. */
static int pretended_machines;

void ech_mpi_pretend_machines(int machines)
{
    pretended_machines = machines;
}

/* The processes of this machine, in the order of MPI_COMM_WORLD. */
static ech_status find_machine(MPI_Comm *machine)
{
    int rank;
    ECH_TRY(check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank"));
    if (pretended_machines)
        return check(MPI_Comm_split(MPI_COMM_WORLD, rank % pretended_machines, rank, machine),
                     "MPI_Comm_split");
    return check(
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, machine),
        "MPI_Comm_split_type");
}

/* All processes, machine by machine in the order of their first ones: where the launcher deals
 * processes out in turn, the ranks of a machine follow each other all the same. Where they do so
 * already, ranks are those of MPI_COMM_WORLD; rank 0 always is. */
static ech_status order_ranks(MPI_Comm machine, MPI_Comm *out)
{
    int first; /* of the machine; processes with equal keys keep their order */
    ECH_TRY(check(MPI_Comm_rank(MPI_COMM_WORLD, &first), "MPI_Comm_rank"));
    ECH_TRY(check(MPI_Bcast(&first, 1, MPI_INT, 0, machine), "MPI_Bcast"));
    return check(MPI_Comm_split(MPI_COMM_WORLD, 0, first, out), "MPI_Comm_split");
}

static ech_status make_communicators(mpi_state *state, MPI_Comm machine)
{
    ECH_TRY(order_ranks(machine, &state->points));
    ECH_TRY(check(MPI_Comm_dup(state->points, &state->groups), "MPI_Comm_dup"));
    int found, *limit;
    ECH_TRY(check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found), "MPI_TAG_UB"));
    if (!found || *limit < ECH_COMM_TAGS - 1)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s has tags up to %d, but %d are needed: use another MPI",
                 version(), found ? *limit : 0, ECH_COMM_TAGS);
    state->tag_limit = *limit;
    return ECH_OK;
}

/* The board's file: local rank 0 takes one (path "": it cannot), the others of this machine open it. */
static ech_status open_board(MPI_Comm machine, int local_rank, int local_size, char *path,
                             ech_board **board)
{
    ech_status st = ECH_OK;
    if (local_rank == 0) st = ech_board_file_take(local_size, path, PATH_BYTES, board);
    if (st != ECH_OK) *path = '\0';
    ECH_TRY(check(MPI_Bcast(path, PATH_BYTES, MPI_CHAR, 0, machine), "MPI_Bcast"));
    if (local_rank != 0) st = *path ? ech_board_file_open(path, local_size, board) : ECH_EABORTED;
    /* All ranks of the job go on, or none. */
    int mine = st, worst;
    ECH_TRY(
        check(MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce"));
    if (st == ECH_OK && worst != ECH_OK) st = ECH_EABORTED;
    return st;
}

/* Once everyone has opened the file nobody needs its name: nothing is left of a killed job. */
static ech_status share_board(MPI_Comm machine, int local_rank, int local_size, ech_board **board)
{
    char path[PATH_BYTES] = "";
    ech_status st = open_board(machine, local_rank, local_size, path, board);
    if (local_rank == 0 && *path) unlink(path);
    return st;
}

/* Makes the endpoint of this process among those of its machine. */
static ech_status join_machine(mpi_state *state, MPI_Comm machine, double deadline_seconds,
                               ech_comm **out)
{
    int rank, size, local_rank, local_size;
    ECH_TRY(make_communicators(state, machine));
    ECH_TRY(check(MPI_Comm_rank(state->points, &rank), "MPI_Comm_rank"));
    ECH_TRY(check(MPI_Comm_size(state->points, &size), "MPI_Comm_size"));
    ECH_TRY(check(MPI_Comm_rank(machine, &local_rank), "MPI_Comm_rank"));
    ECH_TRY(check(MPI_Comm_size(machine, &local_size), "MPI_Comm_size"));

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

static ech_status join(mpi_state *state, int wanted, double deadline_seconds, ech_comm **out)
{
    MPI_Comm machine;
    ECH_TRY(init_library(state));
    ECH_TRY(check_size(wanted));
    ECH_TRY(find_machine(&machine));
    ech_status st = join_machine(state, machine, deadline_seconds, out);
    MPI_Comm_free(&machine);
    return st;
}

/* Leaves MPI as it was found. */
static void leave(mpi_state *state)
{
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized) {
        if (state->points != MPI_COMM_NULL) MPI_Comm_free(&state->points);
        if (state->groups != MPI_COMM_NULL) MPI_Comm_free(&state->groups);
        if (state->finalizes) MPI_Finalize();
    }
    free(state->parts.at);
    free(state);
}

static ech_status open_own(int size, double deadline_seconds, ech_comm **endpoints)
{
    mpi_state *state = ech_calloc(1, sizeof *state);
    state->points = MPI_COMM_NULL;
    state->groups = MPI_COMM_NULL;
    state->cut = CUT;
    state->free_part = NO_PART;
    ech_status st = join(state, size, deadline_seconds, &endpoints[0]);
    if (st != ECH_OK) leave(state);
    return st;
}

/* ---- messages ---- */

static int new_part(mpi_state *state)
{
    int at = state->free_part;
    if (at != NO_PART) {
        state->free_part = state->parts.at[at].next;
        return at;
    }
    ECH_PUSH(state->parts, (part){.next = NO_PART});
    return (int)state->parts.n - 1;
}

/* Posts one part; requests name their first part. */
static ech_status start_part(mpi_state *state, const ech_request *request, const char *from,
                             char *to, size_t bytes, int at)
{
    bool own = request->tag < ECH_COMM_TAGS;
    MPI_Comm in = own ? state->points : state->groups;
    int tag = own ? request->tag : request->tag - ECH_COMM_TAGS;
    part *p = &state->parts.at[at];
    p->bytes = request->sends ? -1 : (int)bytes;
    p->next = NO_PART;
    if (tag > state->tag_limit)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s has tags up to %d, too few for so many groups", version(),
                 state->tag_limit);
    if (!request->sends)
        return check(MPI_Irecv(to, (int)bytes, MPI_BYTE, request->peer, tag, in, &p->request),
                     "MPI_Irecv");
    if (state->synchronous)
        return check(MPI_Issend(from, (int)bytes, MPI_BYTE, request->peer, tag, in, &p->request),
                     "MPI_Issend");
    return check(MPI_Isend(from, (int)bytes, MPI_BYTE, request->peer, tag, in, &p->request),
                 "MPI_Isend");
}

static ech_status start(ech_comm *comm, ech_request *request, const char *from, char *to)
{
    mpi_state *state = comm->state;
    int last = NO_PART;
    size_t at = 0;
    do {
        size_t left = request->bytes - at;
        size_t bytes = left < state->cut ? left : state->cut;
        int p = new_part(state);
        if (last == NO_PART)
            request->id = (uint64_t)p;
        else
            state->parts.at[last].next = p;
        ECH_TRY(start_part(state, request, from ? from + at : NULL, to ? to + at : NULL, bytes, p));
        last = p;
        at += bytes;
    } while (at < request->bytes);
    return ECH_OK;
}

static ech_status send_start(ech_comm *comm, const void *data, ech_request *request)
{
    return start(comm, request, data, NULL);
}

static ech_status receive_start(ech_comm *comm, void *data, ech_request *request)
{
    return start(comm, request, NULL, data);
}

/* MPI takes a shorter message for a longer receive without a word. */
static ech_status check_bytes(const ech_comm *comm, const ech_request *request, const part *p,
                              MPI_Status *status)
{
    int bytes;
    ECH_TRY(check(MPI_Get_count(status, MPI_BYTE, &bytes), "MPI_Get_count"));
    if (p->bytes >= 0 && bytes != p->bytes)
        ECH_FAIL(ECH_EINTERNAL,
                 "rank %d sends %d bytes to rank %d with tag %d, but the receive is for %d bytes",
                 request->peer, bytes, comm->rank, request->tag, p->bytes);
    return ECH_OK;
}

static ech_status test(ech_comm *comm, ech_request *request)
{
    mpi_state *state = comm->state;
    for (;;) {
        int at = (int)request->id, done;
        part *p = &state->parts.at[at];
        MPI_Status status;
        int code = MPI_Test(&p->request, &done, &status);
        if (code != MPI_SUCCESS) {
            int class = MPI_ERR_OTHER;
            MPI_Error_class(code, &class);
            if (class != MPI_ERR_TRUNCATE) return check(code, "MPI_Test");
            ECH_FAIL(ECH_EINTERNAL,
                     "rank %d sends more than %d bytes to rank %d with tag %d, for "
                     "which the receive is",
                     request->peer, p->bytes, comm->rank, request->tag);
        }
        if (!done) return ECH_OK;
        if (p->bytes >= 0) ECH_TRY(check_bytes(comm, request, p, &status));
        int next = p->next;
        p->next = state->free_part;
        state->free_part = at;
        if (next == NO_PART) break;
        request->id = (uint64_t)next;
    }
    request->done = true;
    return ECH_OK;
}

/* ---- the library's own reduction ---- */

static ech_status make_group(ech_comm *comm, const int *ranks, int size, MPI_Comm *out)
{
    mpi_state *state = comm->state;
    MPI_Group world, members;
    ECH_TRY(check(MPI_Comm_group(state->groups, &world), "MPI_Comm_group"));
    ech_status st = check(MPI_Group_incl(world, size, ranks, &members), "MPI_Group_incl");
    if (st == ECH_OK) {
        st = check(MPI_Comm_create_group(state->groups, members, 0, out), "MPI_Comm_create_group");
        MPI_Group_free(&members);
    }
    MPI_Group_free(&world);
    return st;
}

static ech_status allreduce_start(ech_comm *comm, const int *ranks, int size, void **handle,
                                  void *x, int64_t n, ech_dtype dtype, ech_request *request)
{
    mpi_state *state = comm->state;
    if (!*handle) {
        MPI_Comm in;
        ECH_TRY(make_group(comm, ranks, size, &in));
        MPI_Comm *kept = ech_calloc(1, sizeof *kept);
        *kept = in;
        *handle = kept;
    }
    MPI_Datatype type = dtype == ECH_F32 ? MPI_FLOAT : MPI_DOUBLE;
    int64_t item = (int64_t)ech_dtype_bytes(dtype), cut = (int64_t)state->cut / item;
    int last = NO_PART;
    for (int64_t at = 0; at < n; at += cut) {
        int some = (int)(n - at < cut ? n - at : cut);
        int p = new_part(state);
        state->parts.at[p].bytes = -1;
        state->parts.at[p].next = NO_PART;
        if (last == NO_PART)
            request->id = (uint64_t)p;
        else
            state->parts.at[last].next = p;
        ECH_TRY(check(MPI_Iallreduce(MPI_IN_PLACE, (char *)x + at * item, some, type, MPI_SUM,
                                     *(MPI_Comm *)*handle, &state->parts.at[p].request),
                      "MPI_Iallreduce"));
        last = p;
    }
    return ECH_OK;
}

static void allreduce_forget(ech_comm *comm, void *handle)
{
    MPI_Comm *kept = handle;
    if (!comm->dead) MPI_Comm_free(kept);
    free(kept);
}

/* ---- the end ---- */

/* MPI moves nothing outside of calls, and none follows but MPI_Abort. */
static void withdraw(ech_comm *comm)
{
    (void)comm;
}

static void abort_job(ech_comm *comm)
{
    (void)comm;
    int finalized = 0;
    MPI_Finalized(&finalized);
    fflush(NULL);
    if (!finalized) MPI_Abort(MPI_COMM_WORLD, 1);
}

static void close_own(ech_comm *comm)
{
    mpi_state *state = comm->state;
    ech_board_leave(comm->board, comm->local_rank);
    ech_board_file_unmap(comm->board);
    leave(state);
}

void ech_mpi_tune(ech_comm *comm, bool synchronous, size_t cut_bytes)
{
    mpi_state *state = comm->state;
    state->synchronous = synchronous;
    state->cut = cut_bytes;
}

const ech_comm_backend ech_comm_mpi = {
    .name = "mpi",
    .launcher = launcher,
    .version = version,
    .open = open_own,
    .close = close_own,
    .send_start = send_start,
    .receive_start = receive_start,
    .test = test,
    .withdraw = withdraw,
    .abort = abort_job,
    .grace_ms = 300, /* other ranks print, before MPI_Abort ends them */
    .allreduce_start = allreduce_start,
    .allreduce_forget = allreduce_forget,
};

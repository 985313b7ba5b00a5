/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `mpi`: one process per rank. Only this file and mpi_join.c call MPI (3.1), through
 * the table of mpi_library.h.
 *
 * Ranks are numbered machine by machine, so that neighbours are on one machine as far as possible.
 * Two communicators of all ranks separate the caller's tags from the groups'. A message is sent in
 * parts of at most part_bytes, since MPI counts in int; all parts are posted at once, so messages
 * keep their order.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/mpi_state.h"

/* PARTS: allocated in advance. The number in flight depends on timing, but only the first training
 * step may allocate. */
enum { PART_BYTES = 1 << 30, NO_PART = -1, PARTS = 256 };

ech_status ech_mpi_check(int code, const char *what)
{
    if (code == ECH_MPI_SUCCESS) return ECH_OK;
    char text[ECH_MPI_ERROR_BYTES];
    int n;
    if (ech_mpi.Error_string(code, text, &n) != ECH_MPI_SUCCESS) snprintf(text, sizeof text, "?");
    ECH_FAIL(ECH_ECOMM, "%s: %s; see what MPI says above, or use parallel.comm=ucx", what, text);
}

static ech_status open_own(int size, double deadline_seconds, ech_comm **endpoints)
{
    ECH_TRY(ech_mpi_open());
    ech_mpi_state *state = ech_calloc(1, sizeof *state);
    state->points = ech_mpi.COMM_NULL;
    state->groups = ech_mpi.COMM_NULL;
    state->part_bytes = PART_BYTES;
    state->free_part = NO_PART;
    state->parts.at = ech_grow(NULL, &state->parts.capacity, PARTS, sizeof *state->parts.at);
    ech_status st = ech_mpi_join(state, size, deadline_seconds, &endpoints[0]);
    if (st != ECH_OK) ech_mpi_leave(state);
    return st;
}

/* ---- messages ---- */

static int new_part(ech_mpi_state *state)
{
    int at = state->free_part;
    if (at != NO_PART) {
        state->free_part = state->parts.at[at].next;
        return at;
    }
    ECH_PUSH(state->parts, (ech_mpi_part){.next = NO_PART});
    return (int)state->parts.n - 1;
}

/* Adds a part to a request after part `last`; NO_PART: its first part, which the request then
 * names. */
static int add_part(ech_mpi_state *state, ech_request *request, int last)
{
    int added = new_part(state);
    state->parts.at[added] = (ech_mpi_part){.bytes = -1, .next = NO_PART};
    if (last == NO_PART)
        request->id = (uint64_t)added;
    else
        state->parts.at[last].next = added;
    return added;
}

static ech_status start_part(const ech_mpi_state *state, const ech_request *request,
                             const char *from, char *to, int bytes, ech_mpi_request *out)
{
    bool own = request->tag < ECH_COMM_TAGS;
    ech_mpi_comm in = own ? state->points : state->groups;
    int tag = own ? request->tag : request->tag - ECH_COMM_TAGS, peer = request->peer;
    if (tag > state->tag_limit)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s has tags up to %d, too few for so many groups; use another MPI, or "
                 "parallel.comm=ucx",
                 ech_mpi_version(), state->tag_limit);
    if (!request->sends) return ECH_MPI(Irecv, to, bytes, ech_mpi.BYTE, peer, tag, in, out);
    if (state->synchronous) return ECH_MPI(Issend, from, bytes, ech_mpi.BYTE, peer, tag, in, out);
    return ECH_MPI(Isend, from, bytes, ech_mpi.BYTE, peer, tag, in, out);
}

static ech_status start(ech_comm *comm, ech_request *request, const void *from, void *to)
{
    ech_mpi_state *state = comm->state;
    size_t at = 0;
    int last = NO_PART;
    do {
        size_t left = request->bytes - at;
        size_t bytes = left < state->part_bytes ? left : state->part_bytes;
        last = add_part(state, request, last);
        ech_mpi_part *p = &state->parts.at[last];
        p->bytes = request->sends ? -1 : (int)bytes;
        ECH_TRY(start_part(state, request, from ? (const char *)from + at : NULL,
                           to ? (char *)to + at : NULL, (int)bytes, &p->request));
        at += bytes;
    } while (at < request->bytes);
    return ECH_OK;
}

/* MPI accepts a message that is shorter than its receive. */
static ech_status check_bytes(const ech_comm *comm, const ech_request *request,
                              const ech_mpi_part *p, ech_mpi_status *status)
{
    int bytes;
    ECH_TRY(ECH_MPI(Get_count, status, ech_mpi.BYTE, &bytes));
    if (p->bytes >= 0 && bytes != p->bytes)
        ECH_FAIL(ECH_EINTERNAL,
                 "rank %d sends %d bytes to rank %d with tag %d, but the receive is for %d bytes",
                 request->peer, bytes, comm->rank, request->tag, p->bytes);
    return ECH_OK;
}

static ech_status test(ech_comm *comm, ech_request *request)
{
    ech_mpi_state *state = comm->state;
    for (;;) {
        int at = (int)request->id, done;
        ech_mpi_part *p = &state->parts.at[at];
        ech_mpi_status status;
        int code = ech_mpi.Test(&p->request, &done, &status);
        if (code != ECH_MPI_SUCCESS) {
            int class = ECH_MPI_ERR_OTHER;
            ech_mpi.Error_class(code, &class);
            if (class != ECH_MPI_ERR_TRUNCATE) return ech_mpi_check(code, "MPI_Test");
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

/* ---- the library's own collectives ---- */

static ech_status make_group(ech_comm *comm, const int *ranks, int size, ech_mpi_comm *out)
{
    ech_mpi_state *state = comm->state;
    ech_mpi_group world, members;
    ECH_TRY(ECH_MPI(Comm_group, state->groups, &world));
    ech_status st = ECH_MPI(Group_incl, world, size, ranks, &members);
    if (st == ECH_OK) {
        st = ECH_MPI(Comm_create_group, state->groups, members, 0, out);
        ech_mpi.Group_free(&members);
    }
    ech_mpi.Group_free(&world);
    return st;
}

static ech_status find_group(ech_comm *comm, const int *ranks, int size, void **handle)
{
    ech_mpi_state *state = comm->state;
    ech_mpi_comm in;
    if (*handle) return ECH_OK;
    ech_guard_enter(state->guard, "the first sum of a group");
    ech_status st = make_group(comm, ranks, size, &in);
    ech_guard_leave(state->guard);
    ECH_TRY(st);
    ech_mpi_comm *made = ech_calloc(1, sizeof *made);
    *made = in;
    *handle = made;
    return ECH_OK;
}

static ech_mpi_datatype type_of(ech_dtype dtype)
{
    return dtype == ECH_F32 ? ech_mpi.FLOAT : ech_mpi.DOUBLE;
}

static ech_status reduce_parts(ech_mpi_state *state, ech_mpi_comm in, const ech_library_call *call,
                               ech_request *request)
{
    int64_t item = (int64_t)ech_dtype_bytes(call->dtype), most = (int64_t)state->part_bytes / item;
    int last = NO_PART;
    for (int64_t at = 0; at < call->n; at += most) {
        int some = (int)(call->n - at < most ? call->n - at : most);
        last = add_part(state, request, last);
        ECH_TRY(ECH_MPI(Iallreduce, ECH_MPI_IN_PLACE, (char *)call->to + at * item, some,
                        type_of(call->dtype), ech_mpi.SUM, in, &state->parts.at[last].request));
    }
    return ECH_OK;
}

/* The buffers of MPI must not overlap: a shard that is in its place is passed as such. */
static ech_status move_shards(ech_mpi_state *state, ech_mpi_comm in, const ech_library_call *call,
                              int index, ech_request *request)
{
    if (call->n > INT_MAX)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.reduction = library: a shard has %lld elements, and MPI's collectives "
                 "take %d; use direct",
                 (long long)call->n, INT_MAX);
    int part = add_part(state, request, NO_PART); /* may move the others */
    ech_mpi_request *out = &state->parts.at[part].request;
    if (call->kind == ECH_LIBRARY_SCATTER)
        return ECH_MPI(Ireduce_scatter_block, call->from, call->to, (int)call->n,
                       type_of(call->dtype), ech_mpi.SUM, in, out);
    bool in_place = call->from == (char *)call->to + index * call->n;
    return ECH_MPI(Iallgather, in_place ? ECH_MPI_IN_PLACE : call->from, (int)call->n, ech_mpi.BYTE,
                   call->to, (int)call->n, ech_mpi.BYTE, in, out);
}

static int index_of(const ech_comm *comm, const int *ranks)
{
    int i = 0;
    while (ranks[i] != comm->rank) i++;
    return i;
}

static ech_status library_start(ech_comm *comm, const int *ranks, int size, void **handle,
                                const ech_library_call *call, ech_request *request)
{
    ECH_TRY(find_group(comm, ranks, size, handle));
    ech_mpi_comm in = *(ech_mpi_comm *)*handle;
    if (call->n == 0) return ECH_OK;
    if (call->kind == ECH_LIBRARY_REDUCE) return reduce_parts(comm->state, in, call, request);
    return move_shards(comm->state, in, call, index_of(comm, ranks), request);
}

static void library_forget(ech_comm *comm, void *handle)
{
    ech_mpi_comm *made = handle;
    if (!comm->dead) ech_mpi.Comm_free(made);
    free(made);
}

/* ---- the end ---- */

/* Ends the open receives. False: there is something else, which cannot be ended. */
static bool drop_receives(const ech_mpi_state *state)
{
    ECH_FREED bool *is_free = ech_calloc(state->parts.n + 1, sizeof *is_free);
    for (int i = state->free_part; i >= 0; i = state->parts.at[i].next) is_free[i] = true;
    for (size_t i = 0; i < state->parts.n; i++) {
        ech_mpi_request request = state->parts.at[i].request;
        if (is_free[i] || request == ech_mpi.REQUEST_NULL) continue;
        if (state->parts.at[i].bytes < 0) return false;
        if (ech_mpi.Cancel(&request) != ECH_MPI_SUCCESS) return false;
        if (ech_mpi.Request_free(&request) != ECH_MPI_SUCCESS) return false;
    }
    return true;
}

/* True if all ranks of the job call this, too, within two seconds. Nothing else that is collective
 * runs in `points`. */
static bool all_give_up(const ech_mpi_state *state)
{
    enum { TRIES = 2000 };
    ech_mpi_request request;
    int done = 0;
    if (!drop_receives(state) || ech_mpi.Ibarrier(state->points, &request) != ECH_MPI_SUCCESS)
        return false;
    for (int i = 0; i < TRIES && !done; i++) {
        if (ech_mpi.Test(&request, &done, ECH_MPI_STATUS_IGNORE) != ECH_MPI_SUCCESS) return false;
        if (!done) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return done;
}

/* A run that all ranks refuse ends without MPI_Abort, about which launchers print a banner. */
static void abort_job(ech_comm *comm, int code)
{
    ech_mpi_state *state = comm->state;
    int finalized = 0;
    ech_mpi.Finalized(&finalized);
    fflush(NULL);
    if (finalized) return;
    bool refused = code == ech_status_exit_code(ECH_EUSAGE);
    if (refused && state->finalizes && all_give_up(state)) {
        ech_guard_enter(state->guard, "the end of MPI");
        ech_mpi.Finalize();
        _exit(code);
    }
    ech_mpi.Abort(ech_mpi.COMM_WORLD, code);
}

static void close_own(ech_comm *comm)
{
    ech_mpi_state *state = comm->state;
    ech_board_leave(comm->board, comm->local_rank);
    ech_mpi_leave(state); /* the guard reads the board until then */
    ech_board_file_unmap(comm->board);
}

void ech_mpi_tune(ech_comm *comm, bool synchronous, size_t part_bytes)
{
    ech_mpi_state *state = comm->state;
    state->synchronous = synchronous;
    state->part_bytes = part_bytes;
}

const ech_comm_backend ech_comm_mpi = {
    .name = "mpi",
    .version = ech_mpi_version,
    .lacks = ech_mpi_lacks,
    .launcher = "mpirun", /* of PATH; must belong to the library */
    .open = open_own,
    .close = close_own,
    .start = start,
    .test = test,
    .withdraw = NULL, /* MPI moves nothing outside calls, and only MPI_Abort follows */
    .abort = abort_job,
    .library_start = library_start,
    .library_forget = library_forget,
};

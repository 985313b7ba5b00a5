/* SPDX-License-Identifier: Apache-2.0
 *
 * An endpoint that meets nobody: a rank practises its lists with it (app/setup/practice.c). Its
 * transfers are done when they begin. Sends reach no rank; receives set host memory to zero and
 * leave a device's as it is.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/backend.h"

static ech_status start(ech_comm *comm, ech_request *request, const void *from, void *to)
{
    (void)comm, (void)from;
    if (to) memset(to, 0, request->bytes);
    request->done = true;
    return ECH_OK;
}

static ech_status test(ech_comm *comm, ech_request *request)
{
    (void)comm;
    request->done = true;
    return ECH_OK;
}

static ech_status put(ech_comm *comm, ech_request *requests, int n)
{
    (void)comm;
    for (int i = 0; i < n; i++) requests[i].done = true;
    return ECH_OK;
}

static ech_status library(ech_comm *comm, ech_request *request, const ech_library_call *call)
{
    (void)call;
    return put(comm, request, 1);
}

static void close_one(ech_comm *comm)
{
    ech_board_leave(comm->board, comm->local_rank);
    free(comm->board);
}

static const ech_comm_data data = {.put = put, .test = test, .library = library};
static const ech_comm_backend silent = {
    .name = "silent", .data = &data, .close = close_one, .start = start, .test = test};

ech_comm *ech_comm_open_silent(const ech_comm *like)
{
    ech_board *board = ech_calloc(1, ech_board_bytes(like->local_size));
    ech_board_init(board, like->local_size);
    return ech_comm_make(&silent, like->rank, like->size, like->local_rank, like->local_size,
                         like->deadline, board);
}

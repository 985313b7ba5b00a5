/* SPDX-License-Identifier: Apache-2.0
 *
 * Clock offsets by round trips between rank 0 and the first rank of each machine.
 */
#include "comm/clock.h"

#include "base/clock.h"
#include "comm/backend.h"

enum { ROUNDS = 32, TAG = 0 };

static ech_status send(ech_comm *comm, int peer, const void *data, size_t bytes)
{
    ech_request request;
    ECH_TRY(ech_comm_send_start(comm, peer, TAG, data, bytes, &request));
    return ech_comm_wait(comm, &request, 1);
}

static ech_status receive(ech_comm *comm, int peer, void *data, size_t bytes)
{
    ech_request request;
    ECH_TRY(ech_comm_receive_start(comm, peer, TAG, data, bytes, &request));
    return ech_comm_wait(comm, &request, 1);
}

ech_machine ech_machine_of(const ech_comm *comm)
{
    return (ech_machine){.first = comm->rank - comm->local_rank, .ranks = comm->local_size};
}

/* ---- rank 0 ---- */

static ech_status ask(ech_comm *comm, int peer, double ahead, ech_comm_clock_offset *out)
{
    for (int round = 0; round < ROUNDS; round++) {
        double theirs, begin = ech_clock_now() + ahead;
        ECH_TRY(send(comm, peer, NULL, 0));
        ECH_TRY(receive(comm, peer, &theirs, sizeof theirs));
        double end = ech_clock_now() + ahead, error = (end - begin) / 2;
        if (round == 0 || error < out->error)
            *out = (ech_comm_clock_offset){.seconds = begin + error - theirs, .error = error};
    }
    return ECH_OK;
}

static ech_status ask_all(ech_comm *comm, int all, ech_machine machine, double ahead)
{
    int ranks = machine.ranks;
    for (int peer = ranks; peer < all; peer += ranks) {
        ech_comm_clock_offset offset;
        ECH_TRY(receive(comm, peer, &ranks, sizeof ranks));
        ECH_ASSERT(ranks > 0);
        ECH_TRY(ask(comm, peer, ahead, &offset));
        ECH_TRY(send(comm, peer, &offset, sizeof offset));
    }
    return ECH_OK;
}

/* ---- other machines ---- */

static ech_status answer(ech_comm *comm, ech_machine machine, double ahead,
                         ech_comm_clock_offset *out)
{
    ECH_TRY(send(comm, 0, &machine.ranks, sizeof machine.ranks));
    for (int round = 0; round < ROUNDS; round++) {
        ECH_TRY(receive(comm, 0, NULL, 0));
        double now = ech_clock_now() + ahead;
        ECH_TRY(send(comm, 0, &now, sizeof now));
    }
    ECH_TRY(receive(comm, 0, out, sizeof *out));
    for (int rank = machine.first + 1; rank < machine.first + machine.ranks; rank++)
        ECH_TRY(send(comm, rank, out, sizeof *out));
    return ECH_OK;
}

ech_status ech_comm_clock_agree(ech_comm *comm, int ranks, ech_machine machine, double ahead,
                                ech_comm_clock_offset *out)
{
    ech_comm_clock_offset offset = {0};
    int rank = ech_comm_rank(comm);
    if (machine.ranks > ranks - machine.first) machine.ranks = ranks - machine.first;
    if (rank == 0)
        ECH_TRY(ask_all(comm, ranks, machine, ahead));
    else if (machine.first == rank)
        ECH_TRY(answer(comm, machine, ahead, &offset));
    else if (machine.first > 0)
        ECH_TRY(receive(comm, machine.first, &offset, sizeof offset));
    *out = offset;
    return ECH_OK;
}

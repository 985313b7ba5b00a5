/* SPDX-License-Identifier: Apache-2.0
 *
 * Clock offsets by round trips between rank 0 and the first rank of each machine.
 */
#include "comm/clock.h"

enum { ROUNDS = 32, TAG = 0 };

typedef struct watch {
    double (*now)(const void *context);
    const void *context;
} watch;

static double read_clock(const watch *clock)
{
    return clock->now(clock->context);
}

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
    ech_machine machine = {.first = ech_comm_rank(comm)};
    for (int before; machine.first > 0; machine.first--) {
        before = machine.first - 1;
        if (!ech_comm_is_near(comm, &before, 1)) break;
    }
    machine.ranks = ech_comm_local_size(comm);
    return machine;
}

/* ---- rank 0 ---- */

static ech_status ask(ech_comm *comm, int peer, const watch *clock, ech_comm_clock_offset *out)
{
    for (int round = 0; round < ROUNDS; round++) {
        double theirs, begin = read_clock(clock);
        ECH_TRY(send(comm, peer, NULL, 0));
        ECH_TRY(receive(comm, peer, &theirs, sizeof theirs));
        double end = read_clock(clock), error = (end - begin) / 2;
        if (round == 0 || error < out->error)
            *out = (ech_comm_clock_offset){.seconds = begin + error - theirs, .error = error};
    }
    return ECH_OK;
}

static ech_status ask_all(ech_comm *comm, ech_machine machine, const watch *clock)
{
    int ranks = machine.ranks;
    for (int peer = ranks; peer < ech_comm_size(comm); peer += ranks) {
        ech_comm_clock_offset offset;
        ECH_TRY(receive(comm, peer, &ranks, sizeof ranks));
        ECH_ASSERT(ranks > 0);
        ECH_TRY(ask(comm, peer, clock, &offset));
        ECH_TRY(send(comm, peer, &offset, sizeof offset));
    }
    return ECH_OK;
}

/* ---- other machines ---- */

static ech_status answer(ech_comm *comm, ech_machine machine, const watch *clock,
                         ech_comm_clock_offset *out)
{
    ECH_TRY(send(comm, 0, &machine.ranks, sizeof machine.ranks));
    for (int round = 0; round < ROUNDS; round++) {
        ECH_TRY(receive(comm, 0, NULL, 0));
        double now = read_clock(clock);
        ECH_TRY(send(comm, 0, &now, sizeof now));
    }
    ECH_TRY(receive(comm, 0, out, sizeof *out));
    for (int rank = machine.first + 1; rank < machine.first + machine.ranks; rank++)
        ECH_TRY(send(comm, rank, out, sizeof *out));
    return ECH_OK;
}

ech_status ech_comm_clock_agree(ech_comm *comm, ech_machine machine,
                                double (*now)(const void *context), const void *context,
                                ech_comm_clock_offset *out)
{
    const watch clock = {now, context};
    ech_comm_clock_offset offset = {0};
    int rank = ech_comm_rank(comm);
    if (rank == 0)
        ECH_TRY(ask_all(comm, machine, &clock));
    else if (machine.first == rank)
        ECH_TRY(answer(comm, machine, &clock, &offset));
    else if (machine.first > 0)
        ECH_TRY(receive(comm, machine.first, &offset, sizeof offset));
    *out = offset;
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast two ranks send each other messages: half of a ping-pong's time, and the rate of many
 * messages one way, medians of some tries. `far`: by UCX over the network, as if each rank had a
 * machine.
 *     mpirun -n 2 bench_messages mpi
 *     echelon launch 2 bench_messages ucx [far]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/backend.h"

enum { TRIES = 9, IN_FLIGHT = 8, TAG = 1 };
static const double try_seconds = 0.1, deadline = 60;

typedef struct bench {
    ech_comm *comm;
    char *to, *from;
    size_t bytes;
    int rank;
} bench;

static ech_status ping_pong(const bench *b, int n)
{
    for (int i = 0; i < n; i++)
        for (int turn = 0; turn < 2; turn++) {
            ech_request request;
            if (turn == b->rank)
                ECH_TRY(ech_comm_send_start(b->comm, 1 - b->rank, TAG, b->to, b->bytes, &request));
            else
                ECH_TRY(
                    ech_comm_receive_start(b->comm, 1 - b->rank, TAG, b->from, b->bytes, &request));
            ECH_TRY(ech_comm_wait(b->comm, &request, 1));
        }
    return ECH_OK;
}

/* From rank 0 to rank 1, and an empty message back. */
static ech_status stream(const bench *b, int n)
{
    ech_request request[IN_FLIGHT];
    for (int i = 0; i < n; i++) {
        for (int m = 0; m < IN_FLIGHT; m++)
            if (b->rank == 0)
                ECH_TRY(ech_comm_send_start(b->comm, 1, TAG, b->to, b->bytes, &request[m]));
            else
                ECH_TRY(ech_comm_receive_start(b->comm, 0, TAG, b->from, b->bytes, &request[m]));
        ECH_TRY(ech_comm_wait(b->comm, request, IN_FLIGHT));
    }
    bench empty = *b;
    empty.bytes = 0;
    return ping_pong(&empty, 1);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of one repetition. Rank 0 says how many fill a try; three tries that are not counted
 * bring it from one, whose pages and connections are new, to what fills it. */
static ech_status measure(const bench *b, ech_status (*what)(const bench *b, int n), double *out)
{
    double times[TRIES];
    int n = 1;
    for (int t = -3; t < TRIES; t++) {
        double began = ech_clock_now();
        ECH_TRY(what(b, n));
        double seconds = ech_clock_now() - began;
        if (t >= 0) times[t] = seconds / n;
        if (t < 0) n = (int)(try_seconds / seconds) + 1;
        ech_request request;
        if (b->rank == 0)
            ECH_TRY(ech_comm_send_start(b->comm, 1, TAG, &n, sizeof n, &request));
        else
            ECH_TRY(ech_comm_receive_start(b->comm, 0, TAG, &n, sizeof n, &request));
        ECH_TRY(ech_comm_wait(b->comm, &request, 1));
    }
    qsort(times, TRIES, sizeof *times, compare);
    *out = times[TRIES / 2];
    return ECH_OK;
}

static ech_status run(bench *b)
{
    static const size_t sizes[] = {8, 512, 4096, 1 << 16, 1 << 20, 1 << 24};
    if (b->rank == 0) printf("%10s %12s %10s\n", "bytes", "us one way", "GB/s");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double trip, many;
        b->bytes = sizes[i];
        ECH_TRY(measure(b, ping_pong, &trip));
        ECH_TRY(measure(b, stream, &many));
        if (b->rank == 0)
            printf("%10zu %12.2f %10.3f\n", b->bytes, trip / 2 * 1e6,
                   (double)b->bytes * IN_FLIGHT / many / 1e9);
    }
    return ECH_OK;
}

int main(int argc, char **argv)
{
    enum { LARGEST = 1 << 24 };
    const ech_comm_backend *backend = argc > 1 ? ech_comm_find(argv[1]) : NULL;
    ech_comm *comm;
    if (!backend) {
        fprintf(stderr, "usage: bench_messages mpi|ucx [far]\n");
        return 2;
    }
    if (argc > 2 && strcmp(argv[2], "far") == 0) ech_tcp_pretend_machines(2);
    if (ech_comm_open(backend, 2, deadline, &comm) != ECH_OK) return 1;
    bench b = {.comm = comm,
               .rank = ech_comm_rank(comm),
               .to = ech_calloc(1, LARGEST),
               .from = ech_calloc(1, LARGEST)};
    ech_status status = run(&b);
    if (status != ECH_OK) ech_comm_abort(comm, status);
    ech_comm_close(comm);
    free(b.to);
    free(b.from);
    return status == ECH_OK ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a collective costs when all members are there: microseconds of a call, the median of many with
 * quartiles, and the bytes of the whole tensor by that time.
 *
 *     bench_collective THREADS [CALLS]                  ranks as threads
 *     mpirun -n N bench_collective 0 [CALLS]            ranks as processes
 *
 * The line `copy` is a copy of as many bytes by every rank at once, to compare with.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/comm.h"

enum { MOST_RANKS = 64, WARMUP = 10 };

static const int64_t sizes[] = {4 << 10, 64 << 10, 256 << 10, 3 << 20};

typedef struct bench {
    ech_comm *comm;
    ech_group *group;
    int calls;
    int64_t n; /* fp32 elements of the whole tensor */
    float *x, *out, *scratch;
    double *us;
    ech_status status;
} bench;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* ---- what is timed ---- */

static ech_status copy(bench *b)
{
    memcpy(b->out, b->x, (size_t)b->n * sizeof *b->x);
    return ECH_OK;
}

static ech_status all_reduce(bench *b)
{
    ech_tensor x = ech_tensor_1d(b->x, ECH_F32, b->n);
    return ech_group_all_reduce(b->group, &x, b->scratch);
}

static ech_status reduce_library(bench *b)
{
    ech_tensor x = ech_tensor_1d(b->x, ECH_F32, b->n);
    return ech_group_reduce(b->group, ECH_REDUCTION_LIBRARY, &x, NULL);
}

static ech_status reduce_scatter(bench *b)
{
    ech_tensor x = ech_tensor_1d(b->x, ECH_F32, b->n);
    return ech_group_reduce_scatter(b->group, &x, b->out, b->scratch);
}

static ech_status all_gather(bench *b)
{
    int N = ech_group_size(b->group), index = ech_group_index(b->group);
    float *mine = b->out + ech_piece_first(b->n, N, index);
    return ech_group_all_gather(b->group, b->out, mine, sizeof *mine, b->n);
}

static ech_status all_to_all(bench *b)
{
    size_t bytes = (size_t)(b->n / ech_group_size(b->group)) * sizeof *b->x;
    return ech_group_all_to_all(b->group, b->x, b->out, bytes);
}

static ech_status shift(bench *b)
{
    return ech_group_shift(b->group, 1, b->x, b->out, (size_t)b->n * sizeof *b->x);
}

static const struct {
    const char *name;
    ech_status (*run)(bench *b);
    bool library;
} rows[] = {{"copy", copy, false},
            {"all_reduce", all_reduce, false},
            {"mpi's own", reduce_library, true},
            {"reduce_scatter", reduce_scatter, false},
            {"all_gather", all_gather, false},
            {"all_to_all", all_to_all, false},
            {"shift", shift, false}};

static ech_status time_row(bench *b, size_t row)
{
    for (int call = -WARMUP; call < b->calls; call++) {
        /* As if computed just now: this rank's cache has what the others want. */
        memset(b->x, 0, (size_t)b->n * sizeof *b->x);
        memset(b->out, 0, (size_t)b->n * sizeof *b->out);
        ECH_TRY(ech_group_barrier(b->group));
        double start = ech_clock_now();
        ECH_TRY(rows[row].run(b));
        if (call >= 0) b->us[call] = 1e6 * (ech_clock_now() - start);
    }
    qsort(b->us, (size_t)b->calls, sizeof *b->us, by_value);
    double median = b->us[b->calls / 2];
    if (ech_comm_rank(b->comm) == 0)
        printf("%9lld bytes  %-14s %9.1f us [%.1f %.1f] %8.2f GB/s\n", (long long)b->n * 4,
               rows[row].name, median, b->us[b->calls / 4], b->us[b->calls * 3 / 4],
               (double)b->n * 4e-3 / median);
    return ech_group_barrier(b->group);
}

static ech_status run_sizes(bench *b, const ech_comm_backend *backend)
{
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        b->n = sizes[s] / 4;
        for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
            if (!rows[row].library || ech_reduction_supported(backend, ECH_REDUCTION_LIBRARY))
                ECH_TRY(time_row(b, row));
    }
    return ECH_OK;
}

static void *run_rank(void *argument)
{
    bench *b = argument;
    int ranks[MOST_RANKS], N = ech_comm_size(b->comm);
    int64_t most = sizes[sizeof sizes / sizeof *sizes - 1] / 4;
    for (int r = 0; r < N; r++) ranks[r] = r;
    b->x = ech_calloc((size_t)most, sizeof *b->x);
    b->out = ech_calloc((size_t)most, sizeof *b->out);
    b->scratch =
        ech_calloc(ech_collective_scratch(ECH_COLLECTIVE_ALL_REDUCE, ECH_F32, most, N) + 1, 1);
    b->us = ech_calloc((size_t)b->calls, sizeof *b->us);
    b->status = ech_group_create(b->comm, "bench", ranks, N, &b->group);
    if (b->status == ECH_OK) b->status = run_sizes(b, ech_comm_find(ech_comm_name(b->comm)));
    if (b->status != ECH_OK) ech_comm_abort(b->comm);
    ech_group_destroy(b->group);
    free(b->x);
    free(b->out);
    free(b->scratch);
    free(b->us);
    ech_comm_close(b->comm);
    return NULL;
}

/* `threads` 0: this process is one rank of several. */
static ech_status run(int threads, int calls)
{
    ech_comm *comm[MOST_RANKS];
    bench b[MOST_RANKS] = {0};
    pthread_t thread[MOST_RANKS];
    int own = threads ? threads : 1;
    ECH_TRY(ech_comm_open(ech_comm_find(threads ? "local" : "mpi"), threads, 60, comm));
    for (int r = 0; r < own; r++) {
        b[r] = (bench){.comm = comm[r], .calls = calls};
        ECH_ASSERT(pthread_create(&thread[r], NULL, run_rank, &b[r]) == 0);
    }
    ech_status worst = ECH_OK;
    for (int r = 0; r < own; r++) {
        pthread_join(thread[r], NULL);
        if (b[r].status != ECH_OK) worst = b[r].status;
    }
    return worst;
}

int main(int argc, char **argv)
{
    int64_t threads = 0, calls = 1000;
    bool right = (argc == 2 || argc == 3) && ech_text_to_int(argv[1], &threads) && threads >= 0 &&
                 threads <= MOST_RANKS &&
                 (argc < 3 || (ech_text_to_int(argv[2], &calls) && calls > 0 && calls <= 1000000));
    if (!right) {
        fprintf(stderr, "usage: %s THREADS [CALLS], THREADS 0: under mpirun\n", argv[0]);
        return 2;
    }
    return run((int)threads, (int)calls) == ECH_OK ? 0 : 1;
}

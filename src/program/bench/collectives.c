/* SPDX-License-Identifier: Apache-2.0
 *
 * The bench's table of collectives: the time of one when all ranks have arrived, compared with
 * MPI_Allreduce under mpi.
 */
#include <math.h>
#include <string.h>

#include "program/bench/bench.h"
#include "app/setup/setup.h"
#include "base/clock.h"
#include "layout/cost.h"

enum { WARMUP = 3, FEWEST = 5, MOST = 2000, DEADLINE = 60 };

/* Of the whole tensor, ascending. */
static const struct {
    int64_t bytes;
    const char *name;
} sizes[] = {{4 << 10, "4 KiB"}, {64 << 10, "64 KiB"}, {1 << 20, "1 MiB"}, {16 << 20, "16 MiB"}};
_Static_assert(sizeof sizes / sizeof *sizes == ECH_BENCH_SIZES, "divide_time counts on so many");

typedef struct side {
    ech_group *group;
    int64_t n; /* elements of the whole tensor */
    float *x, *out, *scratch;
} side;

static ech_status all_reduce(side *s)
{
    ech_tensor x = ech_tensor_1d(s->x, ECH_F32, s->n);
    return ech_group_all_reduce(s->group, &x, s->scratch);
}

static ech_status all_reduce_library(side *s)
{
    ech_tensor x = ech_tensor_1d(s->x, ECH_F32, s->n);
    return ech_group_reduce(s->group, ECH_REDUCTION_LIBRARY, &x, x.dtype, NULL);
}

static ech_status reduce_scatter(side *s)
{
    ech_tensor x = ech_tensor_1d(s->x, ECH_F32, s->n);
    return ech_group_reduce_scatter(s->group, &x, s->out, s->scratch);
}

static ech_status all_gather(side *s)
{
    int N = ech_group_size(s->group), index = ech_group_index(s->group);
    float *mine = s->out + ech_collective_shard_first(s->n, N, index);
    return ech_group_all_gather(s->group, s->out, mine, sizeof *mine, s->n);
}

static ech_status all_to_all(side *s)
{
    size_t bytes = (size_t)(s->n / ech_group_size(s->group)) * sizeof *s->x;
    return ech_group_all_to_all(s->group, s->x, s->out, bytes);
}

static ech_status broadcast(side *s)
{
    return ech_group_broadcast(s->group, 0, s->x, (size_t)s->n * sizeof *s->x);
}

/* Everyone sends to the next and receives from the one before. */
static ech_status send_receive(side *s)
{
    return ech_group_shift(s->group, 1, s->x, s->out, (size_t)s->n * sizeof *s->x);
}

typedef struct collective_row {
    const char *name;
    ech_status (*call)(side *s), (*library)(side *s);
} collective_row;

static const collective_row rows[] = {
    {"all_reduce", all_reduce, all_reduce_library},
    {"reduce_scatter", reduce_scatter, NULL},
    {"all_gather", all_gather, NULL},
    {"all_to_all", all_to_all, NULL},
    {"broadcast", broadcast, NULL},
    {"send_receive", send_receive, NULL},
};
enum { ROWS = sizeof rows / sizeof *rows };

static ech_status time_once(side *s, ech_status (*call)(side *s), double *seconds)
{
    size_t bytes = (size_t)s->n * sizeof *s->x;
    /* As if computed just now: this rank's cache has what the others want. */
    memset(s->x, 0, bytes);
    memset(s->out, 0, bytes);
    ECH_TRY(ech_group_barrier(s->group));
    double start = ech_clock_now();
    ECH_TRY(call(s));
    *seconds = ech_clock_now() - start;
    return ECH_OK;
}

/* Every member makes as many calls: as many as the slowest has time for. */
static ech_status count_calls(side *s, ech_status (*call)(side *s), double budget, int *calls)
{
    double seconds = 0, once;
    for (int i = 0; i < WARMUP; i++) {
        double start = ech_clock_now();
        ECH_TRY(time_once(s, call, &once));
        seconds = ech_clock_now() - start; /* with the clearing */
    }
    ECH_TRY(ech_group_fold(s->group, ECH_FOLD_MAX, &seconds, 1));
    double fit = budget / fmax(seconds, 1e-7);
    *calls = fit < FEWEST ? FEWEST : fit > MOST ? MOST : (int)fit;
    return ECH_OK;
}

static ech_status time_call(side *s, ech_status (*call)(side *s), double budget, double *seconds)
{
    int calls;
    ECH_TRY(count_calls(s, call, budget, &calls));
    ECH_FREED double *times = ech_calloc((size_t)calls, sizeof *times);
    for (int i = 0; i < calls; i++) ECH_TRY(time_once(s, call, &times[i]));
    *seconds = ech_median(&(ech_numbers){.at = times, .n = (size_t)calls});
    return ECH_OK;
}

static ech_status time_row(ech_bench *bench, side *s, const collective_row *row, int size,
                           bool library)
{
    ech_bench_result result = {.group = ECH_BENCH_COLLECTIVES, .name = row->name};
    strcpy(result.shape, sizes[size].name);
    result.bytes = (double)s->n * sizeof *s->x;
    ECH_TRY(time_call(s, row->call, bench->each, &result.seconds));
    if (row->library && library) ECH_TRY(time_call(s, row->library, bench->each, &result.library));
    if (ech_group_index(s->group) == 0) ECH_PUSH(bench->result, result);
    return ECH_OK;
}

static ech_status time_rows(ech_bench *bench, side *s, const ech_comm_backend *backend)
{
    bool library = ech_reduction_supported(backend, ECH_REDUCTION_LIBRARY);
    if (library) ECH_TRY(ech_group_prepare(s->group, ECH_REDUCTION_LIBRARY));
    for (int r = 0; r < ROWS; r++)
        for (int size = 0; size < ECH_BENCH_SIZES; size++) {
            int64_t most = bench->options->most, n = sizes[size].bytes / (int64_t)sizeof *s->x;
            s->n = most > 0 && n > most ? most : n;
            if (ech_bench_wants(bench->options, ECH_BENCH_COLLECTIVES, rows[r].name))
                ECH_TRY(time_row(bench, s, &rows[r], size, library));
        }
    return ECH_OK;
}

ech_status ech_bench_measure_collectives_rank(ech_bench *bench, ech_comm *comm)
{
    int N = ech_comm_size(comm);
    int64_t most = sizes[ECH_BENCH_SIZES - 1].bytes / (int64_t)sizeof(float);
    size_t scratch =
        ech_collective_scratch(ECH_COLLECTIVE_ALL_REDUCE, ECH_F32, most, (ech_lineup){.size = N});
    ECH_FREED void *x = ech_calloc((size_t)most, sizeof(float));
    ECH_FREED void *out = ech_calloc((size_t)most, sizeof(float));
    ECH_FREED void *more = ech_calloc(scratch + 1, 1);
    ECH_CLEANUP(ech_group_destroy_at) ech_group *group = NULL;
    ECH_TRY(ech_group_create_world(comm, "bench", &group));
    side s = {.group = group, .x = x, .out = out, .scratch = more};
    return time_rows(bench, &s, ech_comm_find(ech_comm_name(comm)));
}

ech_status ech_bench_measure_link(ech_group *group, double seconds, ech_bench_link *out)
{
    ech_status (*const calls[])(side *) = {all_reduce, reduce_scatter, all_gather};
    const double ways[] = {2, 1, 1}; /* how often each sends its part of the tensor */
    int N = ech_group_size(group);
    int64_t most = sizes[ECH_BENCH_SIZES - 1].bytes / (int64_t)sizeof(float);
    size_t scratch =
        ech_collective_scratch(ECH_COLLECTIVE_ALL_REDUCE, ECH_F32, most, (ech_lineup){.size = N});
    double bytes = (double)most * sizeof(float), sent = 0, all = 0, took;
    ECH_FREED void *x = ech_calloc((size_t)most, sizeof(float));
    ECH_FREED void *y = ech_calloc((size_t)most, sizeof(float));
    ECH_FREED void *more = ech_calloc(scratch + 1, 1);
    side s = {.group = group, .n = 1, .x = x, .out = y, .scratch = more};
    ECH_TRY(time_call(&s, send_receive, seconds / 5, &out->latency));
    s.n = most;
    ECH_TRY(time_call(&s, send_receive, seconds / 5, &took));
    out->bandwidth = bytes / fmax(took - out->latency, 1e-9);
    for (int i = 0; i < 3; i++) {
        ECH_TRY(time_call(&s, calls[i], seconds / 5, &took));
        sent += ways[i] * bytes * (N - 1) / N;
        all += fmax(took - ech_cost_rounds(N) * out->latency, 1e-9);
    }
    out->collectives = sent / all;
    return ECH_OK;
}

static ech_status thread_rank(ech_comm *comm, void *context)
{
    return ech_bench_measure_collectives_rank(context, comm);
}

ech_status ech_bench_measure_collectives(ech_bench *bench)
{
    if (!ech_bench_count_rows(bench->options, ECH_BENCH_COLLECTIVES) || bench->options->ranks < 2)
        return ECH_OK;
    return ech_run_ranks(ECH_COMM_local, bench->options->ranks, DEADLINE, thread_rank, bench);
}

const char *ech_bench_collective_name(int row)
{
    return row < ROWS ? rows[row].name : NULL;
}

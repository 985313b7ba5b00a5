/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums and maxima over a warp, a block and a matrix's columns, in orders that depend only on
 * shapes.
 */
#ifndef ECH_KERNEL_CUDA_REDUCE_H
#define ECH_KERNEL_CUDA_REDUCE_H

#include "kernel/cuda/real.cuh"

namespace
{

struct ech_plus {
    template <typename T> __device__ T operator()(T a, T b) const
    {
        return a + b;
    }
};

/* A NaN is larger than everything. */
struct ech_larger {
    template <typename T> __device__ T operator()(T a, T b) const
    {
        return a > b || a != a ? a : b;
    }
};

/* Folds over the warp's lanes; each lane gets the result. */
template <typename Fold, typename T> static __device__ inline T ech_warp_fold(Fold fold, T value)
{
    for (unsigned distance = ECH_WARP / 2; distance > 0; distance /= 2)
        value = fold(value, __shfl_xor_sync(~0u, value, distance));
    return value;
}

/* Folds over the block's threads; each thread gets the result. room: as many numbers of shared
 * memory as the block has warps, which are free again after the next barrier. */
template <typename Fold, typename T>
static __device__ inline T ech_block_fold(Fold fold, T value, T *room)
{
    unsigned warps = blockDim.x / ECH_WARP;
    value = ech_warp_fold(fold, value);
    __syncthreads();
    if (threadIdx.x % ECH_WARP == 0) room[threadIdx.x / ECH_WARP] = value;
    __syncthreads();
    value = room[0];
    for (unsigned w = 1; w < warps; w++) value = fold(value, room[w]);
    return value;
}

/* The number of the block's threads before this one with `has`; *all: the number among all. room:
 * as for ech_block_fold. */
static __device__ inline int ech_before(bool has, int *room, int *all)
{
    unsigned bits = __ballot_sync(~0u, has), warps = blockDim.x / ECH_WARP;
    unsigned warp = threadIdx.x / ECH_WARP, lane = threadIdx.x % ECH_WARP;
    int before = __popc(bits & ((1u << lane) - 1));
    __syncthreads();
    if (lane == 0) room[warp] = __popc(bits);
    __syncthreads();
    *all = 0;
    for (unsigned w = 0; w < warps; w++) {
        if (w < warp) before += room[w];
        *all += room[w];
    }
    return before;
}

/* How many of n numbers are e; each of the block's threads gets the result. room: as for
 * ech_block_fold. */
static __device__ inline int ech_block_count(const int32_t *x, int64_t n, int32_t e, int *room)
{
    int count = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) count += x[i] == e;
    return ech_block_fold(ech_plus(), count, room);
}

/* Threads of a block that processes a row of C elements. */
static inline int ech_row_threads(int64_t C)
{
    const int64_t warps = ech_ceil(C, ECH_PART * ECH_WARP), most = ECH_BLOCK / ECH_WARP;
    return (int)(warps < 1 ? 1 : warps < most ? warps : most) * ECH_WARP;
}

/* ---- columns ---- */

/* A block folds a slice of a matrix's columns over a group of its rows: a team of `lanes` threads
 * processes a row at a time, each thread a part of the columns. */
struct ech_column_grid {
    int64_t R, C;
    int lanes;
};

/* The number of rows that a thread folds in `wide` before it adds the result to its sums in
 * double. */
enum { ECH_FEW_ROWS = 16, ECH_COLUMN_THREADS = 512 };

/* N parts per thread of the block in shared memory. */
template <int N, typename T> struct ech_own_parts {
    static const int CHUNKS = sizeof(ech_part<T>) / sizeof(ech_chunk);
    ech_chunk *data; /* (N, CHUNKS, threads) */

    __device__ ech_part<T> get(int s) const
    {
        ech_part<T> part;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
            part.chunk[j] = data[(s * CHUNKS + j) * blockDim.x + threadIdx.x];
        return part;
    }
    __device__ void put(int s, const ech_part<T> &part) const
    {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
            data[(s * CHUNKS + j) * blockDim.x + threadIdx.x] = part.chunk[j];
    }
    __device__ T of_thread(unsigned thread, int s, int k) const
    {
        const int length = ECH_PART / CHUNKS;
        const ech_chunk *chunk = data + (s * CHUNKS + k / length) * blockDim.x + thread;
        return reinterpret_cast<const T *>(chunk)[k % length];
    }
};

/* Folds of N values of each column. They are in shared memory, since registers hold rows that are
 * read ahead. */
template <int N, typename Fold> struct ech_column_folds {
    const ech_column_grid &grid;
    Fold fold;
    int64_t first;                           /* the group's first row */
    int rows;                                /* of the group */
    int lane, team, teams, turns = 0, count; /* of the thread's columns, from c() on */
    ech_own_parts<N, double> all;
    ech_own_parts<N, wide> few; /* all, if `wide` is double */

    static const bool HAS_FEW = sizeof(wide) < sizeof(double);
    static const size_t BYTES = /* per thread */
        N * (sizeof(ech_part<double>) + (HAS_FEW ? sizeof(ech_part<wide>) : 0));

    __device__ ech_column_folds(const ech_column_grid &grid_, Fold fold_, char *shared)
        : grid(grid_), fold(fold_), first(grid_.R * blockIdx.y / gridDim.y),
          rows((int)(grid_.R * (blockIdx.y + 1) / gridDim.y - first)),
          lane((int)threadIdx.x % grid_.lanes), team((int)threadIdx.x / grid_.lanes),
          teams((int)blockDim.x / grid_.lanes), all{reinterpret_cast<ech_chunk *>(shared)},
          few{all.data + (HAS_FEW ? N * all.CHUNKS * blockDim.x : 0)}
    {
        count = c() < grid.C && team < teams ? ech_part_count(grid.C - c()) : 0;
        for (int s = 0; s < N; s++) {
            all.put(s, {});
            few.put(s, {});
        }
    }
    __device__ int64_t c() const
    {
        return ((int64_t)blockIdx.x * grid.lanes + lane) * ECH_PART;
    }
    /* The team's row in the group, perhaps after the last. */
    __device__ int row() const
    {
        return turns * teams + team;
    }
    /* True if the block, and the thread, has rows left. */
    __device__ bool goes_on() const
    {
        return turns * teams < rows;
    }
    __device__ bool has_row() const
    {
        return row() < rows && count > 0;
    }
    __device__ void next()
    {
        if (++turns % ECH_FEW_ROWS == 0) end_few();
    }
    /* Value s of each column of a row. */
    template <typename F> __device__ void add(int s, F value)
    {
        ech_part<wide> part = few.get(s);
#pragma unroll
        for (int k = 0; k < ECH_PART; k++) part.value[k] = fold(part.value[k], value(k));
        few.put(s, part);
    }
    __device__ void end_few()
    {
        for (int s = 0; HAS_FEW && s < N; s++) {
            ech_part<wide> part = few.get(s);
            ech_part<double> sum = all.get(s);
#pragma unroll
            for (int k = 0; k < ECH_PART; k++)
                sum.value[k] = fold(sum.value[k], (double)part.value[k]);
            all.put(s, sum);
            few.put(s, {});
        }
    }
    /* parts[(s, group), column] */
    __device__ void put(double *parts)
    {
        int columns = grid.lanes * ECH_PART;
        end_few();
        __syncthreads();
        for (int i = (int)threadIdx.x; i < N * columns; i += (int)blockDim.x) {
            int s = i / columns, j = i % columns;
            int64_t column = (int64_t)blockIdx.x * columns + j;
            double sum = 0;
            for (int t = 0; t < teams; t++)
                sum = fold(
                    sum, all.of_thread((unsigned)(t * grid.lanes + j / ECH_PART), s, j % ECH_PART));
            if (column < grid.C)
                parts[((int64_t)s * gridDim.y + blockIdx.y) * grid.C + column] = sum;
        }
    }
};

/* f(row, first column, count, values of a part) */
template <typename Fold, typename F>
static __global__ void __launch_bounds__(ECH_COLUMN_THREADS)
    ech_column_parts(ech_column_grid grid, Fold fold, F f, double *parts)
{
    ECH_DYNAMIC_SHARED(shared);
    ech_column_folds<1, Fold> folds(grid, fold, shared);
    for (; folds.goes_on(); folds.next()) {
        wide value[ECH_PART];
        if (!folds.has_row()) continue;
        f(folds.first + folds.row(), folds.c(), folds.count, value);
        folds.add(0, [&](int k) { return value[k]; });
    }
    folds.put(parts);
}

/* f(s, column, fold over its groups). A block has as many columns as a warp has lanes, and each of
 * its warps has some of the groups. */
template <int N, typename Fold, typename F>
static __global__ void ech_column_ends(int64_t groups, int64_t C, Fold fold, F f,
                                       const double *parts)
{
    ECH_SHARED(double, room, ECH_COLUMN_THREADS);
    unsigned warps = blockDim.x / ECH_WARP, warp = threadIdx.x / ECH_WARP;
    unsigned lane = threadIdx.x % ECH_WARP;
    int64_t i = (int64_t)blockIdx.x * ECH_WARP + lane, s = i / C, c = i % C;
    double sum = 0;
#pragma unroll 8
    for (int64_t g = warp; g < groups && i < N * C; g += warps)
        sum = fold(sum, parts[(s * groups + g) * C + c]);
    room[threadIdx.x] = sum;
    __syncthreads();
    if (warp > 0 || i >= N * C) return;
    for (unsigned w = 1; w < warps; w++) sum = fold(sum, room[w * ECH_WARP + lane]);
    f((int)s, c, sum);
}

/* Parts of a row for a team: all, or a slice's. */
static inline int ech_column_lanes(int64_t C)
{
    int64_t parts = ech_ceil(C, ECH_PART), most = ECH_CUDA_COLUMNS / ECH_PART;
    return (int)(parts < most ? parts : most);
}

/* Launches a kernel(grid, ..., parts), with one block per slice of columns and group of rows, that
 * leaves folds of N values in parts; then put(s, column, fold over the groups). Scratch: the parts,
 * scratch.c. */
template <int N, typename Fold, typename Put, typename Kernel, typename... More>
static void ech_columns_by(const ech_kernel_context *context, ech_column_grid grid, int threads,
                           Fold fold, Put put, double *parts, Kernel kernel, const More &...more)
{
    int64_t groups = ech_cuda_row_groups(grid.R, grid.C);
    dim3 blocks((unsigned)ech_ceil(grid.C, grid.lanes * ECH_PART), (unsigned)groups);
    ech_launch(context, kernel, blocks, threads, (size_t)threads * ech_column_folds<N, Fold>::BYTES,
               grid, more..., parts);
    ech_launch(context, ech_column_ends<N, Fold, Put>,
               dim3((unsigned)ech_ceil(N * grid.C, ECH_WARP)), ECH_COLUMN_THREADS, 0, groups,
               grid.C, fold, put, (const double *)parts);
}

/* Folds one value of each of a matrix's elements over each column: put(column, result). value(row,
 * first column, count, values of a part); values after the last column are ignored. */
template <typename Fold, typename F, typename Put>
static void ech_columns(const ech_kernel_context *context, int64_t R, int64_t C, Fold fold, F value,
                        Put put)
{
    if (C == 0) return;
    ech_column_grid grid = {R, C, ech_column_lanes(C)};
    int threads = ECH_COLUMN_THREADS / grid.lanes * grid.lanes;
    size_t bytes = (size_t)ech_cuda_column_parts(R, C) * sizeof(double);
    ech_columns_by<1>(
        context, grid, (int)ech_ceil(threads, ECH_WARP) * ECH_WARP, fold,
        [=] __device__(int, int64_t c, double sum) { put(c, sum); },
        static_cast<double *>(ech_scratch(context, bytes)), ech_column_parts<Fold, F>, fold, value);
}

/* A column's sum becomes an element of a gradient. */
struct ech_put_sum {
    ech_numbers to;
    bool accumulate;

    __device__ void operator()(int64_t c, double sum) const
    {
        to.put(c, (wide)(accumulate ? sum + to.get(c) : sum));
    }
};

/* One block per row: put(row, fold of f(row, column) over the columns). */
template <typename Fold, typename F, typename Put>
static __global__ void ech_fold_row(int64_t C, Fold fold, F f, Put put)
{
    ECH_SHARED(double, room, ECH_BLOCK / ECH_WARP);
    double sum = 0;
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x)
        sum = fold(sum, (double)f((int64_t)blockIdx.x, c));
    sum = ech_block_fold(fold, sum, room);
    if (threadIdx.x == 0) put((int64_t)blockIdx.x, sum);
}

/* The same with f(row, first column, count, values) for a part of them; 0 after the last column. */
template <typename Fold, typename F, typename Put>
static __global__ void ech_fold_row_parts(int64_t C, Fold fold, F f, Put put)
{
    ECH_SHARED(double, room, ECH_BLOCK / ECH_WARP);
    double sum = 0;
    for (int64_t c = (int64_t)threadIdx.x * ECH_PART; c < C; c += blockDim.x * ECH_PART) {
        wide value[ECH_PART];
        f((int64_t)blockIdx.x, c, ech_part_count(C - c), value);
#pragma unroll
        for (int k = 0; k < ECH_PART; k++) sum = fold(sum, (double)value[k]);
    }
    sum = ech_block_fold(fold, sum, room);
    if (threadIdx.x == 0) put((int64_t)blockIdx.x, sum);
}

template <typename Fold, typename F, typename Put>
static void ech_fold_rows_by_parts(const ech_kernel_context *context, int64_t R, int64_t C,
                                   Fold fold, F value, Put put)
{
    ech_launch(context, ech_fold_row_parts<Fold, F, Put>, dim3((unsigned)R), ech_row_threads(C), 0,
               C, fold, value, put);
}

template <typename Fold, typename F, typename Put>
static void ech_fold_rows(const ech_kernel_context *context, int64_t R, int64_t C, Fold fold,
                          F value, Put put)
{
    ech_launch(context, ech_fold_row<Fold, F, Put>, dim3((unsigned)R), ech_row_threads(C), 0, C,
               fold, value, put);
}

} // namespace

#endif

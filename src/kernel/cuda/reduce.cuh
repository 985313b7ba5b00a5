/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums and maxima over a warp, a block and a matrix's columns, in orders that depend on shapes alone.
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

/* Over the warp's lanes; each gets the result. */
template <typename Fold, typename T> static __device__ inline T ech_warp(Fold fold, T value)
{
    for (unsigned distance = ECH_WARP / 2; distance > 0; distance /= 2)
        value = fold(value, __shfl_xor_sync(~0u, value, distance));
    return value;
}

/* Over the block's threads; each gets the result. room: as many numbers of shared memory as the block has warps, which
 * are free again after the next barrier. */
template <typename Fold, typename T>
static __device__ inline T ech_block(Fold fold, T value, T *room)
{
    unsigned warps = blockDim.x / ECH_WARP;
    value = ech_warp(fold, value);
    __syncthreads();
    if (threadIdx.x % ECH_WARP == 0) room[threadIdx.x / ECH_WARP] = value;
    __syncthreads();
    value = room[0];
    for (unsigned w = 1; w < warps; w++) value = fold(value, room[w]);
    return value;
}

/* How many of the block's threads before this one have it; *all: how many in all. room: as ech_block's. */
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

/* How many of n numbers are e; each of the block's threads gets the result. room: as ech_block's. */
static __device__ inline int ech_block_count(const int32_t *x, int64_t n, int32_t e, int *room)
{
    int count = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) count += x[i] == e;
    return ech_block(ech_plus(), count, room);
}

/* Threads of a block that takes a row of C elements. */
static inline int ech_row_threads(int64_t C)
{
    const int64_t warps = ech_ceil(C, ECH_PART * ECH_WARP), most = ECH_BLOCK / ECH_WARP;
    return (int)(warps < 1 ? 1 : warps < most ? warps : most) * ECH_WARP;
}

/* One thread a column and group of rows: parts[(s, group), column] = fold of f(row, column, s)'s in row order. */
template <int N, typename Fold, typename F>
static __global__ void ech_column_parts(int64_t R, int64_t C, Fold fold, F f, double *parts)
{
    int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, groups = gridDim.y;
    int64_t first = R * blockIdx.y / groups, end = R * (blockIdx.y + 1) / groups;
    double sum[N] = {};
    if (c >= C) return;
    for (int64_t r = first; r < end; r++) {
        wide value[N];
        f(r, c, value);
#pragma unroll
        for (int s = 0; s < N; s++) sum[s] = fold(sum[s], (double)value[s]);
    }
#pragma unroll
    for (int s = 0; s < N; s++) parts[(s * groups + blockIdx.y) * C + c] = sum[s];
}

/* f(s, column, fold over its groups). */
template <int N, typename Fold, typename F>
static __global__ void ech_column_ends(int64_t groups, int64_t C, Fold fold, F f,
                                       const double *parts)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, s = i / C, c = i % C;
    double sum = 0;
    if (i >= N * C) return;
    for (int64_t g = 0; g < groups; g++) sum = fold(sum, parts[(s * groups + g) * C + c]);
    f((int)s, c, sum);
}

/* Folds N values of each of a matrix's elements down its columns: put(s, column, result). Scratch: the groups' parts, scratch.c. */
template <int N, typename Fold, typename F, typename Put>
static void ech_columns(const ech_kernel_context *context, int64_t R, int64_t C, Fold fold, F value,
                        Put put)
{
    int64_t groups = ech_cuda_row_parts(R);
    size_t bytes = (size_t)(N * groups * C) * sizeof(double);
    double *parts = static_cast<double *>(ech_scratch(context, bytes));
    dim3 grid((unsigned)ech_ceil(C, ECH_BLOCK / 2), (unsigned)groups);
    ech_launch(context, ech_column_parts<N, Fold, F>, grid, ECH_BLOCK / 2, 0, R, C, fold, value,
               parts);
    ech_launch(context, ech_column_ends<N, Fold, Put>,
               dim3((unsigned)ech_ceil(N * C, ECH_BLOCK / 2)), ECH_BLOCK / 2, 0, groups, C, fold,
               put, (const double *)parts);
}

/* A block a row: put(row, fold of f(row, column)'s over the columns). */
template <typename Fold, typename F, typename Put>
static __global__ void ech_fold_row(int64_t C, Fold fold, F f, Put put)
{
    ECH_SHARED(double, room, ECH_BLOCK / ECH_WARP);
    double sum = 0;
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x)
        sum = fold(sum, (double)f((int64_t)blockIdx.x, c));
    sum = ech_block(fold, sum, room);
    if (threadIdx.x == 0) put((int64_t)blockIdx.x, sum);
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

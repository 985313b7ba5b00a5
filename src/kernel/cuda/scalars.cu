/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalars of a training step, hashes, sums of squares, and the search for the first NaN or
 * infinity.
 */
#include "kernel/hash.h"
#include "kernel/listed.h"
#include "kernel/total.h"
#include "kernel/cuda/real.cuh"

static double *number(const ech_tensor *x)
{
    return x ? static_cast<double *>(x->data) : NULL;
}

/* One thread per sum; one thread adds these. */
static __global__ void add_up(const double *x, int64_t n, const double *scale, bool counts,
                              double *sum)
{
    ECH_SHARED(double, part, ECH_TOTAL_SUMS);
    double own = 0, total = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += ECH_TOTAL_SUMS) own += x[i];
    part[threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 0; i < ECH_TOTAL_SUMS; i++) total += part[i];
    if (scale) total /= *scale * *scale;
    *sum = counts || !isfinite(total) ? total : 0;
}

void ECH_CUDA(total)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *scale,
                     bool counts, const ech_tensor *sum)
{
    ech_cuda_check(ECH_OP_total, ECH_REAL, x, scale, sum);
    ech_launch(context, add_up, dim3(1), ECH_TOTAL_SUMS, 0, (const double *)number(x), x->shape[0],
               (const double *)number(scale), counts, number(sum));
}

static __global__ void fold_columns(const double *x, int64_t rows, int64_t stride, bool maximum,
                                    double *y, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        double all = x[i];
        for (int64_t r = 1; r < rows; r++) {
            double next = x[r * stride + i];
            all = !maximum ? all + next : all > next || isnan(all) ? all : next;
        }
        y[i] = all;
    }
}

void ECH_CUDA(fold)(ech_kernel_context *context, const ech_tensor *x, bool maximum,
                    const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_fold, ECH_REAL, x, y);
    ech_launch(context, fold_columns, ech_blocks(y->shape[0], ECH_BLOCK), ECH_BLOCK, 0,
               (const double *)number(x), x->shape[0], x->stride[0], maximum, number(y),
               y->shape[0]);
}

void ECH_CUDA(clip)(ech_kernel_context *context, const ech_tensor *squares, const ech_tensor *loss,
                    const ech_tensor *scale, double limit, const ech_tensor *norm,
                    const ech_tensor *withheld, const ech_tensor *factor)
{
    ech_cuda_check(ECH_OP_clip, ECH_REAL, squares, loss, scale, norm, withheld, factor);
    const double *all = number(squares), *known = number(loss), *by = number(scale);
    double *root = number(norm), *is_withheld = number(withheld), *to = number(factor);
    ech_once(context, [=] __device__() {
        *root = sqrt(*all);
        if (!isfinite(*all) || (known && !isfinite(*known))) *is_withheld = 1;
        *to = *is_withheld <= 0 ? ech_clip_factor(*root, limit) / *by : 0;
    });
}

/* ---- hashes ---- */

typedef unsigned long long word;

template <typename T>
static __global__ void add_hashes(const T *x, int64_t n, int64_t first, word *sum)
{
    word hash = 0;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        hash += ech_hash_of(first + i, x[i]);
    for (unsigned distance = ECH_WARP / 2; distance > 0; distance /= 2)
        hash += __shfl_xor_sync(~0u, hash, distance);
    /* modulo 2^64 any order gives the same result */
    if (threadIdx.x % ECH_WARP == 0) atomicAdd(sum, hash);
}

template <typename T>
static void put_hash(const ech_kernel_context *context, const ech_tensor *x, int64_t first,
                     const ech_tensor *sum)
{
    int64_t n = ech_tensor_count(x);
    ech_launch(context, add_hashes<T>, ech_blocks(ech_ceil(n, ECH_PART), ECH_BLOCK), ECH_BLOCK, 0,
               (const T *)x->data, n, first, (word *)sum->data);
}

void ECH_CUDA(hash)(ech_kernel_context *context, const ech_tensor *x, int64_t first,
                    const ech_tensor *sum)
{
    ech_cuda_check(ECH_OP_hash, ECH_REAL, x, sum);
    size_t bytes = ech_dtype_bytes(x->dtype);
    if (bytes == sizeof(uint16_t))
        put_hash<uint16_t>(context, x, first, sum);
    else if (bytes == sizeof(uint32_t))
        put_hash<uint32_t>(context, x, first, sum);
    else
        put_hash<uint64_t>(context, x, first, sum);
}

void ECH_CUDA(hash_parts)(ech_kernel_context *context, const ech_tensor *sum,
                          const ech_tensor *parts)
{
    enum { QUARTERS = 4, BITS = 16 };
    ech_cuda_check(ECH_OP_hash_parts, ECH_REAL, sum, parts);
    const uint64_t *from = static_cast<const uint64_t *>(sum->data);
    double *to = number(parts);
    ech_once(context, [=] __device__() {
        for (int i = 0; i < QUARTERS; i++) {
            to[i] = (double)(*from >> BITS * i & 0xffff);
            to[QUARTERS + i] = -to[i];
        }
    });
}

/* ---- sums of squares ---- */

enum { LANES = 16 };

/* For a block's values, in the order of the definition: element i goes to lane i mod LANES. */
static __device__ inline void sum_lanes(const wide *value, int count, double *out)
{
    ECH_SHARED(double, lane, LANES);
    __syncthreads();
    if (threadIdx.x < LANES) {
        double sum = 0;
        for (int i = (int)threadIdx.x; i < count; i += LANES)
            sum += (double)value[i] * (double)value[i];
        lane[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    double sum = 0;
    for (int l = 0; l < LANES; l++) sum += lane[l];
    *out = sum;
}

/* One block of ECH_NORM_BLOCK elements. */
static __global__ void sum_squares(ech_numbers x, int64_t n, double *sums)
{
    ECH_SHARED(wide, value, ECH_NORM_BLOCK);
    int64_t first = (int64_t)blockIdx.x * ECH_NORM_BLOCK, left = n - first;
    int count = left < ECH_NORM_BLOCK ? (int)left : ECH_NORM_BLOCK;
    for (int i = (int)threadIdx.x * ECH_PART; i < count; i += ECH_BLOCK * ECH_PART) {
        wide part[ECH_PART];
        x.load(first + i, ech_part_count(count - i), part);
        for (int k = 0; k < ECH_PART; k++) value[i + k] = part[k];
    }
    sum_lanes(value, count, sums + blockIdx.x);
}

/* The same of a table whose listed rows are x, and whose others are zero. */
static __global__ void sum_squares_of_rows(ech_numbers x, const int32_t *rows, int64_t places,
                                           int64_t C, double *sums)
{
    ECH_SHARED(wide, value, ECH_NORM_BLOCK);
    const int count = ECH_NORM_BLOCK;
    int64_t first = (int64_t)blockIdx.x * ECH_NORM_BLOCK;
    for (int i = (int)threadIdx.x; i < count; i += ECH_BLOCK) value[i] = 0;
    __syncthreads();
    int64_t k = ech_listed_from(rows, places, first / C) + threadIdx.x;
    for (; k < places && rows[k] >= 0 && rows[k] * C < first + count; k += ECH_BLOCK)
        for (int64_t c = 0, at = rows[k] * C - first; c < C && at < count; c++, at++)
            if (at >= 0) value[at] = x.get(k * C + c);
    sum_lanes(value, count, sums + blockIdx.x);
}

void ECH_CUDA(square_sums)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *sums)
{
    int64_t n = ech_tensor_count(x), blocks = ech_ceil(n, ECH_NORM_BLOCK);
    ech_cuda_check(ECH_OP_square_sums, ECH_REAL, x, sums);
    ECH_ASSERT(sums->shape[0] == blocks);
    ech_launch(context, sum_squares, dim3((unsigned)blocks), ECH_BLOCK, 0, ech_numbers(x), n,
               number(sums));
}

void ECH_CUDA(square_sums_rows)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *rows, const ech_tensor *sums)
{
    ech_cuda_check(ECH_OP_square_sums_rows, ECH_REAL, x, rows, sums);
    ech_launch(context, sum_squares_of_rows, dim3((unsigned)sums->shape[0]), ECH_BLOCK, 0,
               ech_numbers(x), static_cast<const int32_t *>(rows->data), rows->shape[0],
               x->shape[1], number(sums));
}

/* ---- NaN and infinity ---- */

/* The least index: nonnegative numbers have the order of their bits. */
static __global__ void find_first(ech_numbers x, int64_t n, word *first)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x * ECH_PART;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * ECH_PART; i < n;
         i += step) {
        wide part[ECH_PART];
        x.load(i, ech_part_count(n - i), part);
        for (int k = ECH_PART - 1; k >= 0; k--) {
            double index = (double)(i + k);
            word bits;
            memcpy(&bits, &index, sizeof bits);
            if (!isfinite(part[k])) atomicMin(first, bits);
        }
    }
}

void ECH_CUDA(find_nonfinite)(ech_kernel_context *context, const ech_tensor *x,
                              const ech_tensor *first)
{
    ech_cuda_check(ECH_OP_find_nonfinite, ECH_REAL, x, first);
    double *found = number(first);
    int64_t n = ech_tensor_count(x);
    ech_once(context, [=] __device__() { *found = INFINITY; });
    ech_launch(context, find_first, ech_blocks(ech_ceil(n, ECH_PART), ECH_BLOCK), ECH_BLOCK, 0,
               ech_numbers(x), n, (word *)(void *)found);
    ech_once(context, [=] __device__() { *found = isfinite(*found) ? *found : -1; });
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Orthonormal columns, as in ref/orthogonalize.c, by one block of the largest size: matrices are
 * tall and have few columns, and each column depends on the ones before it. Each thread has rows of
 * its own, so only sums, and shared reads of a row, wait for other threads.
 */
#include "kernel/cuda/reduce.cuh"

enum { COLUMN_THREADS = 1024 };

namespace
{
/* As in ref/orthogonalize.c. */
enum { FACTOR, SIGN, EMPTY };

/* The block's rows of columns in global memory. */
struct columns {
    double *data;
    int64_t R, K, stride;
    double *room; /* shared: one number per warp */

    __device__ double *of(int64_t k) const
    {
        return data + k * stride;
    }
    /* The sum over the rows from `first` on, for all threads, with barriers before and after. */
    __device__ double product(const double *a, const double *b, int64_t first) const
    {
        double sum = 0;
        for (int64_t r = threadIdx.x; r < R; r += blockDim.x)
            if (r >= first) sum += a[r] * b[r];
        return ech_block_fold(ech_plus(), sum, room);
    }
    /* By a reflection, whose column no other thread changes at the same time. */
    __device__ void reflect(int64_t k, double factor, double *other) const
    {
        const double *v = of(k);
        __syncthreads();
        double top = other[k], by = factor * (top + product(v, other, k + 1));
        for (int64_t r = threadIdx.x; r < R; r += blockDim.x)
            if (r >= k) other[r] -= r == k ? by : by * v[r];
    }
    __device__ void find_reflection(int64_t k, double least) const
    {
        double *v = of(k);
        __syncthreads();
        double top = v[k], below = product(v, v, k + 1);
        double norm = sqrt(top * top + below), to = top > 0 ? -norm : norm;
        bool empty = norm <= least;
        if (threadIdx.x == 0) {
            v[R + FACTOR] = empty ? 0 : below == 0 ? top - top : (to - top) / to;
            v[R + SIGN] = empty ? 1 : below == 0 ? (top < 0 ? -1 : 1) : (to < 0 ? -1 : 1);
            v[R + EMPTY] = empty;
        }
        for (int64_t r = threadIdx.x; r < R && (empty || below != 0); r += blockDim.x)
            if (r > k)
                v[r] = empty ? 0 : v[r] / (top - to);
            else if (r == k && empty)
                v[r] = 0;
        __syncthreads();
    }
    __device__ void form(int64_t k) const
    {
        double *v = of(k), factor = v[R + FACTOR];
        for (int64_t j = k + 1; j < K; j++) reflect(k, factor, of(j));
        for (int64_t r = threadIdx.x; r < R; r += blockDim.x)
            v[r] = r < k ? 0 : r == k ? 1 - factor : -factor * v[r];
    }
    __device__ void by_reflections(double least) const
    {
        for (int64_t k = 0; k < K; k++) {
            find_reflection(k, least);
            for (int64_t j = k + 1; j < K; j++) reflect(k, of(k)[R + FACTOR], of(j));
        }
        __syncthreads();
        for (int64_t k = K - 1; k >= 0; k--) form(k);
        for (int64_t k = 0; k < K; k++)
            for (int64_t r = threadIdx.x; r < R; r += blockDim.x) of(k)[r] *= of(k)[R + SIGN];
    }
    __device__ double longest() const
    {
        double most = 0;
        for (int64_t k = 0; k < K; k++) most = fmax(most, sqrt(product(of(k), of(k), 0)));
        return most;
    }
    __device__ double largest() const
    {
        double most = 0;
        for (int64_t k = 0; k < K; k++)
            for (int64_t r = threadIdx.x; r < R; r += blockDim.x) most = fmax(most, fabs(of(k)[r]));
        return ech_block_fold(ech_larger(), most, room);
    }
    __device__ void by_projections() const
    {
        double most = largest(), add = most > 0 ? ECH_ORTHOGONAL_EPSILON * most : 1;
        for (int64_t k = 0; k < K; k++) {
            double *a = of(k);
            for (int64_t r = threadIdx.x; r < R; r += blockDim.x)
                if (r == k) a[r] += add;
            for (int64_t j = 0; j < 2 * k; j++) {
                const double *before = of(j % k);
                double by = product(before, a, 0);
                for (int64_t r = threadIdx.x; r < R; r += blockDim.x) a[r] -= by * before[r];
            }
            double norm = sqrt(product(a, a, 0));
            for (int64_t r = threadIdx.x; r < R; r += blockDim.x) a[r] /= norm;
        }
    }
};
} // namespace

__device__ static bool is_empty(const ech_numbers &p, int64_t K, int64_t r)
{
    bool empty = true;
    for (int64_t k = 0; k < K; k++)
        if (p.get(r * K + k) != 0) empty = false;
    return empty;
}

static __global__ void __launch_bounds__(COLUMN_THREADS, 1)
    orthogonalize_columns(ech_numbers p, columns c, ech_dtype dtype, int64_t terms,
                          bool householder)
{
    ECH_SHARED(double, room, COLUMN_THREADS / ECH_WARP);
    c.room = room;
    for (int64_t k = 0; k < c.K; k++)
        for (int64_t r = threadIdx.x; r < c.R; r += blockDim.x) c.of(k)[r] = p.get(r * c.K + k);
    if (householder)
        c.by_reflections(ech_rounding_error(dtype, terms, c.longest()));
    else
        c.by_projections();
    for (int64_t r = threadIdx.x; r < c.R; r += blockDim.x) {
        bool stays = householder && r < c.K && is_empty(p, c.K, r);
        for (int64_t k = 0; k < c.K; k++)
            p.put(r * c.K + k, stays && c.of(k)[c.R + EMPTY] == 0 ? 0 : (wide)c.of(k)[r]);
    }
}

static int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void ECH_CUDA(orthogonalize)(ech_kernel_context *context, const ech_tensor *p, int64_t terms,
                             bool householder, const ech_tensor *work)
{
    ech_cuda_check(ECH_OP_orthogonalize, ECH_REAL, p, work);
    const columns c = {static_cast<double *>(work->data), p->shape[0], p->shape[1], work->shape[1],
                       NULL};
    ECH_ASSERT(c.K <= c.R && c.stride >= c.R + ECH_ORTHOGONAL_ROOM);
    if (c.K == 0) return;
    ech_launch(context, orthogonalize_columns, dim3(1), COLUMN_THREADS, 0, ech_numbers(p), c,
               p->dtype, most_of(terms, c.R), householder);
}

/* ---- columns that are rounding errors ---- */

static __device__ double length_of(const ech_numbers &x, int64_t R, int64_t K, int64_t k,
                                   double *room)
{
    double sum = 0;
    for (int64_t r = threadIdx.x; r < R; r += blockDim.x)
        sum += (double)x.get(r * K + k) * (double)x.get(r * K + k);
    return sqrt(ech_block_fold(ech_plus(), sum, room));
}

static __device__ double least_of(const ech_numbers &x, int64_t R, int64_t K, ech_dtype dtype,
                                  int64_t terms, double *room)
{
    double longest = 0;
    for (int64_t k = 0; k < K; k++) longest = fmax(longest, length_of(x, R, K, k, room));
    return ech_rounding_error(dtype, terms, longest);
}

static __global__ void __launch_bounds__(COLUMN_THREADS, 1)
    clear_rounding(ech_numbers x, int64_t R, int64_t K, ech_dtype dtype, int64_t terms)
{
    ECH_SHARED(double, room, COLUMN_THREADS / ECH_WARP);
    double least = least_of(x, R, K, dtype, terms, room);
    for (int64_t k = 0; k < K; k++) {
        if (!(length_of(x, R, K, k, room) <= least)) continue;
        for (int64_t r = threadIdx.x; r < R; r += blockDim.x) x.put(r * K + k, 0);
    }
}

void ECH_CUDA(clear_columns)(ech_kernel_context *context, const ech_tensor *x, int64_t terms)
{
    ech_cuda_check(ECH_OP_clear_columns, ECH_REAL, x);
    int64_t R = x->shape[0], K = x->shape[1];
    if (R * K == 0) return;
    ech_launch(context, clear_rounding, dim3(1), COLUMN_THREADS, 0, ech_numbers(x), R, K, x->dtype,
               most_of(terms, R));
}

static __global__ void __launch_bounds__(COLUMN_THREADS, 1)
    count_found(ech_numbers x, int64_t R, int64_t K, ech_dtype dtype, int64_t terms, double *sums)
{
    ECH_SHARED(double, room, COLUMN_THREADS / ECH_WARP);
    double least = least_of(x, R, K, dtype, terms, room), found = 0;
    for (int64_t k = 0; k < K; k++) found += !(length_of(x, R, K, k, room) <= least);
    if (threadIdx.x != 0) return;
    sums[ECH_RANK_COLUMNS] += found;
    sums[ECH_RANK_SHORT] += found < (double)K;
    sums[ECH_RANK_MATRICES] += 1;
}

void ECH_CUDA(count_columns)(ech_kernel_context *context, const ech_tensor *x, int64_t terms,
                             const ech_tensor *sums)
{
    ech_cuda_check(ECH_OP_count_columns, ECH_REAL, x, sums);
    int64_t R = x->shape[0], K = x->shape[1];
    ech_launch(context, count_found, dim3(1), COLUMN_THREADS, 0, ech_numbers(x), R, K, x->dtype,
               most_of(terms, R), static_cast<double *>(sums->data));
}

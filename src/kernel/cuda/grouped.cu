/* SPDX-License-Identifier: Apache-2.0
 *
 * Products, activations and dropout of rows by expert. The host does not know the counts, so there
 * are blocks for the most rows of each expert in a split; blocks without rows end immediately.
 */
#include "kernel/cuda/activation.cuh"
#include "kernel/cuda/random.cuh"
#include "kernel/cuda/tiles.cuh"

extern "C" {
#include "kernel/experts.h"
}

namespace
{
struct groups {
    const int32_t *counts;
    int64_t P, X, Q;

    groups(const ech_tensor *counts_, const ech_tensor *buffer)
        : counts(static_cast<const int32_t *>(counts_->data)), P(counts_->shape[0]),
          X(counts_->shape[1]), Q(buffer->shape[0] / counts_->shape[0])
    {
        ECH_ASSERT(buffer->shape[0] % P == 0);
    }
    __device__ int64_t first(int64_t split, int64_t expert) const
    {
        return split * Q + ech_rows_before(counts, X, split, expert);
    }
    __device__ int64_t rows(int64_t split, int64_t expert) const
    {
        return counts[split * X + expert];
    }
};
} // namespace

/* `at` is for the whole buffers; b for expert 0. */
template <bool Transposed>
static __global__ void __launch_bounds__(ECH_TILE_THREADS, 1)
    multiply_group(ech_tile_product at, groups of, bool accumulate)
{
    ECH_SHARED(ech_chunk, a, ECH_TILE_ROOM);
    ECH_SHARED(ech_chunk, b, ECH_TILE_ROOM);
    int64_t split = blockIdx.z / of.X, expert = blockIdx.z % of.X;
    int64_t m = (int64_t)blockIdx.y * ECH_TILE, n = (int64_t)blockIdx.x * ECH_TILE;
    int64_t first = of.first(split, expert);
    at.M = of.rows(split, expert);
    if (m >= at.M) return;
    ech_sums<ECH_TILE> sum;
    ech_clear(sum);
    at.a += first * at.a_stride;
    at.b += expert * at.K * at.N;
    ech_add_tile<false, Transposed>(at, m, n, a, b, sum);
    int warp = (int)threadIdx.x / ECH_WARP * ECH_TILE_ROWS;
    ech_each_sum(sum, [&](int which, int column, wide x) {
        int64_t row = m + warp + ech_lane_row(which), i = (first + row) * at.N + n + column;
        if (row >= at.M || n + column >= at.N) return;
        at.c.put(i, accumulate ? x + at.c.get(i) : x);
    });
}

void ECH_CUDA(grouped_matmul)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                              bool b_transposed, const ech_tensor *counts, bool accumulate,
                              const ech_tensor *c)
{
    int64_t N = c->shape[1], K = a->shape[1];
    ech_tensor op_b = *b;
    op_b.shape[1] = b->shape[b_transposed ? 2 : 1];
    op_b.shape[2] = b->shape[b_transposed ? 1 : 2];
    op_b.stride[1] = op_b.shape[2];
    op_b.stride[0] = op_b.shape[1] * op_b.shape[2];
    ech_cuda_check(ECH_OP_grouped_matmul, ECH_REAL, a, &op_b, counts, c);
    const groups of(counts, a);
    const ech_tile_product at = {static_cast<const real *>(a->data),
                                 static_cast<const real *>(b->data),
                                 0,
                                 N,
                                 K,
                                 K,
                                 b_transposed ? K : N,
                                 0,
                                 N,
                                 false,
                                 NULL,
                                 NULL,
                                 c};
    const dim3 blocks((unsigned)ech_ceil(N, ECH_TILE), (unsigned)ech_ceil(of.Q, ECH_TILE),
                      (unsigned)(of.P * of.X));
    ech_launch(context, b_transposed ? multiply_group<true> : multiply_group<false>, blocks,
               ECH_TILE_THREADS, 0, at, of, accumulate);
}

static __global__ void __launch_bounds__(ECH_TILE_THREADS, 1)
    multiply_weight(ech_tile_product whole, groups of, bool accumulate)
{
    ECH_SHARED(ech_chunk, a, ECH_TILE_ROOM);
    ECH_SHARED(ech_chunk, b, ECH_TILE_ROOM);
    int64_t expert = blockIdx.z;
    int64_t m = (int64_t)blockIdx.y * ECH_TILE, n = (int64_t)blockIdx.x * ECH_TILE;
    ech_sums<ECH_TILE> sum;
    ech_clear(sum);
    for (int64_t split = 0; split < of.P; split++) {
        ech_tile_product at = whole;
        int64_t first = of.first(split, expert);
        at.K = of.rows(split, expert);
        at.a += first * at.M;
        at.b += first * at.N;
        ech_add_tile<true, false>(at, m, n, a, b, sum);
    }
    int warp = (int)threadIdx.x / ECH_WARP * ECH_TILE_ROWS;
    ech_each_sum(sum, [&](int which, int column, wide x) {
        int64_t row = m + warp + ech_lane_row(which);
        int64_t i = (expert * whole.M + row) * whole.N + n + column;
        if (row >= whole.M || n + column >= whole.N) return;
        whole.c.put(i, accumulate ? x + whole.c.get(i) : x);
    });
}

void ECH_CUDA(grouped_matmul_weight)(ech_kernel_context *context, const ech_tensor *a,
                                     const ech_tensor *b, const ech_tensor *counts, bool accumulate,
                                     const ech_tensor *c)
{
    int64_t M = c->shape[1], N = c->shape[2];
    ech_cuda_check(ECH_OP_grouped_matmul_weight, ECH_REAL, a, b, counts, c);
    const groups of(counts, a);
    const ech_tile_product at = {static_cast<const real *>(a->data),
                                 static_cast<const real *>(b->data),
                                 M,
                                 N,
                                 0,
                                 M,
                                 N,
                                 0,
                                 N,
                                 true,
                                 NULL,
                                 NULL,
                                 c};
    const dim3 blocks((unsigned)ech_ceil(N, ECH_TILE), (unsigned)ech_ceil(M, ECH_TILE),
                      (unsigned)of.X);
    ech_launch(context, multiply_weight, blocks, ECH_TILE_THREADS, 0, at, of, accumulate);
}

/* Calls f(i, count) for the elements of used rows of F elements, in parts. */
template <typename Call> static __global__ void each_used_kernel(groups of, int64_t F, Call f)
{
    int64_t split = blockIdx.y, step = (int64_t)gridDim.x * blockDim.x * ECH_PART;
    int64_t first = split * of.Q * F, n = ech_rows_before(of.counts, of.X, split, of.X) * F;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * ECH_PART; i < n; i += step)
        f(first + i, ech_part_count(n - i));
}

template <typename Call>
static void each_used(const ech_kernel_context *context, const ech_tensor *buffer,
                      const ech_tensor *counts, Call f)
{
    const groups of(counts, buffer);
    int64_t F = buffer->shape[1];
    dim3 blocks = ech_blocks(ech_ceil(of.Q * F, ECH_PART), ECH_BLOCK);
    blocks.y = (unsigned)of.P;
    ech_launch(context, each_used_kernel<Call>, blocks, ECH_BLOCK, 0, of, F, f);
}

/* y = f(x), element by element. */
template <typename Call>
static void each_number(const ech_kernel_context *context, const ech_tensor *x,
                        const ech_tensor *counts, const ech_tensor *y, Call f)
{
    const ech_numbers from = x, to = y;
    each_used(context, x, counts, [=] __device__(int64_t i, int n) {
        wide v[ECH_PART];
        from.load(i, n, v);
        for (int k = 0; k < ECH_PART; k++) v[k] = f(v[k]);
        to.store(i, n, v);
    });
}

/* y = f(a, b), element by element. */
template <typename Call>
static void each_pair(const ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                      const ech_tensor *counts, const ech_tensor *y, Call f)
{
    const ech_numbers from = a, more = b, to = y;
    each_used(context, a, counts, [=] __device__(int64_t i, int n) {
        wide v[ECH_PART], w[ECH_PART];
        from.load(i, n, v);
        more.load(i, n, w);
        for (int k = 0; k < ECH_PART; k++) v[k] = f(v[k], w[k]);
        to.store(i, n, v);
    });
}

#define ROWS_1(name)                                                                               \
    void ECH_CUDA(grouped_##name##_forward)(ech_kernel_context * context, const ech_tensor *x,     \
                                            const ech_tensor *counts, const ech_tensor *y)         \
    {                                                                                              \
        ech_cuda_check(ECH_OP_grouped_##name##_forward, ECH_REAL, x, counts, y);                   \
        each_number(context, x, counts, y, ech_##name());                                          \
    }                                                                                              \
    void ECH_CUDA(grouped_##name##_backward)(ech_kernel_context * context, const ech_tensor *dy,   \
                                             const ech_tensor *x, const ech_tensor *counts,        \
                                             const ech_tensor *dx)                                 \
    {                                                                                              \
        ech_cuda_check(ECH_OP_grouped_##name##_backward, ECH_REAL, dy, x, counts, dx);             \
        each_pair(context, dy, x, counts, dx, ech_##name##_gradient());                            \
    }

#define ROWS_2(name)                                                                               \
    void ECH_CUDA(grouped_##name##_forward)(ech_kernel_context * context, const ech_tensor *gate,  \
                                            const ech_tensor *up, const ech_tensor *counts,        \
                                            const ech_tensor *y)                                   \
    {                                                                                              \
        ech_cuda_check(ECH_OP_grouped_##name##_forward, ECH_REAL, gate, up, counts, y);            \
        each_pair(context, gate, up, counts, y, ech_##name());                                     \
    }                                                                                              \
    void ECH_CUDA(grouped_##name##_backward)(ech_kernel_context * context, const ech_tensor *dy,   \
                                             const ech_tensor *gate, const ech_tensor *up,         \
                                             const ech_tensor *counts, const ech_tensor *dgate,    \
                                             const ech_tensor *dup)                                \
    {                                                                                              \
        ech_cuda_check(ECH_OP_grouped_##name##_backward, ECH_REAL, dy, gate, up, counts, dgate,    \
                       dup);                                                                       \
        const ech_numbers gradient = dy, gates = gate, ups = up, to_gate = dgate, to_up = dup;     \
        each_used(context, gate, counts, [=] __device__(int64_t i, int n) {                        \
            ech_gradients_of_part<ech_##name##_gradient>(gradient, gates, ups, to_gate, to_up, i,  \
                                                         n);                                       \
        });                                                                                        \
    }

#define ROWS(NAME, name, operands, ...) ROWS_##operands(name)
ECH_ACTIVATIONS(ROWS)

/* ---- biases ---- */

static __device__ int64_t expert_of(const groups &of, int64_t row)
{
    int64_t left, split = ech_divide(row, of.Q, &left), i = 0;
    for (; left >= of.counts[split * of.X + i]; i++) left -= of.counts[split * of.X + i];
    return i;
}

void ECH_CUDA(grouped_bias)(ech_kernel_context *context, const ech_tensor *bias,
                            const ech_tensor *counts, const ech_tensor *c)
{
    int64_t N = c->shape[1];
    ech_cuda_check(ECH_OP_grouped_bias, ECH_REAL, bias, counts, c);
    const groups of(counts, c);
    const ech_numbers from = bias, to = c;
    each_used(context, c, counts, [=] __device__(int64_t at, int n) {
        wide v[ECH_PART] = {};
        int64_t column, row = ech_divide(at, N, &column), i = expert_of(of, row);
        for (int k = 0; k < n; k++, column++) {
            if (column == N) {
                column = 0;
                i = expert_of(of, ++row);
            }
            v[k] = from.get(i * N + column);
        }
        to.store(at, n, v);
    });
}

/* A thread sums a column of an expert's rows, in their order. */
void ECH_CUDA(grouped_bias_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                     const ech_tensor *counts, bool accumulate,
                                     const ech_tensor *dbias)
{
    int64_t N = dy->shape[1];
    ech_cuda_check(ECH_OP_grouped_bias_backward, ECH_REAL, dy, counts, dbias);
    const groups of(counts, dy);
    const ech_numbers from = dy, to = dbias;
    ech_each(context, ech_tensor_count(dbias), [=] __device__(int64_t first, int n) {
        for (int64_t at = first; at < first + n; at++) {
            int64_t column, i = ech_divide(at, N, &column);
            double sum = accumulate ? (double)to.get(at) : 0;
            for (int64_t p = 0; p < of.P; p++) {
                int64_t row = p * of.Q + ech_rows_before(of.counts, of.X, p, i);
                int64_t end = row + of.counts[p * of.X + i];
                for (; row < end; row++) sum += (double)from.get(row * N + column);
            }
            to.put(at, (wide)sum);
        }
    });
}

void ECH_CUDA(grouped_dropout)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_dropout *dropout, const ech_tensor *index, int64_t first,
                               int64_t whole, const ech_tensor *counts, const ech_tensor *y)
{
    int64_t F = x->shape[1];
    ech_cuda_check(ECH_OP_grouped_dropout, ECH_REAL, x, index, counts, y);
    ECH_ASSERT(first >= 0 && (index || dropout->p == 0));
    const ech_numbers from = x, to = y;
    const ech_dropout drop = *dropout;
    const uint64_t dropped = ech_dropped_words(drop.p);
    const wide scale = (wide)(1 / (1 - drop.p));
    const int32_t *of = index ? static_cast<const int32_t *>(index->data) : NULL;
    each_used(context, x, counts, [=] __device__(int64_t i, int n) {
        wide v[ECH_PART];
        ech_drawn drawn;
        from.load(i, n, v);
        for (int k = 0; k < n; k++) {
            int64_t r = (i + k) / F, c = (i + k) % F;
            bool drops = false;
            if (drop.p > 0) {
                uint64_t element = (uint64_t)(ech_choice_get(of, r) * whole + first + c);
                drops = ech_draw(ech_dropout_key(&drop), element, &drawn) < dropped;
            }
            v[k] = drops ? 0 : v[k] * scale;
        }
        to.store(i, n, v);
    });
}

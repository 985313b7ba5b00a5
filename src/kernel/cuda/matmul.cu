/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products: by cuBLASLt, or of any strides and types by tiles: 16-bit types on tensor cores, others by multiply-adds.
 */
#include "kernel/cuda/product.cuh"

extern "C" {
#include "kernel/cuda/library.h"
}

enum {
    TILE = 64,
    DEPTH = 32,
    THREADS = 128,
    ROW = DEPTH + ECH_TILE_PAD,
    WIDE_ROW = TILE + ECH_TILE_PAD
};

struct product_call {
    const real *a, *b;
    int64_t M, N, K, a_stride, b_stride, add_stride, c_stride;
    bool a_transposed;
    ech_numbers bias, add, c;
};

/* Rows [first, first + rows) of a matrix (R, C), columns [column, column + columns), 0 outside; rows of `width` elements in
 * shared memory. */
template <int ROWS, int COLUMNS>
static __device__ void load_tile(real *tile, const real *from, int64_t stride, int64_t first,
                                 int64_t R, int64_t column, int64_t C)
{
    enum { CHUNK = sizeof(ech_chunk) / sizeof(real), CHUNKS = COLUMNS / CHUNK };
    for (int i = (int)threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        int64_t r = first + i / CHUNKS, c = column + i % CHUNKS * CHUNK;
        const real *at = from + r * stride + c;
        real *to = tile + i / CHUNKS * (COLUMNS + ECH_TILE_PAD) + i % CHUNKS * CHUNK;
        if (r < R && c + CHUNK <= C && ech_is_aligned(at)) {
            *reinterpret_cast<ech_chunk *>(to) = *reinterpret_cast<const ech_chunk *>(at);
            continue;
        }
        for (int k = 0; k < CHUNK; k++) to[k] = r < R && c + k < C ? at[k] : real{};
    }
}

/* The transpose of DEPTH rows of a (K, M): (TILE, DEPTH). */
static __device__ void load_transposed(real *tile, const product_call &at, int64_t m, int64_t k)
{
    for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        int r = i / TILE, c = i % TILE;
        bool is_there = k + r < at.K && m + c < at.M;
        tile[c * ROW + r] = is_there ? at.a[(k + r) * at.a_stride + m + c] : real{};
    }
}

template <bool Transposed>
static __global__ void __launch_bounds__(THREADS, 1) multiply(const product_call at)
{
    ECH_SHARED(ech_chunk, a_room, TILE * ROW * sizeof(real) / sizeof(ech_chunk));
    ECH_SHARED(ech_chunk, b_room, TILE * ROW * sizeof(real) / sizeof(ech_chunk));
    real *a = reinterpret_cast<real *>(a_room), *b = reinterpret_cast<real *>(b_room);
    int warp = (int)threadIdx.x / ECH_WARP * ECH_TILE_ROWS;
    int64_t m = (int64_t)blockIdx.y * TILE, n = (int64_t)blockIdx.x * TILE;
    ech_sums<TILE> sum;
    ech_clear(sum);
    for (int64_t k = 0; k < at.K; k += DEPTH) {
        __syncthreads();
        if (at.a_transposed)
            load_transposed(a, at, m, k);
        else
            load_tile<TILE, DEPTH>(a, at.a, at.a_stride, m, at.M, k, at.K);
        if (Transposed)
            load_tile<TILE, DEPTH>(b, at.b, at.b_stride, n, at.N, k, at.K);
        else
            load_tile<DEPTH, TILE>(b, at.b, at.b_stride, k, at.K, n, at.N);
        __syncthreads();
        ech_product<Transposed, TILE, DEPTH, ROW, Transposed ? ROW : WIDE_ROW>(sum, a + warp * ROW,
                                                                               b);
    }
    ech_each_sum(sum, [&](int which, int column, wide x) {
        int64_t row = m + warp + ech_lane_row(which), c = n + column;
        if (row >= at.M || c >= at.N) return;
        if (at.bias.is_here()) x += at.bias.get(c);
        if (at.add.is_here()) x += at.add.get(row * at.add_stride + c);
        at.c.put(row * at.c_stride + c, x);
    });
}

/* False: not one of the library's. */
static bool multiply_by_library(const ech_kernel_context *context, const product_call &at,
                                bool b_transposed, const ech_tensor *bias, const ech_tensor *add,
                                const ech_tensor *c)
{
#if defined ECH_EMULATED && !defined ECH_EMULATED_LIBRARY
    return false;
#else
    int64_t N = at.N;
    ech_cuda_product product = {ECH_REAL,
                                c->dtype,
                                at.M,
                                N,
                                at.K,
                                at.a_stride,
                                at.b_stride,
                                at.add_stride,
                                at.c_stride,
                                at.a_transposed,
                                b_transposed,
                                at.a,
                                at.b,
                                bias ? bias->data : NULL,
                                add ? add->data : NULL,
                                c->data};
    if ((add && add->dtype != c->dtype) || !ECH_CUDA_LIBRARY(takes)(&product)) return false;
    bool narrows = bias && bias->dtype != c->dtype;
    size_t bytes = narrows ? (size_t)N * sizeof(real) : 0;
    char *scratch = static_cast<char *>(ech_scratch(context, ECH_CUDA_WORKSPACE + bytes));
    if (narrows) { /* the library wants it in the result's type */
        const ech_tensor narrow = ech_tensor_view(scratch + ECH_CUDA_WORKSPACE, ECH_REAL, 1, &N);
        const ech_numbers from = bias, to = &narrow;
        ech_each(context, N, [=] __device__(int64_t i, int n) {
            wide part[ECH_PART];
            from.load(i, n, part);
            to.store(i, n, part);
        });
        product.bias = narrow.data;
    }
    return ECH_CUDA_LIBRARY(multiply)(context, &product, scratch);
#endif
}

void ECH_CUDA(matmul)(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                      const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                      const ech_tensor *add, const ech_tensor *c)
{
    const ech_tensor op_a = ech_shape_transposed(a, a_transposed);
    const ech_tensor op_b = ech_shape_transposed(b, b_transposed);
    ech_cuda_check(ECH_OP_matmul, ECH_REAL, &op_a, &op_b, bias, add, c);
    int64_t M = c->shape[0], N = c->shape[1], K = a->shape[a_transposed ? 0 : 1];
    const product_call at = {static_cast<const real *>(a->data),
                             static_cast<const real *>(b->data),
                             M,
                             N,
                             K,
                             a->stride[0],
                             b->stride[0],
                             add ? add->stride[0] : 0,
                             c->stride[0],
                             a_transposed,
                             bias,
                             add,
                             c};
    if (multiply_by_library(context, at, b_transposed, bias, add, c)) return;
    ech_launch(context, b_transposed ? multiply<true> : multiply<false>,
               dim3((unsigned)ech_ceil(N, TILE), (unsigned)ech_ceil(M, TILE)), THREADS, 0, at);
}

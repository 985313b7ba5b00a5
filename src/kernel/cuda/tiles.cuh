/* SPDX-License-Identifier: Apache-2.0
 *
 * A block's tile of a matrix product with any strides and types, read from device memory: 16-bit
 * types use tensor cores, others multiply-adds.
 */
#ifndef ECH_KERNEL_CUDA_TILES_H
#define ECH_KERNEL_CUDA_TILES_H

#include "kernel/cuda/product.cuh"

namespace
{
enum {
    ECH_TILE = 64,
    ECH_TILE_DEPTH = 128 / sizeof(real),
    ECH_TILE_THREADS = 128,
    /* Chunks of shared memory for two tiles, (ECH_TILE, ECH_TILE_DEPTH) or (ECH_TILE_DEPTH,
     * ECH_TILE): one is loaded while the other is used. */
    ECH_TILE_BYTES = ECH_TILE * (ECH_TILE_DEPTH + ECH_TILE_PAD) * sizeof(real),
    ECH_TILE_ROOM = 2 * ECH_TILE_BYTES / sizeof(ech_chunk)
};

struct ech_tile_product {
    const real *a, *b;
    int64_t M, N, K, a_stride, b_stride, add_stride, c_stride;
    bool a_transposed;
    ech_numbers bias, add, c;
};

/* Begins to copy rows [first, first + ROWS) of a matrix (R, C), columns [column, column + COLUMNS),
 * 0 outside. */
template <int ROWS, int COLUMNS>
static __device__ inline void ech_load_tile(real *tile, const real *from, int64_t stride,
                                            int64_t first, int64_t R, int64_t column, int64_t C)
{
    typedef ech_row_chunks<COLUMNS, ECH_TILE_THREADS> chunks;
    int64_t rows = R - first < ROWS ? R - first : ROWS,
            columns = C - column < COLUMNS ? C - column : COLUMNS;
    const real *at = from + (first + chunks::row()) * stride + column + chunks::column();
    chunks::template load<ROWS>(tile, at, stride, 0, (int)rows, (int)columns);
}

/* A tile of a (M, K), or if T of its transpose. */
template <bool T>
static __device__ inline void ech_load_side(real *tile, const real *from, int64_t stride, int64_t m,
                                            int64_t M, int64_t k, int64_t K)
{
    if (T)
        ech_load_tile<ECH_TILE_DEPTH, ECH_TILE>(tile, from, stride, k, K, m, M);
    else
        ech_load_tile<ECH_TILE, ECH_TILE_DEPTH>(tile, from, stride, m, M, k, K);
}

/* Adds the tile that begins at row m and column n of c to the warp's sums. All threads of the block
 * take part; a and b: ECH_TILE_ROOM chunks of shared memory each. TA: a is (K, M); TB: b is (N,
 * K). */
template <bool TA, bool TB>
static __device__ inline void ech_add_tile(const ech_tile_product &at, int64_t m, int64_t n,
                                           ech_chunk *a_room, ech_chunk *b_room,
                                           ech_sums<ECH_TILE> &sum)
{
    enum { TILE = ECH_TILE_BYTES / sizeof(real) };
    real *a = reinterpret_cast<real *>(a_room), *b = reinterpret_cast<real *>(b_room);
    int warp = (int)threadIdx.x / ECH_WARP * ECH_TILE_ROWS, turn = 0;
    for (int64_t k = -ECH_TILE_DEPTH; k < at.K; k += ECH_TILE_DEPTH, turn ^= 1) {
        int64_t next = k + ECH_TILE_DEPTH;
        ech_end_copies();
        __syncthreads();
        if (next < at.K) {
            ech_load_side<TA>(a + (turn ^ 1) * TILE, at.a, at.a_stride, m, at.M, next, at.K);
            ech_load_side<!TB>(b + (turn ^ 1) * TILE, at.b, at.b_stride, n, at.N, next, at.K);
        }
        if (k < 0) continue;
        const real *left = a + turn * TILE + (TA ? warp : warp * (ECH_TILE_DEPTH + ECH_TILE_PAD));
        ech_product<TB, ECH_TILE, ECH_TILE_DEPTH, TA ? (int)ECH_TILE : 0>(sum, left,
                                                                          b + turn * TILE);
    }
}

/* c's tile = the sums + bias + add. */
static __device__ inline void ech_store_tile(const ech_tile_product &at, int64_t m, int64_t n,
                                             ech_sums<ECH_TILE> &sum)
{
    int warp = (int)threadIdx.x / ECH_WARP * ECH_TILE_ROWS;
    ech_each_sum(sum, [&](int which, int column, wide x) {
        int64_t row = m + warp + ech_lane_row(which), c = n + column;
        if (row >= at.M || c >= at.N) return;
        if (at.bias.is_here()) x += at.bias.get(c);
        if (at.add.is_here()) x += at.add.get(row * at.add_stride + c);
        at.c.put(row * at.c_stride + c, x);
    });
}
} // namespace

#endif

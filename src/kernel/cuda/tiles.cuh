/* SPDX-License-Identifier: Apache-2.0
 *
 * A block's tile of a matrix product of any strides and types, read from the device's memory: 16-bit types on tensor cores,
 * others by multiply-adds.
 */
#ifndef ECH_KERNEL_CUDA_TILES_H
#define ECH_KERNEL_CUDA_TILES_H

#include "kernel/cuda/product.cuh"

namespace
{
enum {
    ECH_TILE = 64,
    ECH_TILE_DEPTH = 32,
    ECH_TILE_THREADS = 128,
    ECH_TILE_STRIDE = ECH_TILE_DEPTH + ECH_TILE_PAD,
    ECH_TILE_WIDE_STRIDE = ECH_TILE + ECH_TILE_PAD,
    ECH_TILE_ROOM = ECH_TILE * ECH_TILE_STRIDE * sizeof(real) / sizeof(ech_chunk)
};

struct ech_tile_product {
    const real *a, *b;
    int64_t M, N, K, a_stride, b_stride, add_stride, c_stride;
    bool a_transposed;
    ech_numbers bias, add, c;
};

/* Rows [first, first + rows) of a matrix (R, C), columns [column, column + columns), 0 outside; rows of `width` elements in
 * shared memory. */
template <int ROWS, int COLUMNS>
static __device__ inline void ech_load_tile(real *tile, const real *from, int64_t stride,
                                            int64_t first, int64_t R, int64_t column, int64_t C)
{
    enum { CHUNK = sizeof(ech_chunk) / sizeof(real), CHUNKS = COLUMNS / CHUNK };
    for (int i = (int)threadIdx.x; i < ROWS * CHUNKS; i += ECH_TILE_THREADS) {
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

/* The transpose of ECH_TILE_DEPTH rows of a (K, M): (ECH_TILE, ECH_TILE_DEPTH). */
static __device__ inline void ech_load_transposed(real *tile, const ech_tile_product &at, int64_t m,
                                                  int64_t k)
{
    for (int i = (int)threadIdx.x; i < ECH_TILE * ECH_TILE_DEPTH; i += ECH_TILE_THREADS) {
        int r = i / ECH_TILE, c = i % ECH_TILE;
        bool is_there = k + r < at.K && m + c < at.M;
        tile[c * ECH_TILE_STRIDE + r] = is_there ? at.a[(k + r) * at.a_stride + m + c] : real{};
    }
}

/* Adds to the warp's sums those of the tile that begins at row m and column n of c. All threads of the block take part; a and
 * b: ECH_TILE_ROOM chunks of shared memory each. */
template <bool Transposed>
static __device__ inline void ech_add_tile(const ech_tile_product &at, int64_t m, int64_t n,
                                           ech_chunk *a_room, ech_chunk *b_room,
                                           ech_sums<ECH_TILE> &sum)
{
    real *a = reinterpret_cast<real *>(a_room), *b = reinterpret_cast<real *>(b_room);
    int warp = (int)threadIdx.x / ECH_WARP * ECH_TILE_ROWS;
    for (int64_t k = 0; k < at.K; k += ECH_TILE_DEPTH) {
        __syncthreads();
        if (at.a_transposed)
            ech_load_transposed(a, at, m, k);
        else
            ech_load_tile<ECH_TILE, ECH_TILE_DEPTH>(a, at.a, at.a_stride, m, at.M, k, at.K);
        if (Transposed)
            ech_load_tile<ECH_TILE, ECH_TILE_DEPTH>(b, at.b, at.b_stride, n, at.N, k, at.K);
        else
            ech_load_tile<ECH_TILE_DEPTH, ECH_TILE>(b, at.b, at.b_stride, k, at.K, n, at.N);
        __syncthreads();
        ech_product<Transposed, ECH_TILE, ECH_TILE_DEPTH, ECH_TILE_STRIDE,
                    Transposed ? ECH_TILE_STRIDE : ECH_TILE_WIDE_STRIDE>(
            sum, a + warp * ECH_TILE_STRIDE, b);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Small matrix products on packed tiles, for attention. All tiles have ECH_TILE rows or columns,
 * padded with zeros, so no loop has a remainder.
 */
#ifndef ECH_KERNEL_CPU_TILE_H
#define ECH_KERNEL_CPU_TILE_H

#include "kernel/cpu/vector.h"
#include "tensor/tensor.h"

/* ECH_TILE is a multiple of the register block below: 6 rows of 16 columns. */
enum { ECH_TILE = 48, ECH_TILE_ROWS = 6, ECH_TILE_LANES = 16 };

typedef float ech_tile_lanes __attribute__((vector_size(64), aligned(4), may_alias));

/* n rounded up to full lanes. */
static inline int64_t ech_tile_width(int64_t n)
{
    return (n + ECH_TILE_LANES - 1) / ECH_TILE_LANES * ECH_TILE_LANES;
}

/* n rounded up to full register blocks. */
static inline int64_t ech_tile_rows(int64_t n)
{
    return (n + ECH_TILE_ROWS - 1) / ECH_TILE_ROWS * ECH_TILE_ROWS;
}

static inline int64_t ech_tile_count(int64_t n)
{
    return (n + ECH_TILE - 1) / ECH_TILE;
}

/* 6 x 16 elements of c (+)= a b, a's element (i, k) at a[i a_row + k a_column]. */
ECH_INLINE void ech_tile_block(int64_t K, const float *a, int64_t a_row, int64_t a_column,
                               const float *b, int64_t b_row, float *c, int64_t c_row, bool add)
{
    ech_tile_lanes sum[ECH_TILE_ROWS];
    for (int i = 0; i < ECH_TILE_ROWS; i++)
        sum[i] = add ? *(const ech_tile_lanes *)(c + i * c_row) : (ech_tile_lanes){0};
    for (int64_t k = 0; k < K; k++) {
        ech_tile_lanes row = *(const ech_tile_lanes *)(b + k * b_row);
        for (int i = 0; i < ECH_TILE_ROWS; i++) sum[i] += row * a[i * a_row + k * a_column];
    }
    for (int i = 0; i < ECH_TILE_ROWS; i++) *(ech_tile_lanes *)(c + i * c_row) = sum[i];
}

/* c (M, N) (+)= a (M, K) b (K, N); M in full register blocks, N in full lanes. */
ECH_INLINE void ech_tile_multiply(int64_t M, int64_t N, int64_t K, const float *a, int64_t a_row,
                                  int64_t a_column, const float *b, int64_t b_row, float *c,
                                  int64_t c_row, bool add)
{
    for (int64_t n = 0; n < N; n += ECH_TILE_LANES)
        for (int64_t m = 0; m < M; m += ECH_TILE_ROWS)
            ech_tile_block(K, a + m * a_row, a_row, a_column, b + n, b_row, c + m * c_row + n,
                           c_row, add);
}

/* Rows [first, first + rows) of x's sample b and head h times `factor`, to (ECH_TILE, width). Rows beyond
 * them and columns beyond the head's are zero. */
ECH_INLINE void ech_tile_pack(const ech_tensor *x, int64_t b, int64_t h, int64_t first,
                              int64_t rows, float factor, int64_t width, float *to)
{
    int64_t D = x->shape[3];
    for (int64_t r = 0; r < ECH_TILE; r++) {
        const float *from = (const float *)x->data + b * x->stride[0] + (first + r) * x->stride[1] +
                            h * x->stride[2];
        int64_t n = r < rows ? D : 0;
        for (int64_t d = 0; d < n; d++) to[r * width + d] = from[d] * factor;
        for (int64_t d = n; d < width; d++) to[r * width + d] = 0;
    }
}

/* The same rows transposed, to (D, ECH_TILE). */
ECH_INLINE void ech_tile_pack_transposed(const ech_tensor *x, int64_t b, int64_t h, int64_t first,
                                         int64_t rows, float *to)
{
    int64_t D = x->shape[3];
    for (int64_t r = 0; r < ECH_TILE; r++) {
        const float *from = (const float *)x->data + b * x->stride[0] + (first + r) * x->stride[1] +
                            h * x->stride[2];
        for (int64_t d = 0; d < D; d++) to[d * ECH_TILE + r] = r < rows ? from[d] : 0;
    }
}

#endif

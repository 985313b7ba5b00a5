/* SPDX-License-Identifier: Apache-2.0
 *
 * Small matrix products of packed tiles, for attention. All tiles have ECH_TILE rows or columns, padded with
 * zeros, so that no loop has a remainder.
 */
#ifndef ECH_KERNEL_CPU_TILE_H
#define ECH_KERNEL_CPU_TILE_H

#include "kernel/cpu/wide.h"
#include "tensor/tensor.h"

/* The rows of a tile, and what its width is a multiple of. They are the same for all instruction sets, so that scratch
 * sizes, and thus plans, are equal. */
enum { ECH_TILE = 64, ECH_TILE_ALIGN = 16 };

/* The register block of ROWS x VECTORS sums. These, a row of b and a broadcast element of a must fit in the
 * registers; the sums must be enough to hide the latency of a multiply-add. ECH_TILE is a multiple of ROWS. */
#if defined(__AVX512F__)
enum { ECH_TILE_ROWS = 8, ECH_TILE_VECTORS = 2 };
#elif defined(__AVX2__)
enum { ECH_TILE_ROWS = 4, ECH_TILE_VECTORS = 3 };
#else
enum { ECH_TILE_ROWS = 4, ECH_TILE_VECTORS = 2 };
#endif

enum { ECH_TILE_BLOCKS = ECH_TILE / ECH_TILE_ROWS };

/* [first, end), of keys in a tile, of tiles, of columns, ... */
typedef struct ech_interval {
    int64_t first, end;
} ech_interval;

ECH_INLINE int64_t ech_clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* A head's width, padded. */
static inline int64_t ech_tile_width(int64_t n)
{
    return (n + ECH_TILE_ALIGN - 1) / ECH_TILE_ALIGN * ECH_TILE_ALIGN;
}

static inline int64_t ech_tile_count(int64_t n)
{
    return (n + ECH_TILE - 1) / ECH_TILE;
}

/* A strided matrix: element (i, k) is x[i row + k column]. */
typedef struct ech_factor {
    const float *x;
    int64_t row, column;
} ech_factor;

/* ROWS x `vectors` vectors of c = a b, summed over the k that `over` names; with `add` c += a b; with
 * `rescale` (ROWS: a factor a row) c = c rescale + a b. */
ECH_INLINE void ech_tile_block(int vectors, ech_interval over, ech_factor a, const float *b,
                               int64_t b_row, bool add, const float *rescale, float *c,
                               int64_t c_row)
{
    ech_wide sum[ECH_TILE_ROWS][ECH_TILE_VECTORS], row[ECH_TILE_VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ECH_TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            sum[i][v] = (ech_wide){0};
            if (add || rescale) sum[i][v] = ech_wide_load(c + i * c_row + v * ECH_WIDE);
            if (rescale) sum[i][v] *= rescale[i];
        }
    for (int64_t k = over.first; k < over.end; k++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) row[v] = ech_wide_load(b + k * b_row + v * ECH_WIDE);
#pragma GCC unroll 8
        for (int i = 0; i < ECH_TILE_ROWS; i++) {
            float x = a.x[i * a.row + k * a.column];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[i][v] += row[v] * x;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ECH_TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) ech_wide_store(c + i * c_row + v * ECH_WIDE, sum[i][v]);
}

/* ech_tile_block for an interval of columns, of at most VECTORS vectors. */
ECH_INLINE void ech_tile_columns(ech_interval columns, ech_interval over, ech_factor a,
                                 const float *b, int64_t b_row, bool add, const float *rescale,
                                 float *c, int64_t c_row)
{
    int64_t vectors = (columns.end - columns.first) / ECH_WIDE;
    b += columns.first;
    c += columns.first;
    if (vectors == ECH_TILE_VECTORS)
        ech_tile_block(ECH_TILE_VECTORS, over, a, b, b_row, add, rescale, c, c_row);
    else if (ECH_TILE_VECTORS > 2 && vectors == 2)
        ech_tile_block(2, over, a, b, b_row, add, rescale, c, c_row);
    else if (vectors == 1)
        ech_tile_block(1, over, a, b, b_row, add, rescale, c, c_row);
}

/* c (ECH_TILE, ECH_TILE) = a b, summed over K. Of each block of rows it computes only the columns in `needed`,
 * rounded outwards to full vectors. */
ECH_INLINE void ech_tile_scores(const ech_interval needed[ECH_TILE_BLOCKS], int64_t K, ech_factor a,
                                const float *b, float *c)
{
    const ech_interval all = {0, K};
    for (int64_t n = 0; n < ECH_TILE; n += ECH_TILE_VECTORS * ECH_WIDE)
        for (int64_t block = 0; block < ECH_TILE_BLOCKS; block++) {
            int64_t m = block * ECH_TILE_ROWS, end = n + ECH_TILE_VECTORS * ECH_WIDE;
            ech_interval columns = {needed[block].first / ECH_WIDE * ECH_WIDE,
                                    (needed[block].end + ECH_WIDE - 1) / ECH_WIDE * ECH_WIDE};
            columns.first = columns.first < n ? n : columns.first;
            columns.end = columns.end > end ? end : columns.end;
            if (needed[block].first >= needed[block].end || columns.first >= columns.end) continue;
            const ech_factor rows = {a.x + m * a.row, a.row, a.column};
            ech_tile_columns(columns, all, rows, b, ECH_TILE, false, NULL, c + m * ECH_TILE,
                             ECH_TILE);
        }
}

/* c (ECH_TILE, width) += a b. Each block of rows is summed over its `needed` k only: a is zero for the others.
 * rescale (ECH_TILE, or NULL): c's rows are first multiplied by it; must be 1 for blocks whose `needed` is empty. */
ECH_INLINE void ech_tile_sums(const ech_interval needed[ECH_TILE_BLOCKS], int64_t width,
                              ech_factor a, const float *b, const float *rescale, float *c)
{
    for (int64_t n = 0; n < width; n += ECH_TILE_VECTORS * ECH_WIDE)
        for (int64_t block = 0; block < ECH_TILE_BLOCKS; block++) {
            int64_t m = block * ECH_TILE_ROWS, end = n + ECH_TILE_VECTORS * ECH_WIDE;
            if (needed[block].first >= needed[block].end) continue;
            const ech_factor rows = {a.x + m * a.row, a.row, a.column};
            ech_tile_columns((ech_interval){n, end > width ? width : end}, needed[block], rows, b,
                             width, true, rescale ? rescale + m : NULL, c + m * width, width);
        }
}

ECH_INLINE const float *ech_tile_row(const ech_tensor *x, int64_t b, int64_t t, int64_t h)
{
    return (const float *)x->data + b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

/* Prefetches the row AHEAD rows after row r of the tile: rows of a head are far apart in memory, which hardware
 * prefetchers do not predict. */
ECH_INLINE void ech_tile_prefetch(const ech_tensor *x, int64_t b, int64_t h, int64_t first,
                                  int64_t r, int64_t rows)
{
    enum { AHEAD = 8, LINE = 64 / sizeof(float) };
    if (r + AHEAD >= rows) return;
    const float *row = ech_tile_row(x, b, first + r + AHEAD, h);
    for (int64_t d = 0; d < x->shape[3]; d += LINE) __builtin_prefetch(row + d);
}

/* Packs rows [first, first + rows) of x's sample b and head h, times `factor`, into (ECH_TILE, width). The other
 * rows and the columns past D are zero. */
ECH_INLINE void ech_tile_pack(const ech_tensor *x, int64_t b, int64_t h, int64_t first,
                              int64_t rows, float factor, int64_t width, float *to)
{
    int64_t D = x->shape[3];
    for (int64_t r = 0; r < ECH_TILE; r++, to += width) {
        const float *from = r < rows ? ech_tile_row(x, b, first + r, h) : NULL;
        int64_t d = 0;
        ech_tile_prefetch(x, b, h, first, r, rows);
        for (; from && d + ECH_WIDE <= D; d += ECH_WIDE)
            ech_wide_store(to + d, ech_wide_load(from + d) * factor);
        for (; from && d < D; d++) to[d] = from[d] * factor;
        for (; d < width; d++) to[d] = 0;
    }
}

typedef float ech_quad __attribute__((vector_size(16), aligned(4), may_alias));

/* Transposes 4 x 4 elements of four rows, times `factor`. */
ECH_INLINE void ech_tile_turn(const float *const from[4], int64_t d, float factor, float *to)
{
    ech_quad a = *(const ech_quad *)(from[0] + d), b = *(const ech_quad *)(from[1] + d);
    ech_quad c = *(const ech_quad *)(from[2] + d), e = *(const ech_quad *)(from[3] + d);
    ech_quad ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    ech_quad ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    ech_quad ce0 = __builtin_shufflevector(c, e, 0, 4, 1, 5);
    ech_quad ce2 = __builtin_shufflevector(c, e, 2, 6, 3, 7);
    to += d * ECH_TILE;
    *(ech_quad *)to = __builtin_shufflevector(ab0, ce0, 0, 1, 4, 5) * factor;
    *(ech_quad *)(to + ECH_TILE) = __builtin_shufflevector(ab0, ce0, 2, 3, 6, 7) * factor;
    *(ech_quad *)(to + 2 * ECH_TILE) = __builtin_shufflevector(ab2, ce2, 0, 1, 4, 5) * factor;
    *(ech_quad *)(to + 3 * ECH_TILE) = __builtin_shufflevector(ab2, ce2, 2, 3, 6, 7) * factor;
}

/* Packs the rows of ech_tile_pack transposed, into (D, ECH_TILE). */
ECH_INLINE void ech_tile_pack_transposed(const ech_tensor *x, int64_t b, int64_t h, int64_t first,
                                         int64_t rows, float factor, float *to)
{
    int64_t D = x->shape[3], r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *from[4];
        int64_t d = 0;
        for (int i = 0; i < 4; i++) {
            from[i] = ech_tile_row(x, b, first + r + i, h);
            ech_tile_prefetch(x, b, h, first, r + i, rows);
        }
        for (; d + 4 <= D; d += 4) ech_tile_turn(from, d, factor, to + r);
        for (; d < D; d++)
            for (int i = 0; i < 4; i++) to[d * ECH_TILE + r + i] = from[i][d] * factor;
    }
    for (; r < ECH_TILE; r++)
        for (int64_t d = 0; d < D; d++)
            to[d * ECH_TILE + r] = r < rows ? ech_tile_row(x, b, first + r, h)[d] * factor : 0;
}

#endif

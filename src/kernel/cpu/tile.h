/* SPDX-License-Identifier: Apache-2.0
 *
 * Small matrix products of packed tiles, for attention. All tiles have ECH_TILE rows or columns,
 * padded with zeros, so that no loop has a remainder. Tiles are packed in units of ECH_DEPTH
 * numbers that follow each other in the dimension that is summed: one of fp32, into which 16-bit
 * numbers widen, or two of bf16 where the machine multiplies pairs. Sums are in fp32.
 */
#ifndef ECH_KERNEL_CPU_TILE_H
#define ECH_KERNEL_CPU_TILE_H

#include "kernel/cpu/real.h"

/* The rows of a tile, and what its width is a multiple of. They are the same for all instruction
 * sets, so that scratch sizes, and thus plans, are equal. */
enum { ECH_TILE = 64, ECH_TILE_ALIGN = 16 };

/* The register block of ROWS x VECTORS sums. These, a row of b and a broadcast element of a must
 * fit in the registers; the sums must be enough to hide the latency of a multiply-add. ECH_TILE is
 * a multiple of ROWS. */
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

#ifdef ECH_PAIRS
enum { ECH_DEPTH = 2 };
typedef uint32_t ech_unit; /* the first number in the low bits */
#else
enum { ECH_DEPTH = 1 };
typedef float ech_unit;
#endif
typedef ech_unit ech_units __attribute__((vector_size(4 * ECH_WIDE), aligned(4), may_alias));

/* Units that hold n numbers. */
ECH_INLINE int64_t ech_tile_units(int64_t n)
{
    return (n + ECH_DEPTH - 1) / ECH_DEPTH;
}

/* sum + a b: of pairs both products. */
ECH_INLINE ech_wide ech_tile_multiply_add(ech_wide sum, ech_units a, ech_unit b)
{
#ifdef ECH_PAIRS
    return (ech_wide)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a,
                                      (__m512bh)_mm512_set1_epi32((int)b));
#else
    return sum + a * b;
#endif
}

/* A strided matrix: unit (i, k) is x[i row + k column]. */
typedef struct ech_factor {
    const ech_unit *x;
    int64_t row, column;
} ech_factor;

/* ROWS x `vectors` vectors of c = a b, summed over the units k that `over` names; with `add` c += a
 * b; with `rescale` (ROWS: a factor a row) c = c rescale + a b. Of pairs c is multiplied by
 * `scale`; else it is 1. */
ECH_INLINE void ech_tile_block(int vectors, ech_interval over, ech_factor a, const ech_unit *b,
                               int64_t b_row, bool add, const float *rescale, float scale, float *c,
                               int64_t c_row)
{
    ech_wide sum[ECH_TILE_ROWS][ECH_TILE_VECTORS];
    ech_units row[ECH_TILE_VECTORS];
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
        for (int v = 0; v < vectors; v++)
            row[v] = *(const ech_units *)(b + k * b_row + v * ECH_WIDE);
#pragma GCC unroll 8
        for (int i = 0; i < ECH_TILE_ROWS; i++) {
            ech_unit x = a.x[i * a.row + k * a.column];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[i][v] = ech_tile_multiply_add(sum[i][v], row[v], x);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ECH_TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            if (ECH_DEPTH > 1) sum[i][v] *= scale;
            ech_wide_store(c + i * c_row + v * ECH_WIDE, sum[i][v]);
        }
}

/* ech_tile_block for an interval of columns, of at most VECTORS vectors. */
ECH_INLINE void ech_tile_columns(ech_interval columns, ech_interval over, ech_factor a,
                                 const ech_unit *b, int64_t b_row, bool add, const float *rescale,
                                 float scale, float *c, int64_t c_row)
{
    int64_t vectors = (columns.end - columns.first) / ECH_WIDE;
    b += columns.first;
    c += columns.first;
    if (vectors == ECH_TILE_VECTORS)
        ech_tile_block(ECH_TILE_VECTORS, over, a, b, b_row, add, rescale, scale, c, c_row);
    else if (ECH_TILE_VECTORS > 2 && vectors == 2)
        ech_tile_block(2, over, a, b, b_row, add, rescale, scale, c, c_row);
    else if (vectors == 1)
        ech_tile_block(1, over, a, b, b_row, add, rescale, scale, c, c_row);
}

/* c (ECH_TILE, ECH_TILE) = a b, summed over K units; for units of pairs times `scale`. In each
 * block of rows it computes only the columns in `needed`, rounded outwards to full vectors. */
ECH_OUTLINE void ech_tile_scores(const ech_interval needed[ECH_TILE_BLOCKS], int64_t K,
                                 ech_factor a, const ech_unit *b, float scale, float *c)
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
            ech_tile_columns(columns, all, rows, b, ECH_TILE, false, NULL, scale, c + m * ECH_TILE,
                             ECH_TILE);
        }
}

/* c (ECH_TILE, width) += a b. Each block of rows is summed over its `needed` numbers only: a is
 * zero for the others. rescale (ECH_TILE, or NULL): c's rows are first multiplied by it; must be 1
 * for blocks whose `needed` is empty. */
ECH_OUTLINE void ech_tile_sums(const ech_interval needed[ECH_TILE_BLOCKS], int64_t width,
                               ech_factor a, const ech_unit *b, const float *rescale, float *c)
{
    for (int64_t n = 0; n < width; n += ECH_TILE_VECTORS * ECH_WIDE)
        for (int64_t block = 0; block < ECH_TILE_BLOCKS; block++) {
            int64_t m = block * ECH_TILE_ROWS, end = n + ECH_TILE_VECTORS * ECH_WIDE;
            const ech_interval over = {needed[block].first / ECH_DEPTH,
                                       ech_tile_units(needed[block].end)};
            if (needed[block].first >= needed[block].end) continue;
            const ech_factor rows = {a.x + m * a.row, a.row, a.column};
            ech_tile_columns((ech_interval){n, end > width ? width : end}, over, rows, b, width,
                             true, rescale ? rescale + m : NULL, 1.0F, c + m * width, width);
        }
}

/* Where a head's row begins in x's memory. */
ECH_INLINE int64_t ech_tile_place(const ech_tensor *x, int64_t b, int64_t t, int64_t h)
{
    return b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

ECH_INLINE const ech_real *ech_tile_row(const ech_tensor *x, int64_t b, int64_t t, int64_t h)
{
    return (const ech_real *)x->data + ech_tile_place(x, b, t, h);
}

/* Prefetches the row AHEAD rows after row r of the tile: the distance of a head's rows in memory is
 * too large for hardware prefetchers. */
ECH_INLINE void ech_tile_prefetch(const ech_tensor *x, int64_t b, int64_t h, int64_t first,
                                  int64_t r, int64_t rows)
{
    enum { AHEAD = 8, LINE = 64 / sizeof(ech_real) };
    if (r + AHEAD >= rows) return;
    const ech_real *row = ech_either_at(x, ech_tile_place(x, b, first + r + AHEAD, h));
    for (int64_t d = 0; d < x->shape[3]; d += LINE) __builtin_prefetch(row + d);
}

/* Packs rows [first, first + rows) of x's sample b and head h, times `factor`, into (ECH_TILE,
 * width). The other rows and the columns past D are zero. Pairs are of one row, and `factor` is
 * 1. */
ECH_OUTLINE void ech_tile_pack(const ech_tensor *x, int64_t b, int64_t h, int64_t first,
                               int64_t rows, float factor, int64_t width, ech_unit *to)
{
    int64_t D = x->shape[3];
    for (int64_t r = 0; r < ECH_TILE; r++, to += width / ECH_DEPTH) {
        const ech_real *from = r < rows ? ech_tile_row(x, b, first + r, h) : NULL;
        int64_t d = 0;
        ech_tile_prefetch(x, b, h, first, r, rows);
#ifdef ECH_PAIRS
        ech_real *row = (ech_real *)to;
        for (; from && d < D; d++) row[d] = from[d];
        for (; d < width; d++) row[d] = 0;
#else
        for (; from && d + ECH_WIDE <= D; d += ECH_WIDE)
            ech_wide_store(to + d, ech_wide_value(from + d) * factor);
        for (; from && d < D; d++) to[d] = ech_value(from[d]) * factor;
        for (; d < width; d++) to[d] = 0;
#endif
    }
}

#ifdef ECH_PAIRS
/* Pairs of two rows of n numbers; zeros from there to the width. high: NULL if there is one row. */
ECH_INLINE void ech_tile_pair(const ech_real *low, const ech_real *high, int64_t n, int64_t width,
                              ech_unit *to)
{
    int64_t i = 0;
    for (; high && i + ECH_WIDE <= n; i += ECH_WIDE) {
        __m512i first = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)(low + i)));
        __m512i second = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)(high + i)));
        *(ech_units *)(to + i) = (ech_units)_mm512_or_si512(first, _mm512_slli_epi32(second, 16));
    }
    for (; i < n; i++) to[i] = low[i] | (high ? (uint32_t)high[i] << 16 : 0);
    for (; i < width; i++) to[i] = 0;
}
#endif

/* The same, for sums over rows: pairs are of two rows. */
ECH_OUTLINE void ech_tile_pack_rows(const ech_tensor *x, int64_t b, int64_t h, int64_t first,
                                    int64_t rows, int64_t width, ech_unit *to)
{
#ifdef ECH_PAIRS
    int64_t D = x->shape[3];
    for (int64_t r = 0; r < ECH_TILE; r += 2, to += width) {
        const ech_real *low = r < rows ? ech_tile_row(x, b, first + r, h) : NULL;
        const ech_real *high = r + 1 < rows ? ech_tile_row(x, b, first + r + 1, h) : NULL;
        ech_tile_prefetch(x, b, h, first, r, rows);
        ech_tile_prefetch(x, b, h, first, r + 1, rows);
        ech_tile_pair(low, high, low ? D : 0, width, to);
    }
#else
    ech_tile_pack(x, b, h, first, rows, 1.0F, width, to);
#endif
}

typedef ech_unit ech_quad __attribute__((vector_size(16), aligned(4), may_alias));

/* Four units of a row, times `factor`. */
ECH_INLINE ech_quad ech_tile_quad(const ech_real *row, int64_t unit, float factor)
{
    ech_quad units;
#if defined(ECH_PAIRS)
    memcpy(&units, row + unit * ECH_DEPTH, sizeof units);
#elif defined(ECH_REAL_16)
    for (int i = 0; i < 4; i++) units[i] = ech_value(row[unit + i]) * factor;
#else
    units = *(const ech_quad *)(row + unit) * factor;
#endif
    return units;
}

/* One unit of a row of D numbers. */
ECH_INLINE ech_unit ech_tile_unit(const ech_real *row, int64_t unit, int64_t D, float factor)
{
#ifdef ECH_PAIRS
    return row[2 * unit] | (2 * unit + 1 < D ? (uint32_t)row[2 * unit + 1] << 16 : 0);
#else
    return ech_value(row[unit]) * factor;
#endif
}

/* Transposes 4 x 4 units of four rows, times `factor`; `stride` units are between rows of what it
 * writes. */
ECH_INLINE void ech_tile_turn(const ech_real *const from[4], int64_t unit, float factor,
                              int64_t stride, ech_unit *to)
{
    ech_quad a = ech_tile_quad(from[0], unit, factor), b = ech_tile_quad(from[1], unit, factor);
    ech_quad c = ech_tile_quad(from[2], unit, factor), e = ech_tile_quad(from[3], unit, factor);
    ech_quad ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    ech_quad ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    ech_quad ce0 = __builtin_shufflevector(c, e, 0, 4, 1, 5);
    ech_quad ce2 = __builtin_shufflevector(c, e, 2, 6, 3, 7);
    to += unit * stride;
    *(ech_quad *)to = __builtin_shufflevector(ab0, ce0, 0, 1, 4, 5);
    *(ech_quad *)(to + stride) = __builtin_shufflevector(ab0, ce0, 2, 3, 6, 7);
    *(ech_quad *)(to + 2 * stride) = __builtin_shufflevector(ab2, ce2, 0, 1, 4, 5);
    *(ech_quad *)(to + 3 * stride) = __builtin_shufflevector(ab2, ce2, 2, 3, 6, 7);
}

/* Packs up to four rows of D numbers, times `factor`, as columns of (units of D, stride): zeros
 * from the `rows`-th on. The second argument is the distance of rows, in numbers. */
ECH_INLINE void ech_tile_turn_rows(const ech_real *x, int64_t apart, int64_t rows, int64_t D,
                                   float factor, int64_t stride, ech_unit *to)
{
    const ech_real *const from[4] = {x, x + apart, x + 2 * apart, x + 3 * apart};
    int64_t u = 0;
    if (rows >= 4)
        for (; (u + 4) * ECH_DEPTH <= D; u += 4) ech_tile_turn(from, u, factor, stride, to);
    for (; u < ech_tile_units(D); u++)
        for (int i = 0; i < 4; i++)
            to[u * stride + i] = i < rows ? ech_tile_unit(from[i], u, D, factor) : 0;
}

/* Packs the rows of ech_tile_pack transposed, into (units of D, ECH_TILE). */
ECH_OUTLINE void ech_tile_pack_transposed(const ech_tensor *x, int64_t b, int64_t h, int64_t first,
                                          int64_t rows, float factor, ech_unit *to)
{
    for (int64_t r = 0; r < ECH_TILE; r += 4) {
        for (int64_t i = r; i < rows && i < r + 4; i++) ech_tile_prefetch(x, b, h, first, i, rows);
        ech_tile_turn_rows(ech_tile_row(x, b, first + r, h), x->stride[1], rows - r, x->shape[3],
                           factor, ECH_TILE, to + r);
    }
}

/* Units of the numbers of ECH_DEPTH vectors; of pairs rounded. */
ECH_INLINE void ech_tile_round(const ech_wide numbers[ECH_DEPTH], ech_unit *to)
{
#ifdef ECH_PAIRS
    __m512i bits = (__m512i)_mm512_cvtne2ps_pbh((__m512)numbers[1], (__m512)numbers[0]);
    const ech_units places = {0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005,
                              0x160006, 0x170007, 0x180008, 0x190009, 0x1a000a, 0x1b000b,
                              0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f};
    *(ech_units *)to = (ech_units)_mm512_permutexvar_epi16((__m512i)places, bits);
#else
    ech_wide_store(to, numbers[0]);
#endif
}

/* Multiplies a unit's number by `factor`; of pairs it is 0 or 1. */
ECH_INLINE void ech_tile_drop(ech_unit *unit, int64_t number, float factor)
{
#ifdef ECH_PAIRS
    if (factor == 0.0F) *unit &= number ? 0xffffu : 0xffff0000u;
#else
    *unit *= factor;
#endif
}

#endif

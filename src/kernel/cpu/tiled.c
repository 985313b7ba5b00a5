/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in tiles: of 16-bit types if oneDNN has no fast implementation for the type or
 * shape, and of all types in builds without it. For each tile of c, blocks of both operands are
 * widened and multiplied in fp32, or, if the machine has products of pairs, multiplied as they are;
 * the sum is in fp32 and is rounded once. Tiles do not depend on the number of threads, and neither
 * do results.
 */
#include <omp.h>
#ifdef ECH_HAS_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

#include "kernel/cpu/rows.h"
#include "kernel/cpu/blocks.h"
#include "kernel/cpu/part.h"
#include "kernel/cpu/tile.h"
#include "kernel/shape.h"

/* Sizes of tiles of c, and of the blocks of K. A packed number is used in so many products that
 * packing is negligible; all three blocks fit in a core's L2 cache. */
enum { ROWS = 128, COLUMNS = 256, DEPTH = 256 };

/* The register block (ech_tile_block) divides a tile's sides, which are padded with zeros: by at
 * most these numbers, in all instruction sets alike, so that scratch sizes are equal. PANEL:
 * adjacent columns of b. */
enum { PAD_ROWS = 8, PAD_COLUMNS = 32, PANEL = ECH_TILE_VECTORS * ECH_WIDE };

typedef struct product {
    const ech_tensor *a, *b, *bias, *add, *c;
    bool a_transposed, b_transposed;
    int64_t M, N, K;
} product;

/* The sides of a tile and of its blocks, and the numbers between rows of sums: columns, rounded
 * up. */
typedef struct sides {
    int64_t rows, columns, depth, stride;
} sides;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static sides sides_of(int64_t rows, int64_t columns, int64_t depth)
{
    return (sides){rows, columns, depth, round_up(columns, PANEL)};
}

static const ech_real *place(const ech_tensor *x, int64_t row, int64_t column)
{
    return (const ech_real *)x->data + row * x->stride[0] + column;
}

#ifdef ECH_PAIRS
/* Rows [row, row + rows) and columns [column, column + columns) of x in units of a row, as (rows,
 * stride); others are 0. */
static void pack_rows(const ech_tensor *x, int64_t row, int64_t rows, int64_t column,
                      int64_t columns, int64_t stride, ech_unit *to)
{
    size_t bytes = (size_t)columns * sizeof(ech_real);
    for (int64_t r = 0; r < rows; r++, to += stride) {
        memcpy(to, place(x, row + r, column), bytes);
        memset((char *)to + bytes, 0, (size_t)stride * sizeof *to - bytes);
    }
}

/* The same in units of a column, as (units of rows, stride). */
static void pack_columns(const ech_tensor *x, int64_t row, int64_t rows, int64_t column,
                         int64_t columns, int64_t stride, ech_unit *to)
{
    for (int64_t r = 0; r < rows; r += 2, to += stride) {
        const ech_real *low = place(x, row + r, column);
        ech_tile_pair(low, r + 1 < rows ? low + x->stride[0] : NULL, columns, stride, to);
    }
}
#else
static void pack_rows(const ech_tensor *x, int64_t row, int64_t rows, int64_t column,
                      int64_t columns, int64_t stride, float *to)
{
    for (int64_t r = 0; r < rows; r++, to += stride) {
        ech_widen(place(x, row + r, column), columns, to);
        for (int64_t i = columns; i < stride; i++) to[i] = 0;
    }
}

static void pack_columns(const ech_tensor *x, int64_t row, int64_t rows, int64_t column,
                         int64_t columns, int64_t stride, float *to)
{
    pack_rows(x, row, rows, column, columns, stride, to);
}
#endif

#if defined(ECH_HAS_ONEDNN) && !defined(ECH_PAIRS)
/* sum = the product of two blocks, or with `add` += it. Inside a parallel region sgemm uses only
 * the calling thread. */
static void multiply_blocks(const product *p, int64_t m, int64_t n, int64_t k, sides s, bool add,
                            void *a, void *b, float *sum)
{
    if (p->a_transposed)
        pack_columns(p->a, k, s.depth, m, s.rows, s.rows, a);
    else
        pack_rows(p->a, m, s.rows, k, s.depth, s.depth, a);
    if (p->b_transposed)
        pack_rows(p->b, n, s.columns, k, s.depth, s.depth, b);
    else
        pack_columns(p->b, k, s.depth, n, s.columns, s.columns, b);
    dnnl_status_t status =
        dnnl_sgemm(p->a_transposed ? 'T' : 'N', p->b_transposed ? 'T' : 'N', s.rows, s.columns,
                   s.depth, 1.0F, a, p->a_transposed ? s.rows : s.depth, b,
                   p->b_transposed ? s.depth : s.columns, add ? 1.0F : 0.0F, sum, s.stride);
    ECH_ASSERT(status == dnnl_success); /* fails only on wrong arguments or without memory */
}
#else
/* (units of depth, PANEL) of each panel. Memory is read in its order. */
static void pack_panels(const product *p, int64_t n, int64_t k, sides s, ech_unit *to)
{
    int64_t units = ech_tile_units(s.depth);
    for (int64_t d = 0; !p->b_transposed && d < s.depth; d += ECH_DEPTH, to += PANEL)
        for (int64_t i = 0; i < s.columns; i += PANEL)
            pack_columns(p->b, k + d, least(s.depth - d, ECH_DEPTH), n + i,
                         least(s.columns - i, PANEL), PANEL, to + i * units);
    for (int64_t i = 0; p->b_transposed && i < s.stride; i += 4)
        ech_tile_turn_rows(place(p->b, n + i, k), p->b->stride[0], s.columns - i, s.depth, 1.0F,
                           PANEL, to + i / PANEL * units * PANEL + i % PANEL);
}

/* sum = the product of two blocks, or with `add` += it. */
static void multiply_blocks(const product *p, int64_t m, int64_t n, int64_t k, sides s, bool add,
                            void *a, void *b, float *sum)
{
    int64_t rows = round_up(s.rows, ECH_TILE_ROWS), units = ech_tile_units(s.depth);
    const ech_interval all = {0, units};
    ech_factor by = {a, units, 1};
    if (p->a_transposed) {
        pack_columns(p->a, k, s.depth, m, s.rows, rows, a);
        by = (ech_factor){a, 1, rows};
    } else {
        pack_rows(p->a, m, s.rows, k, s.depth, units, a);
        memset((ech_unit *)a + s.rows * units, 0,
               (size_t)((rows - s.rows) * units) * sizeof(ech_unit));
    }
    pack_panels(p, n, k, s, b);
    const ech_unit *panel = b;
    for (int64_t i = 0; i < s.columns; i += PANEL, panel += units * PANEL) {
        const ech_interval columns = {0, least(round_up(s.columns - i, ECH_WIDE), PANEL)};
        for (int64_t r = 0; r < rows; r += ECH_TILE_ROWS)
            ech_tile_columns(columns, all, (ech_factor){by.x + r * by.row, by.row, by.column},
                             panel, PANEL, add, NULL, 1.0F, sum + r * s.stride + i, s.stride);
    }
}
#endif

static int64_t floats_of_thread(int64_t M, int64_t N, int64_t K)
{
    int64_t rows = least(M, ROWS) + PAD_ROWS, columns = least(N, COLUMNS) + PAD_COLUMNS;
    return rows * columns + (rows + columns) * least(K, DEPTH);
}

/* Row m of c from column n on: sum + bias + add. */
static void store_row(const product *p, int64_t m, int64_t n, int64_t columns, const float *sum)
{
    const ech_tensor *c = p->c, *add = p->add;
    void *to = ech_either_at(c, m * c->stride[0] + n);
    const void *more = add ? ech_either_at(add, m * add->stride[0] + n) : NULL;
    const float *bias = p->bias ? (const float *)p->bias->data + n : NULL;
    bool wide = ech_is_wide(c), wide_add = add && ech_is_wide(add);
    int64_t i = 0;
    for (; i + ECH_WIDE <= columns; i += ECH_WIDE) {
        ech_wide x = ech_wide_load(sum + i);
        if (bias) x += ech_wide_load(bias + i);
        if (more) x += ech_either_load(wide_add, more, i);
        ech_either_store(wide, to, i, x);
    }
    for (; i < columns; i++) {
        float x = sum[i] + (bias ? bias[i] : 0.0F);
        if (more) x += ech_either_value(wide_add, more, i);
        ech_either_stored(wide, to, i, x);
    }
}

static void multiply_tile(const product *p, int64_t m, int64_t n, float *memory)
{
    sides s = sides_of(least(p->M - m, ROWS), least(p->N - n, COLUMNS), least(p->K, DEPTH));
    float *sum = memory, *a = sum + (s.rows + PAD_ROWS) * s.stride,
          *b = a + (s.rows + PAD_ROWS) * s.depth;
    for (int64_t i = 0; p->K == 0 && i < s.rows * s.stride; i++) sum[i] = 0;
    for (int64_t k = 0; k < p->K; k += DEPTH) {
        s.depth = least(p->K - k, DEPTH);
        multiply_blocks(p, m, n, k, s, k > 0, a, b, sum);
    }
    for (int64_t r = 0; r < s.rows; r++) store_row(p, m + r, n, s.columns, sum + r * s.stride);
}

static size_t tile_bytes(int threads, int64_t M, int64_t N, int64_t K)
{
    return (size_t)(threads * floats_of_thread(M, N, K)) * sizeof(float);
}

static void multiply_tiles(const ech_kernel_context *context, const product *p)
{
    float *memory = ech_scratch(context, tile_bytes(context->threads, p->M, p->N, p->K));
    int64_t across = (p->N + COLUMNS - 1) / COLUMNS, down = (p->M + ROWS - 1) / ROWS;
    int64_t room = floats_of_thread(p->M, p->N, p->K);
#pragma omp parallel for num_threads(context->threads) schedule(dynamic)
    for (int64_t tile = 0; tile < across * down; tile++)
        multiply_tile(p, tile / across * ROWS, tile % across * COLUMNS,
                      memory + omp_get_thread_num() * room);
}

void ECH_CPU(matmul)(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                     const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                     const ech_tensor *add, const ech_tensor *c)
{
    int64_t M = c->shape[0], N = c->shape[1], K = a->shape[a_transposed ? 0 : 1];
    const ech_tensor op_a = ech_shape_transposed(a, a_transposed);
    const ech_tensor op_b = ech_shape_transposed(b, b_transposed);
    ECH_SHAPES(matmul, ECH_REAL, &op_a, &op_b, bias, add, c);
    if (M == 0 || N == 0) return;
#ifndef ECH_REAL_16
    if (ECH_CPU(multiplies_thin)(context, a, a_transposed, b, b_transposed, bias, add, c)) return;
#endif
#if defined(ECH_PAIRS) && defined(ECH_HAS_ONEDNN)
    if (ech_cpu_library_multiplies(context, a, a_transposed, b, b_transposed, bias, add, c)) return;
#endif
    const product p = {a, b, bias, add, c, a_transposed, b_transposed, M, N, K};
    multiply_tiles(context, &p);
}

/* dims: M, N, K, a_transposed, b_transposed, has_bias, has_add. */
size_t ECH_CPU(scratch_matmul)(ech_dtype dtype, int threads, const int64_t *dims)
{
    size_t bytes = tile_bytes(threads, dims[0], dims[1], dims[2]);
#ifndef ECH_REAL_16
    size_t thin = ECH_CPU(scratch_thin)(dtype, threads, dims);
    if (thin > bytes) bytes = thin;
#endif
#if defined(ECH_PAIRS) && defined(ECH_HAS_ONEDNN)
    size_t library = ech_cpu_library_scratch(dtype, threads, dims);
    if (library > bytes) bytes = library;
#endif
    return bytes;
}

/* ---- by expert ---- */

/* The matrix of expert i. */
static ech_tensor matrix_of(const ech_tensor *x, int64_t i)
{
    int64_t rows = x->shape[1], columns = x->shape[2];
    return ech_tensor_2d(ech_either_at(x, i * rows * columns), x->dtype, rows, columns);
}

void ECH_CPU(grouped_matmul)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                             bool b_transposed, const ech_tensor *counts, bool accumulate,
                             const ech_tensor *c)
{
    int64_t R = a->shape[0], N = c->shape[1], K = a->shape[1];
    const ech_grouped_cut cut = {ROWS, COLUMNS, N};
    const ech_tensor op_b = ech_shape_of_experts(b, b_transposed);
    ECH_SHAPES(grouped_matmul, ECH_REAL, a, &op_b, counts, c);
    ech_grouped_check(counts, R);
    float *memory = ech_scratch(context, tile_bytes(context->threads, R, N, K));
    int64_t blocks = ech_grouped_blocks(counts, cut), room = floats_of_thread(R, N, K);
#pragma omp parallel for num_threads(context->threads) schedule(dynamic)
    for (int64_t i = 0; i < blocks; i++) {
        const ech_grouped_block at = ech_grouped_block_at(counts, R, cut, i);
        int64_t rows = at.row_end - at.row, row = at.first + at.row;
        ECH_ASSERT(rows <= ROWS && at.column_end - at.column <= COLUMNS); /* one tile */
        const ech_tensor own_a = ech_tensor_rows(a, row, rows), own_b = matrix_of(b, at.expert);
        const ech_tensor own_c = ech_tensor_rows(c, row, rows);
        const product p = {&own_a,        &own_b, NULL,         accumulate ? &own_c : NULL,
                           &own_c,        false,  b_transposed, rows,
                           at.column_end, K};
        multiply_tile(&p, 0, at.column, memory + omp_get_thread_num() * room);
    }
}

/* dims: R, N, K, P, X, b_transposed. */
size_t ECH_CPU(scratch_grouped_matmul)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return tile_bytes(threads, dims[0], dims[1], dims[2]);
}

/* The tile of expert i's c that begins at row m and column n: a sum over the expert's rows in all
 * splits. */
static void multiply_weight(const ech_tensor *a, const ech_tensor *b, const ech_tensor *counts,
                            bool accumulate, const ech_tensor *c, int64_t i, int64_t m, int64_t n,
                            float *memory)
{
    int64_t R = a->shape[0], P = counts->shape[0], X = counts->shape[1];
    const ech_tensor own_c = matrix_of(c, i);
    product p = {a,           b,           NULL, accumulate ? &own_c : NULL, &own_c, true, false,
                 a->shape[1], b->shape[1], 0};
    sides s = sides_of(least(p.M - m, ROWS), least(p.N - n, COLUMNS), least(R, DEPTH));
    float *sum = memory, *to_a = sum + (s.rows + PAD_ROWS) * s.stride,
          *to_b = to_a + (s.rows + PAD_ROWS) * s.depth;
    bool add = false;
    for (int64_t split = 0; split < P; split++) {
        int64_t first = split * (R / P) + ech_rows_before(counts->data, X, split, i);
        int64_t end = first + ((const int32_t *)counts->data)[split * X + i];
        for (int64_t k = first; k < end; k += DEPTH, add = true) {
            s.depth = least(end - k, DEPTH);
            multiply_blocks(&p, m, n, k, s, add, to_a, to_b, sum);
        }
    }
    for (int64_t e = 0; !add && e < s.rows * s.stride; e++) sum[e] = 0;
    for (int64_t r = 0; r < s.rows; r++) store_row(&p, m + r, n, s.columns, sum + r * s.stride);
}

void ECH_CPU(grouped_matmul_weight)(ech_kernel_context *context, const ech_tensor *a,
                                    const ech_tensor *b, const ech_tensor *counts, bool accumulate,
                                    const ech_tensor *c)
{
    int64_t R = a->shape[0], M = c->shape[1], N = c->shape[2];
    ECH_SHAPES(grouped_matmul_weight, ECH_REAL, a, b, counts, c);
    ech_grouped_check(counts, R);
    float *memory = ech_scratch(context, tile_bytes(context->threads, M, N, R));
    int64_t across = (N + COLUMNS - 1) / COLUMNS, tiles = (M + ROWS - 1) / ROWS * across;
    int64_t all = counts->shape[1] * tiles, room = floats_of_thread(M, N, R);
#pragma omp parallel for num_threads(context->threads) schedule(dynamic)
    for (int64_t t = 0; t < all; t++)
        multiply_weight(a, b, counts, accumulate, c, t / tiles, t % tiles / across * ROWS,
                        t % across * COLUMNS, memory + omp_get_thread_num() * room);
}

/* dims: R, M, N, P, X. */
size_t ECH_CPU(scratch_grouped_matmul_weight)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return tile_bytes(threads, dims[1], dims[2], dims[0]);
}

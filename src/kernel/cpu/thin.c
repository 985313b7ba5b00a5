/* SPDX-License-Identifier: Apache-2.0
 *
 * Row matmul of fp32: thin products, and all others by the library. In a thin product one factor
 * and the result have few columns, as factors of compressed gradients do. The other factor, the
 * long one, is read once. Measured: ms of processor time, by the library and here, of one thread on
 * a Zen 5 core that shares its memory with busy cores. The matrices are six layers' of 384 x 1,152,
 * 384 x 384, 384 x 1,536 and 1,536 x 384 (42 MB; a loop that only reads them takes 2.2 ms).
 *     columns       4            8            16
 *     c += a b      4.7, 3.4     4.7, 4.7     4.7, 6.7
 *     c += aT b     7.5, 3.2     7.5, 4.6     7.4, 6.2
 * Each element's sum has an order that depends on its matrices alone: so it is the same for any
 * number of threads.
 */
#include <omp.h>
#include <string.h>

#include "kernel/cpu/part.h"
#include "kernel/cpu/tile.h"
#include "kernel/shape.h"

/* Most columns of thin matrices; least numbers of a long one, below which the library is used; rows
 * and columns that are processed together; bytes of the sums of a strip, which must stay in the L1
 * cache. */
enum { MOST_COLUMNS = 8, LEAST_NUMBERS = 65536, ROWS = 4, COLUMNS = 4, STRIP_BYTES = 24 * 1024 };

/* LEFT: c += a b; RIGHT: c += aᵀ b; a is long. */
typedef enum thin { NOT_THIN, LEFT, RIGHT } thin;

/* dims: M, N, K, a_transposed, b_transposed, has_bias, has_add (the sum itself). */
static thin thin_of(const int64_t *dims)
{
    int64_t M = dims[0], N = dims[1], K = dims[2];
    bool few = !dims[4] && !dims[5] && N > 0 && N <= MOST_COLUMNS;
    if (!few || M * K < LEAST_NUMBERS) return NOT_THIN;
    return dims[3] ? RIGHT : LEFT;
}

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Sums of all threads' strips are adjacent. */
static int64_t strip_of(int64_t M, int64_t N, int threads)
{
    int64_t most = STRIP_BYTES / (int64_t)sizeof(float) / round_up(N, COLUMNS);
    int64_t own = round_up((M + threads - 1) / threads, ECH_TILE_ALIGN);
    int64_t strip = round_up(most, ECH_TILE_ALIGN);
    return own < strip ? own : strip;
}

static size_t scratch_of(thin kind, int threads, const int64_t *dims)
{
    int64_t M = dims[0], N = dims[1], K = dims[2], n = 0;
    if (kind == LEFT) n = round_up(N, COLUMNS) * K;
    if (kind == RIGHT) n = threads * round_up(N, COLUMNS) * strip_of(M, N, threads);
    return (size_t)n * sizeof(float);
}

static const float *row_of(const ech_tensor *x, int64_t row)
{
    return (const float *)x->data + row * x->stride[0];
}

/* to (rows, n): the columns of x, which has n rows; missing ones are 0. */
static void transpose(const ech_tensor *x, int64_t rows, float *to)
{
    int64_t n = x->shape[0], columns = x->shape[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < rows; r++) to[r * n + i] = r < columns ? row_of(x, i)[r] : 0;
}

/* ---- c += a b ---- */

/* Adjacent rows are not the order of memory, in which it is read fastest: for each vector of a row
 * that is read, the numbers this far ahead are prefetched in memory order. */
enum { AHEAD = 4096 };

ECH_INLINE void ask_ahead(int rows, const float *a, int64_t i)
{
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) __builtin_prefetch(a + AHEAD + rows * i + r * ECH_WIDE);
}

/* For `rows` rows of a and COLUMNS transposed columns of b. */
ECH_INLINE void multiply_rows(int rows, int64_t K, const float *a, int64_t stride, const float *b,
                              float sum[ROWS][COLUMNS])
{
    ech_wide all[ROWS][COLUMNS];
    int64_t k = 0;
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < COLUMNS; n++) all[r][n] = (ech_wide){0};
    for (; k + ECH_WIDE <= K; k += ECH_WIDE) {
        ech_wide w[COLUMNS];
        ask_ahead(rows, a, k);
#pragma GCC unroll 4
        for (int n = 0; n < COLUMNS; n++) w[n] = ech_wide_load(b + n * K + k);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            ech_wide x = ech_wide_load(a + r * stride + k);
#pragma GCC unroll 4
            for (int n = 0; n < COLUMNS; n++) all[r][n] += x * w[n];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < COLUMNS; n++) {
            sum[r][n] = ech_wide_sum(all[r][n]);
            for (int64_t i = k; i < K; i++) sum[r][n] += a[r * stride + i] * b[n * K + i];
        }
}

static void multiply_left(const ech_kernel_context *context, const ech_tensor *a,
                          const ech_tensor *b, bool add, const ech_tensor *c, float *room)
{
    int64_t M = c->shape[0], N = c->shape[1], K = b->shape[0];
    transpose(b, round_up(N, COLUMNS), room);
#pragma omp parallel for num_threads(context->threads) schedule(static)
    for (int64_t m = 0; m < M; m += ROWS) {
        int64_t rows = ech_part(M, m, ROWS);
        for (int64_t n = 0; n < N; n += COLUMNS) {
            float sum[ROWS][COLUMNS];
            if (rows == ROWS)
                multiply_rows(ROWS, K, row_of(a, m), a->stride[0], room + n * K, sum);
            else
                for (int64_t r = 0; r < rows; r++)
                    multiply_rows(1, K, row_of(a, m + r), 0, room + n * K, &sum[r]);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t j = 0; j < ech_part(N, n, COLUMNS); j++) {
                    float *to = (float *)c->data + (m + r) * c->stride[0] + n + j;
                    *to = (add ? *to : 0) + sum[r][j];
                }
        }
    }
}

/* ---- c += transposed a b ---- */

/* sums (COLUMNS, strip) += products of `n` numbers of `rows` rows of a, and of COLUMNS numbers of
 * as many rows of b. */
ECH_INLINE void add_rows(int rows, int64_t n, const float *a, int64_t stride,
                         float b[ROWS][COLUMNS], float *sums, int64_t strip)
{
    int64_t i = 0;
    for (; i + ECH_WIDE <= n; i += ECH_WIDE) {
        ech_wide x[ROWS];
        ask_ahead(rows, a, i);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) x[r] = ech_wide_load(a + r * stride + i);
#pragma GCC unroll 4
        for (int j = 0; j < COLUMNS; j++) {
            ech_wide sum = x[0] * b[0][j];
#pragma GCC unroll 4
            for (int r = 1; r < rows; r++) sum += x[r] * b[r][j];
            ech_wide_store(sums + j * strip + i, ech_wide_load(sums + j * strip + i) + sum);
        }
    }
    for (; i < n; i++)
        for (int j = 0; j < COLUMNS; j++) {
            float sum = 0;
            for (int r = 0; r < rows; r++) sum += a[r * stride + i] * b[r][j];
            sums[j * strip + i] += sum;
        }
}

static void add_strip(const ech_tensor *a, const ech_tensor *b, int64_t first, int64_t n,
                      float *sums, int64_t strip)
{
    int64_t N = b->shape[1], K = b->shape[0];
    memset(sums, 0, (size_t)(round_up(N, COLUMNS) * strip) * sizeof *sums);
    for (int64_t k = 0; k < K; k += ROWS) {
        int64_t rows = ech_part(K, k, ROWS);
        const float *from = row_of(a, k) + first;
        for (int64_t j = 0; j < N; j += COLUMNS) {
            float by[ROWS][COLUMNS] = {{0}}, *to = sums + j * strip;
            for (int64_t r = 0; r < rows; r++)
                memcpy(by[r], row_of(b, k + r) + j, (size_t)ech_part(N, j, COLUMNS) * sizeof *to);
            if (rows == ROWS)
                add_rows(ROWS, n, from, a->stride[0], by, to, strip);
            else
                for (int64_t r = 0; r < rows; r++)
                    add_rows(1, n, from + r * a->stride[0], 0, &by[r], to, strip);
        }
    }
}

static void multiply_right(const ech_kernel_context *context, const ech_tensor *a,
                           const ech_tensor *b, bool add, const ech_tensor *c, float *room)
{
    int64_t M = c->shape[0], N = c->shape[1], strip = strip_of(M, N, context->threads);
    int64_t each = round_up(N, COLUMNS) * strip;
#pragma omp parallel for num_threads(context->threads) schedule(static)
    for (int64_t first = 0; first < M; first += strip) {
        int64_t n = ech_part(M, first, strip);
        float *sums = room + omp_get_thread_num() * each;
        add_strip(a, b, first, n, sums, strip);
        for (int64_t i = 0; i < n; i++) {
            float *to = (float *)c->data + (first + i) * c->stride[0];
            for (int64_t j = 0; j < N; j++) to[j] = (add ? to[j] : 0) + sums[j * strip + i];
        }
    }
}

/* ---- the decision ---- */

bool ECH_CPU(multiplies_thin)(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                              const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                              const ech_tensor *add, const ech_tensor *c)
{
    int64_t M = c->shape[0], N = c->shape[1], K = a->shape[a_transposed ? 0 : 1];
    const int64_t dims[] = {M, N, K, a_transposed, b_transposed, bias != NULL, add != NULL};
    thin kind = thin_of(dims);
    if (kind == NOT_THIN || (add && add->data != c->data)) return false;
    float *room = ech_scratch(context, scratch_of(kind, context->threads, dims));
    if (kind == LEFT)
        multiply_left(context, a, b, add != NULL, c, room);
    else
        multiply_right(context, a, b, add != NULL, c, room);
    return true;
}

size_t ECH_CPU(scratch_thin)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return scratch_of(thin_of(dims), threads, dims);
}

#ifdef ECH_HAS_ONEDNN
void ECH_CPU(matmul)(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                     const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                     const ech_tensor *add, const ech_tensor *c)
{
    const ech_tensor op_a = ech_shape_transposed(a, a_transposed);
    const ech_tensor op_b = ech_shape_transposed(b, b_transposed);
    ECH_SHAPES(matmul, ECH_F32, &op_a, &op_b, bias, add, c);
    if (!ECH_CPU(multiplies_thin)(context, a, a_transposed, b, b_transposed, bias, add, c))
        ech_cpu_library_matmul(context, a, a_transposed, b, b_transposed, bias, add, c);
}

size_t ECH_CPU(scratch_matmul)(ech_dtype dtype, int threads, const int64_t *dims)
{
    size_t own = ECH_CPU(scratch_thin)(dtype, threads, dims);
    size_t library = ech_cpu_library_scratch_matmul(dtype, threads, dims);
    return own > library ? own : library;
}
#endif

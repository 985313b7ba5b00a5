/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of 16-bit types. Where oneDNN has no fast one of the type or shape, c is divided into tiles;
 * for each, blocks of both operands are widened and multiplied in fp32, and the sum is rounded once. Tiles do not depend
 * on the number of threads, and neither do results.
 */
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>

#include "kernel/cpu/library.h"
#include "kernel/cpu/part.h"
#include "kernel/shape.h"

/* Sizes of tiles of c, and of the blocks of K. A widened number takes part in so many products that its widening does
 * not count; all three blocks fit in a core's second cache. */
enum { ROWS = 128, COLUMNS = 256, DEPTH = 256 };

typedef struct product {
    const ech_tensor *a, *b, *bias, *add, *c;
    bool a_transposed, b_transposed;
    int64_t M, N, K;
} product;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t floats_of_thread(int64_t M, int64_t N, int64_t K)
{
    int64_t rows = least(M, ROWS), columns = least(N, COLUMNS), depth = least(K, DEPTH);
    return rows * columns + (rows + columns) * depth;
}

/* Rows [row, row + rows) and columns [column, column + columns) of x as a dense matrix. */
static void widen(const ech_tensor *x, int64_t row, int64_t rows, int64_t column, int64_t columns,
                  float *to)
{
    for (int64_t r = 0; r < rows; r++, to += columns)
        ech_widen((const ech_real *)x->data + (row + r) * x->stride[0] + column, columns, to);
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
    int64_t rows = least(p->M - m, ROWS), columns = least(p->N - n, COLUMNS);
    float *sum = memory, *a = sum + rows * columns, *b = a + rows * least(p->K, DEPTH);
    for (int64_t i = 0; p->K == 0 && i < rows * columns; i++) sum[i] = 0;
    for (int64_t k = 0; k < p->K; k += DEPTH) {
        int64_t depth = least(p->K - k, DEPTH);
        if (p->a_transposed)
            widen(p->a, k, depth, m, rows, a);
        else
            widen(p->a, m, rows, k, depth, a);
        if (p->b_transposed)
            widen(p->b, n, columns, k, depth, b);
        else
            widen(p->b, k, depth, n, columns, b);
        dnnl_status_t status =
            dnnl_sgemm(p->a_transposed ? 'T' : 'N', p->b_transposed ? 'T' : 'N', rows, columns,
                       depth, 1.0F, a, p->a_transposed ? rows : depth, b,
                       p->b_transposed ? depth : columns, k > 0 ? 1.0F : 0.0F, sum, columns);
        ECH_ASSERT(status == dnnl_success); /* fails on wrong arguments or without memory alone */
    }
    for (int64_t r = 0; r < rows; r++) store_row(p, m + r, n, columns, sum + r * columns);
}

static size_t tile_bytes(int threads, int64_t M, int64_t N, int64_t K)
{
    return (size_t)(threads * floats_of_thread(M, N, K)) * sizeof(float);
}

/* Inside of a parallel region sgemm takes the calling thread alone. */
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
#ifdef ECH_PAIRS
    if (ech_cpu_library_multiplies(context, a, a_transposed, b, b_transposed, bias, add, c)) return;
#endif
    const product p = {a, b, bias, add, c, a_transposed, b_transposed, M, N, K};
    multiply_tiles(context, &p);
}

/* dims: M, N, K, a_transposed, b_transposed, has_bias, has_add. */
size_t ECH_CPU(scratch_matmul)(ech_dtype dtype, int threads, const int64_t *dims)
{
    size_t bytes = tile_bytes(threads, dims[0], dims[1], dims[2]);
#ifdef ECH_PAIRS
    size_t library = ech_cpu_library_scratch(dtype, threads, dims);
    if (library > bytes) bytes = library;
#endif
    return bytes;
}

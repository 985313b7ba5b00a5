/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of rows by expert in fp32, by a library's GEMM: it gets sizes at each call, so nothing
 * is made or kept for a count.
 */
#include <string.h>

#include "kernel/cpu/blocks.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/rows.h"
#include "kernel/shape.h"

/* The largest block: large enough that a thread's GEMM packs its operands once for many products,
 * and small enough that threads share an expert. */
enum { ROWS = 256, COLUMNS = 768, WEIGHT_ROWS = 384 };

void ech_cpu_grouped_matmul(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                            bool b_transposed, const ech_tensor *counts, bool accumulate,
                            const ech_tensor *c)
{
    int64_t R = a->shape[0], N = c->shape[1], K = a->shape[1];
    const ech_grouped_cut cut = {ROWS, COLUMNS, N};
    const ech_tensor op_b = ech_shape_of_experts(b, b_transposed);
    ECH_SHAPES(grouped_matmul, ECH_F32, a, &op_b, counts, c);
    ech_grouped_check(counts, R);
    int64_t blocks = ech_grouped_blocks(counts, cut);
#pragma omp parallel for num_threads(context->threads) schedule(dynamic)
    for (int64_t i = 0; i < blocks; i++) {
        const ech_grouped_block at = ech_grouped_block_at(counts, R, cut, i);
        const float *own = (const float *)b->data + at.expert * K * N;
        int64_t row = at.first + at.row;
        const ech_gemm block = {.M = at.row_end - at.row,
                                .N = at.column_end - at.column,
                                .K = K,
                                .a_stride = K,
                                .b_stride = b_transposed ? K : N,
                                .c_stride = N,
                                .b_transposed = b_transposed,
                                .add = accumulate};
        ech_cpu_gemm(&block, (const float *)a->data + row * K,
                     own + (b_transposed ? at.column * K : at.column),
                     (float *)c->data + row * N + at.column);
    }
}

/* A part of c's matrix of an expert: the sum over its rows in all splits. */
static void multiply_weight(const ech_tensor *a, const ech_tensor *b, const ech_tensor *counts,
                            int64_t expert, int64_t m, int64_t rows, bool add, const ech_tensor *c)
{
    int64_t M = a->shape[1], N = b->shape[1], P = counts->shape[0], X = counts->shape[1];
    float *to = (float *)c->data + (expert * M + m) * N;
    for (int64_t p = 0; p < P; p++) {
        int64_t first = p * (a->shape[0] / P) + ech_rows_before(counts->data, X, p, expert);
        int64_t depth = ((const int32_t *)counts->data)[p * X + expert];
        if (depth == 0) continue;
        const ech_gemm part = {.M = rows,
                               .N = N,
                               .K = depth,
                               .a_stride = M,
                               .b_stride = N,
                               .c_stride = N,
                               .a_transposed = true,
                               .add = add};
        ech_cpu_gemm(&part, (const float *)a->data + first * M + m,
                     (const float *)b->data + first * N, to);
        add = true;
    }
    if (!add) memset(to, 0, (size_t)(rows * N) * sizeof *to);
}

void ech_cpu_grouped_matmul_weight(ech_kernel_context *context, const ech_tensor *a,
                                   const ech_tensor *b, const ech_tensor *counts, bool accumulate,
                                   const ech_tensor *c)
{
    int64_t M = c->shape[1], parts = ech_even_parts(M, WEIGHT_ROWS);
    ECH_SHAPES(grouped_matmul_weight, ECH_F32, a, b, counts, c);
    ech_grouped_check(counts, a->shape[0]);
    int64_t blocks = counts->shape[1] * parts;
#pragma omp parallel for num_threads(context->threads) schedule(dynamic)
    for (int64_t i = 0; i < blocks; i++) {
        int64_t m = ech_even_part(M, i % parts, parts);
        multiply_weight(a, b, counts, i / parts, m, ech_even_part(M, i % parts + 1, parts) - m,
                        accumulate, c);
    }
}

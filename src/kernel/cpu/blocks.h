/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by expert in blocks, each multiplied by one thread: evenly cut parts of the rows of one
 * expert in one split (kernel/experts.h). Blocks depend only on counts and sizes, so results do not
 * depend on the number of threads.
 */
#ifndef ECH_KERNEL_CPU_BLOCKS_H
#define ECH_KERNEL_CPU_BLOCKS_H

#include "kernel/experts.h"
#include "kernel/kernel.h"

/* Rows [first, first + rows) of the buffers belong to the expert; the block has rows [row, row_end)
 * of these, and columns [column, column_end) of c. */
typedef struct ech_grouped_block {
    int64_t expert, first, rows, row, row_end, column, column_end;
} ech_grouped_block;

/* How c is cut: parts of at most `rows` rows and `columns` columns, of N. */
typedef struct ech_grouped_cut {
    int64_t rows, columns, N;
} ech_grouped_cut;

static inline int64_t ech_even_parts(int64_t n, int64_t most)
{
    return (n + most - 1) / most;
}

/* The beginning of the i-th of `parts` even parts of n, a multiple of 16; n for i = parts. It is
 * rounded up, so no part has more than `most` (ech_even_parts), a multiple of 16. */
static inline int64_t ech_even_part(int64_t n, int64_t i, int64_t parts)
{
    return i == parts ? n : (n * i / parts + 15) / 16 * 16;
}

static inline int64_t ech_grouped_blocks(const ech_tensor *counts, ech_grouped_cut cut)
{
    int64_t blocks = 0;
    for (int64_t i = 0; i < counts->shape[0] * counts->shape[1]; i++)
        blocks += ech_even_parts(((const int32_t *)counts->data)[i], cut.rows);
    return blocks * ech_even_parts(cut.N, cut.columns);
}

/* Block number i of buffers of R rows. */
static inline ech_grouped_block ech_grouped_block_at(const ech_tensor *counts, int64_t R,
                                                     ech_grouped_cut cut, int64_t i)
{
    const int32_t *rows = counts->data;
    int64_t P = counts->shape[0], X = counts->shape[1], run = 0, down;
    int64_t across = ech_even_parts(cut.N, cut.columns);
    for (;; run++) {
        ECH_ASSERT(run < P * X);
        down = ech_even_parts(rows[run], cut.rows);
        if (i < down * across) break;
        i -= down * across;
    }
    return (ech_grouped_block){
        .expert = run % X,
        .first = run / X * (R / P) + ech_rows_before(rows, X, run / X, run % X),
        .rows = rows[run],
        .row = ech_even_part(rows[run], i / across, down),
        .row_end = ech_even_part(rows[run], i / across + 1, down),
        .column = ech_even_part(cut.N, i % across, across),
        .column_end = ech_even_part(cut.N, i % across + 1, across),
    };
}

/* Checks that each split of a buffer of R rows has room for the rows of counts. */
static inline void ech_grouped_check(const ech_tensor *counts, int64_t R)
{
    int64_t P = counts->shape[0], X = counts->shape[1];
    ECH_ASSERT(P > 0 && R % P == 0);
    for (int64_t p = 0; p < P; p++) ECH_ASSERT(ech_rows_before(counts->data, X, p, X) <= R / P);
}

/* b (X,K,N) for the check of shapes, also if it is transposed. */
static inline ech_tensor ech_shape_of_experts(const ech_tensor *b, bool transposed)
{
    ech_tensor view = *b;
    view.shape[1] = b->shape[transposed ? 2 : 1];
    view.shape[2] = b->shape[transposed ? 1 : 2];
    view.stride[1] = view.shape[2];
    return view;
}

#endif

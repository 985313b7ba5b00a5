/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations, dropout and biases of the rows in use of buffers by expert (kernel/experts.h): the
 * first rows of each split.
 */
#include "kernel/cpu/activation.h"
#include "kernel/cpu/blocks.h"
#include "kernel/cpu/dropout.h"
#include "kernel/experts.h"
#include "kernel/shape.h"

/* Where split p of a buffer like x begins, and its number of elements. */
static int64_t elements_of(const ech_tensor *x, const ech_tensor *counts, int64_t p, int64_t *first)
{
    int64_t Q = x->shape[0] / counts->shape[0], F = x->shape[1], X = counts->shape[1];
    int64_t rows = ech_rows_before(counts->data, X, p, X);
    ECH_ASSERT(Q * counts->shape[0] == x->shape[0] && rows <= Q);
    *first = p * Q * F;
    return rows * F;
}

/* Calls part(..., first, count) for the parts of all splits of buffers like x. */
#define EACH_PART(x, part, ...)                                                                    \
    for (int64_t p = 0; p < counts->shape[0]; p++) {                                               \
        int64_t begin, n = elements_of(x, counts, p, &begin);                                      \
        EACH_OF_PIECE                                                                              \
        for (int64_t at = 0; at < n; at += ECH_PART)                                               \
            part(__VA_ARGS__, begin + at, ech_part(n, at, ECH_PART));                              \
    }
#define EACH_OF_PIECE _Pragma("omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)")

#define ROWS_1(name)                                                                               \
    void ECH_CPU(grouped_##name##_forward)(ech_kernel_context * context, const ech_tensor *x,      \
                                           const ech_tensor *counts, const ech_tensor *y)          \
    {                                                                                              \
        ECH_SHAPES(grouped_##name##_forward, ECH_REAL, x, counts, y);                              \
        EACH_PART(x, ech_##name##_forward_part, x, y)                                              \
    }                                                                                              \
    void ECH_CPU(grouped_##name##_backward)(ech_kernel_context * context, const ech_tensor *dy,    \
                                            const ech_tensor *x, const ech_tensor *counts,         \
                                            const ech_tensor *dx)                                  \
    {                                                                                              \
        ECH_SHAPES(grouped_##name##_backward, ECH_REAL, dy, x, counts, dx);                        \
        EACH_PART(x, ech_##name##_backward_part, dy, x, dx)                                        \
    }

#define ROWS_2(name)                                                                               \
    void ECH_CPU(grouped_##name##_forward)(ech_kernel_context * context, const ech_tensor *gate,   \
                                           const ech_tensor *up, const ech_tensor *counts,         \
                                           const ech_tensor *y)                                    \
    {                                                                                              \
        ECH_SHAPES(grouped_##name##_forward, ECH_REAL, gate, up, counts, y);                       \
        EACH_PART(gate, ech_##name##_forward_part, gate, up, y)                                    \
    }                                                                                              \
    void ECH_CPU(grouped_##name##_backward)(ech_kernel_context * context, const ech_tensor *dy,    \
                                            const ech_tensor *gate, const ech_tensor *up,          \
                                            const ech_tensor *counts, const ech_tensor *dgate,     \
                                            const ech_tensor *dup)                                 \
    {                                                                                              \
        ECH_SHAPES(grouped_##name##_backward, ECH_REAL, dy, gate, up, counts, dgate, dup);         \
        EACH_PART(gate, ech_##name##_backward_part, dy, gate, up, dgate, dup)                      \
    }

#define ROWS(NAME, name, operands, ...) ROWS_##operands(name)
ECH_ACTIVATIONS(ROWS)

static void copy_part(const ech_tensor *x, const ech_tensor *y, int64_t first, int64_t count)
{
    ech_part_copy(x, first, count, y, first);
}

void ECH_CPU(grouped_dropout)(ech_kernel_context *context, const ech_tensor *x,
                              const ech_dropout *dropout, const ech_tensor *index, int64_t first,
                              int64_t whole, const ech_tensor *counts, const ech_tensor *y)
{
    int64_t F = x->shape[1];
    ECH_SHAPES(grouped_dropout, ECH_REAL, x, index, counts, y);
    ECH_ASSERT(first >= 0 && dropout->p < 1 && (index || dropout->p == 0));
    if (!(dropout->p > 0)) {
        if (x->data == y->data) return;
        EACH_PART(x, copy_part, x, y)
        return;
    }
    const ech_dropper drop = ech_dropper_of(dropout);
    for (int64_t p = 0; p < counts->shape[0]; p++) {
        int64_t begin, n = elements_of(x, counts, p, &begin);
        EACH_OF_PIECE
        for (int64_t r = begin / F; r < (begin + n) / F; r++)
            ech_drop_row(&drop, (uint64_t)(ech_choice_get(index->data, r) * whole + first), r, x,
                         y);
    }
}

void ECH_CPU(grouped_bias)(ech_kernel_context *context, const ech_tensor *bias,
                           const ech_tensor *counts, const ech_tensor *c)
{
    int64_t N = bias->shape[1], P = counts->shape[0], X = counts->shape[1];
    ECH_SHAPES(grouped_bias, ECH_REAL, bias, counts, c);
    ech_grouped_check(counts, c->shape[0]);
    for (int64_t run = 0; run < P * X; run++) {
        int64_t p = run / X, i = run % X;
        int64_t first = p * (c->shape[0] / P) + ech_rows_before(counts->data, X, p, i);
        int64_t end = first + ((const int32_t *)counts->data)[run];
#pragma omp parallel for num_threads(context->threads) if ((end - first) * N > ECH_CHUNK)
        for (int64_t r = first; r < end; r++) ech_part_copy(bias, i * N, N, c, r * N);
    }
}

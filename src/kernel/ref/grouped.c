/* SPDX-License-Identifier: Apache-2.0
 *
 * Products and activations of rows by expert.
 */
#include "kernel/experts.h"
#include "kernel/ref/real.h"

/* The rows of one split. Checks that there is room for the counted rows. */
static int64_t split_rows(const ech_tensor *buffer, const ech_tensor *counts)
{
    int64_t R = buffer->shape[0], P = counts->shape[0], X = counts->shape[1];
    ECH_ASSERT(P > 0 && R % P == 0);
    for (int64_t i = 0; i < P * X; i++) ECH_ASSERT(((const int32_t *)counts->data)[i] >= 0);
    for (int64_t p = 0; p < P; p++) ECH_ASSERT(ech_rows_before(counts->data, X, p, X) <= R / P);
    return R / P;
}

/* A view of expert i's rows in split p. */
static ech_tensor rows_of(const ech_tensor *buffer, const ech_tensor *counts, int64_t p, int64_t i)
{
    int64_t X = counts->shape[1], Q = buffer->shape[0] / counts->shape[0];
    return ech_tensor_rows(buffer, p * Q + ech_rows_before(counts->data, X, p, i),
                           ((const int32_t *)counts->data)[p * X + i]);
}

/* Its matrix. */
static ech_tensor matrix_of(const ech_tensor *all, int64_t i)
{
    int64_t rows = all->shape[1], columns = all->shape[2];
    char *data = all->data;
    return ech_tensor_2d(data + (size_t)(i * rows * columns) * ech_dtype_bytes(all->dtype),
                         all->dtype, rows, columns);
}

void ECH_REF(grouped_matmul)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                             bool b_transposed, const ech_tensor *counts, bool accumulate,
                             const ech_tensor *c)
{
    ech_tensor op_b = *b;
    op_b.shape[1] = b->shape[b_transposed ? 2 : 1];
    op_b.shape[2] = b->shape[b_transposed ? 1 : 2];
    op_b.stride[1] = op_b.shape[2];
    op_b.stride[0] = op_b.shape[1] * op_b.shape[2];
    ECH_SHAPES(grouped_matmul, ECH_REAL, a, &op_b, counts, c);
    split_rows(a, counts);
    for (int64_t p = 0; p < counts->shape[0]; p++)
        for (int64_t i = 0; i < counts->shape[1]; i++) {
            const ech_tensor own_a = rows_of(a, counts, p, i), own_b = matrix_of(b, i);
            const ech_tensor own_c = rows_of(c, counts, p, i);
            ECH_REF(matmul)
            (context, &own_a, false, &own_b, b_transposed, NULL, accumulate ? &own_c : NULL,
             &own_c);
        }
}

void ECH_REF(grouped_matmul_weight)(ech_kernel_context *context, const ech_tensor *a,
                                    const ech_tensor *b, const ech_tensor *counts, bool accumulate,
                                    const ech_tensor *c)
{
    int64_t M = c->shape[1], N = c->shape[2];
    ECH_SHAPES(grouped_matmul_weight, ECH_REAL, a, b, counts, c);
    split_rows(a, counts);
    for (int64_t at = 0; at < ech_tensor_count(c); at++) {
        int64_t i = at / (M * N), m = at / N % M, n = at % N;
        double sum = accumulate ? ech_value(c, at) : 0;
        for (int64_t p = 0; p < counts->shape[0]; p++) {
            const ech_tensor own_a = rows_of(a, counts, p, i), own_b = rows_of(b, counts, p, i);
            for (int64_t r = 0; r < own_a.shape[0]; r++)
                sum += ech_value(&own_a, r * M + m) * ech_value(&own_b, r * N + n);
        }
        ech_store(c, at, sum);
    }
}

void ECH_REF(grouped_bias)(ech_kernel_context *context, const ech_tensor *bias,
                           const ech_tensor *counts, const ech_tensor *c)
{
    int64_t N = bias->shape[1];
    ECH_SHAPES(grouped_bias, ECH_REAL, bias, counts, c);
    split_rows(c, counts);
    for (int64_t p = 0; p < counts->shape[0]; p++)
        for (int64_t i = 0; i < counts->shape[1]; i++) {
            const ech_tensor own = rows_of(c, counts, p, i);
            for (int64_t at = 0; at < ech_tensor_count(&own); at++)
                ech_store(&own, at, ech_value(bias, i * N + at % N));
        }
}

void ECH_REF(grouped_bias_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                    const ech_tensor *counts, bool accumulate,
                                    const ech_tensor *dbias)
{
    int64_t N = dbias->shape[1];
    ECH_SHAPES(grouped_bias_backward, ECH_REAL, dy, counts, dbias);
    split_rows(dy, counts);
    for (int64_t at = 0; at < ech_tensor_count(dbias); at++) {
        double sum = accumulate ? ech_value(dbias, at) : 0;
        for (int64_t p = 0; p < counts->shape[0]; p++) {
            const ech_tensor own = rows_of(dy, counts, p, at / N);
            for (int64_t r = 0; r < own.shape[0]; r++) sum += ech_value(&own, r * N + at % N);
        }
        ech_store(dbias, at, sum);
    }
}

/* A view of all rows of split p. */
static ech_tensor split_of(const ech_tensor *buffer, const ech_tensor *counts, int64_t p)
{
    int64_t X = counts->shape[1], Q = split_rows(buffer, counts);
    return ech_tensor_rows(buffer, p * Q, ech_rows_before(counts->data, X, p, X));
}

#define ROWS_1(name)                                                                               \
    void ECH_REF(grouped_##name##_forward)(ech_kernel_context * context, const ech_tensor *x,      \
                                           const ech_tensor *counts, const ech_tensor *y)          \
    {                                                                                              \
        ECH_SHAPES(grouped_##name##_forward, ECH_REAL, x, counts, y);                              \
        for (int64_t p = 0; p < counts->shape[0]; p++) {                                           \
            const ech_tensor from = split_of(x, counts, p), to = split_of(y, counts, p);           \
            ECH_REF(name##_forward)(context, &from, &to);                                          \
        }                                                                                          \
    }                                                                                              \
    void ECH_REF(grouped_##name##_backward)(ech_kernel_context * context, const ech_tensor *dy,    \
                                            const ech_tensor *x, const ech_tensor *counts,         \
                                            const ech_tensor *dx)                                  \
    {                                                                                              \
        ECH_SHAPES(grouped_##name##_backward, ECH_REAL, dy, x, counts, dx);                        \
        for (int64_t p = 0; p < counts->shape[0]; p++) {                                           \
            const ech_tensor d = split_of(dy, counts, p), from = split_of(x, counts, p),           \
                             to = split_of(dx, counts, p);                                         \
            ECH_REF(name##_backward)(context, &d, &from, &to);                                     \
        }                                                                                          \
    }

#define ROWS_2(name)                                                                               \
    void ECH_REF(grouped_##name##_forward)(ech_kernel_context * context, const ech_tensor *gate,   \
                                           const ech_tensor *up, const ech_tensor *counts,         \
                                           const ech_tensor *y)                                    \
    {                                                                                              \
        ECH_SHAPES(grouped_##name##_forward, ECH_REAL, gate, up, counts, y);                       \
        for (int64_t p = 0; p < counts->shape[0]; p++) {                                           \
            const ech_tensor own_gate = split_of(gate, counts, p),                                 \
                             own_up = split_of(up, counts, p), to = split_of(y, counts, p);        \
            ECH_REF(name##_forward)(context, &own_gate, &own_up, &to);                             \
        }                                                                                          \
    }                                                                                              \
    void ECH_REF(grouped_##name##_backward)(ech_kernel_context * context, const ech_tensor *dy,    \
                                            const ech_tensor *gate, const ech_tensor *up,          \
                                            const ech_tensor *counts, const ech_tensor *dgate,     \
                                            const ech_tensor *dup)                                 \
    {                                                                                              \
        ECH_SHAPES(grouped_##name##_backward, ECH_REAL, dy, gate, up, counts, dgate, dup);         \
        for (int64_t p = 0; p < counts->shape[0]; p++) {                                           \
            const ech_tensor d = split_of(dy, counts, p), own_gate = split_of(gate, counts, p),    \
                             own_up = split_of(up, counts, p),                                     \
                             to_gate = split_of(dgate, counts, p),                                 \
                             to_up = split_of(dup, counts, p);                                     \
            ECH_REF(name##_backward)(context, &d, &own_gate, &own_up, &to_gate, &to_up);           \
        }                                                                                          \
    }

#define ROWS(NAME, name, operands, ...) ROWS_##operands(name)
ECH_ACTIVATIONS(ROWS)

void ECH_REF(grouped_dropout)(ech_kernel_context *context, const ech_tensor *x,
                              const ech_dropout *dropout, const ech_tensor *index, int64_t first,
                              int64_t whole, const ech_tensor *counts, const ech_tensor *y)
{
    const ech_random_key key = ech_dropout_key(dropout);
    int64_t F = x->shape[1];
    ECH_SHAPES(grouped_dropout, ECH_REAL, x, index, counts, y);
    ECH_ASSERT(first >= 0 && (index || dropout->p == 0));
    for (int64_t p = 0; p < counts->shape[0]; p++) {
        const ech_tensor from = split_of(x, counts, p), to = split_of(y, counts, p);
        for (int64_t i = 0; i < ech_tensor_count(&from); i++) {
            int64_t row = p * split_rows(x, counts) + i / F;
            bool dropped = false;
            if (dropout->p > 0) {
                int64_t element = ech_choice_get(index->data, row) * whole + first + i % F;
                dropped = ech_random_unit(ech_random_word(key, (uint64_t)element)) < dropout->p;
            }
            ech_store(&to, i, dropped ? 0 : ech_value(&from, i) / (1 - dropout->p));
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout, sums of two tensors, copies and fills.
 */
#include <math.h>

#include "kernel/ref/real.h"

void ECH_REF(dropout)(ech_kernel_context *context, const ech_tensor *x, const ech_dropout *dropout,
                      const ech_rows *rows, const ech_tensor *y)
{
    ECH_ROWS_NOW(rows);
    const ech_random_key key = ech_dropout_key(dropout);
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(dropout, ECH_REAL, x, y);
    ECH_ROWS(rows, NULL, R);
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++) {
            uint64_t element =
                (uint64_t)(ech_dropout_first(dropout, ech_row_whole(rows, r), C) + c);
            bool dropped =
                dropout->p > 0 && ech_random_unit(ech_random_word(key, element)) < dropout->p;
            double kept = ech_value(x, r * C + c) / (1 - dropout->p);
            ech_store(y, r * C + c, dropped ? 0 : kept);
        }
}

void ECH_REF(add)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                  const ech_tensor *y)
{
    ECH_SHAPES(add, ECH_REAL, a, b, y);
    for (int64_t i = 0, n = ech_tensor_count(a); i < n; i++)
        ech_store(y, i, ech_value(a, i) + ech_value(b, i));
}

void ECH_REF(subtract)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                       const ech_tensor *y)
{
    ECH_SHAPES(subtract, ECH_REAL, a, b, y);
    for (int64_t i = 0, n = ech_tensor_count(a); i < n; i++)
        ech_store(y, i, ech_value(a, i) - ech_value(b, i));
}

void ECH_REF(scale)(ech_kernel_context *context, const ech_tensor *x, double factor, double cap,
                    const ech_tensor *y)
{
    ECH_SHAPES(scale, ECH_REAL, x, y);
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) {
        double v = factor * ech_value(x, i);
        ech_store(y, i, cap > 0 ? cap * tanh(v / cap) : v);
    }
}

void ECH_REF(scaled_sum)(ech_kernel_context *context, const ech_tensor *x, double alpha,
                         double beta, double diagonal, const ech_tensor *squares,
                         const ech_update *update, const ech_tensor *y)
{
    ECH_SHAPES(scaled_sum, ECH_REAL, x, squares, y);
    ech_update now;
    if (update && !ech_update_begins(&update, &now)) return;
    alpha = ech_scaled_alpha(alpha, squares, update);
    for (int64_t i = 0, n = ech_tensor_count(x), C = x->shape[1]; i < n; i++)
        ech_store(y, i,
                  alpha * ech_value(x, i) + (beta != 0 ? beta * ech_value(y, i) : 0) +
                      (i / C == i % C ? diagonal : 0));
}

/* Token t of x to token `to` of y. */
static void copy_token(const ech_tensor *x, int64_t b, int64_t t, const ech_tensor *y, int64_t to)
{
    for (int64_t h = 0; h < x->shape[2]; h++) {
        const char *from = x->data;
        char *into = y->data;
        ech_convert(from + (size_t)ech_head(x, b, t, h) * ech_dtype_bytes(x->dtype), x->dtype,
                    into + (size_t)ech_head(y, b, to, h) * ech_dtype_bytes(y->dtype), y->dtype,
                    x->shape[3]);
    }
}

void ECH_REF(copy)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ECH_SHAPES(copy, ECH_REAL, x, y);
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t t = 0; t < x->shape[1]; t++) copy_token(x, b, t, y, t);
}

void ECH_REF(sum_heads)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ECH_SHAPES(sum_heads, ECH_REAL, x, y);
    int64_t T = x->shape[1], D = x->shape[3];
    for (int64_t i = 0; i < ech_tensor_count(y); i++) {
        double sum = 0;
        for (int64_t h = 0; h < x->shape[2]; h++)
            sum += ech_value(x, ech_head(x, i / D / T, i / D % T, h) + i % D);
        ech_store(y, i, sum);
    }
}

void ECH_REF(append)(ech_kernel_context *context, const ech_tensor *x, const ech_rows *rows,
                     const ech_tensor *cache)
{
    ECH_ROWS_NOW(rows);
    ECH_SHAPES(append, ECH_REAL, x, cache);
    ECH_SAMPLES(rows, NULL, x->shape[0], x->shape[1]);
    ECH_ASSERT(rows->whole == cache->shape[1]);
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t t = 0; t < rows->tokens; t++)
            copy_token(x, b, t, cache, ech_rows_token_position(rows, t));
}

void ECH_REF(fill_normal)(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                          int64_t first_element, double mean, double std)
{
    ECH_SHAPES(fill_normal, ECH_REAL, x);
    ECH_ASSERT(first_element >= 0);
    double normals[4];
    uint64_t first = (uint64_t)first_element, n = (uint64_t)ech_tensor_count(x);
    for (uint64_t i = first; i < first + n; i++) {
        if (i == first || i % 4 == 0) ech_random_normals(key, i / 4, normals);
        ech_store(x, (int64_t)(i - first), mean + std * normals[i % 4]);
    }
}

/* Elements are drawn one by one, since few are drawn again. */
void ECH_REF(fill_truncated)(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                             int64_t first_element, double mean, double std)
{
    ECH_SHAPES(fill_truncated, ECH_REAL, x);
    ECH_ASSERT(first_element >= 0 && key.step == 0);
    double normals[4], normal;
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) {
        uint64_t element = (uint64_t)(first_element + i);
        key.step = 0;
        do {
            ech_random_normals(key, element / 4, normals);
            normal = normals[element % 4];
            key.step++;
        } while (fabs(normal) > 2);
        ech_store(x, i, mean + std * normal);
    }
}

void ECH_REF(fill_uniform)(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                           int64_t first_element, double low, double high)
{
    ECH_SHAPES(fill_uniform, ECH_REAL, x);
    ECH_ASSERT(first_element >= 0);
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) {
        uint32_t word = ech_random_word(key, (uint64_t)(first_element + i));
        ech_store(x, i, low + (high - low) * ech_random_unit(word));
    }
}

void ECH_REF(fill)(ech_kernel_context *context, const ech_tensor *x, double value)
{
    ECH_SHAPES(fill, ECH_REAL, x);
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) ech_store(x, i, value);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout, sums of two tensors, copies and fills.
 */
#include "kernel/ref/real.h"

void ECH_REF(dropout)(ech_kernel_context *context, const ech_tensor *x, const ech_dropout *dropout,
                      const ech_rows *rows, const ech_tensor *y)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(dropout, ECH_REAL, x, y);
    ECH_ROWS(rows, NULL, R);
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++) {
            uint64_t element = (uint64_t)(ech_row_whole(rows, r) * C + c);
            bool dropped = dropout->p > 0 &&
                           ech_random_unit(ech_random_word(dropout->key, element)) < dropout->p;
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

void ECH_REF(copy)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    int64_t B = x->shape[0], T = x->shape[1], H = x->shape[2], D = x->shape[3];
    ECH_SHAPES(copy, ECH_REAL, x, y);
    for (int64_t i = 0; i < B * T * H; i++) {
        int64_t b = i / H / T, t = i / H % T, h = i % H;
        const char *from = x->data;
        char *to = y->data;
        ech_convert(from + (size_t)ech_head(x, b, t, h) * ech_dtype_bytes(x->dtype), x->dtype,
                    to + (size_t)ech_head(y, b, t, h) * ech_dtype_bytes(y->dtype), y->dtype, D);
    }
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

void ECH_REF(fill)(ech_kernel_context *context, const ech_tensor *x, double value)
{
    ECH_SHAPES(fill, ECH_REAL, x);
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) ech_store(x, i, value);
}

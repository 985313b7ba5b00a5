/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout, sums of two tensors, and fills.
 */
#include "kernel/ref/real.h"

void ECH_REF(dropout)(ech_kernel_context *context, const ech_tensor *x, const ech_dropout *dropout,
                      const ech_tensor *y)
{
    (void)context;
    ECH_LIKE(x, y);
    const real *in = x->data;
    real *out = y->data;
    int64_t n = ech_tensor_count(x), samples = x->dims ? x->shape[0] : 1;
    int64_t first = samples ? dropout->first_sample * (n / samples) : 0;
    for (int64_t i = 0; i < n; i++) {
        bool dropped =
            dropout->p > 0 &&
            ech_random_unit(ech_random_word(dropout->key, (uint64_t)(first + i))) < dropout->p;
        out[i] = dropped ? 0 : (real)(in[i] / (1 - dropout->p));
    }
}

void ECH_REF(add)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                  const ech_tensor *y)
{
    (void)context;
    ECH_LIKE(a, b);
    ECH_LIKE(a, y);
    for (int64_t i = 0, n = ech_tensor_count(a); i < n; i++)
        ((real *)y->data)[i] = ((const real *)a->data)[i] + ((const real *)b->data)[i];
}

void ECH_REF(fill_normal)(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                          int64_t first_element, double mean, double std)
{
    (void)context;
    ECH_LIKE(x, x);
    ECH_ASSERT(first_element >= 0);
    double normals[4];
    uint64_t first = (uint64_t)first_element, n = (uint64_t)ech_tensor_count(x);
    for (uint64_t i = first; i < first + n; i++) {
        if (i == first || i % 4 == 0) ech_random_normals(key, i / 4, normals);
        ((real *)x->data)[i - first] = (real)(mean + std * normals[i % 4]);
    }
}

void ECH_REF(fill)(ech_kernel_context *context, const ech_tensor *x, double value)
{
    (void)context;
    ECH_LIKE(x, x);
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) ((real *)x->data)[i] = (real)value;
}

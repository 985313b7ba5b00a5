/* SPDX-License-Identifier: Apache-2.0
 *
 * The sums of logistic regression over features, and their gradients. Its loss, one number per
 * sample, is the reference's.
 */
#include "kernel/cpu/part.h"
#include "kernel/shape.h"

static float weighted_sum(const ech_tensor *x, const ech_tensor *values, int64_t from, int64_t K)
{
    double total = 0;
    ECH_ALIGNED float part[ECH_PART];
    for (int64_t first = 0; first < K; first += ECH_PART) {
        int64_t n = ech_part(K, first, ECH_PART);
        const float *one = ech_part_of(x, from + first, n, part);
        const float *by = (const float *)values->data + from + first;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < n; k++) sum += one[k] * by[k];
        total += (double)sum;
    }
    return (float)total;
}

void ECH_CPU(sparse_logits)(ech_kernel_context *context, const ech_tensor *x,
                            const ech_tensor *values, const ech_tensor *bias, const ech_tensor *z)
{
    int64_t R = x->shape[0], K = x->shape[1];
    ECH_SHAPES(sparse_logits, ECH_REAL, x, values, bias, z);
#pragma omp parallel for num_threads(context->threads) if (R * K > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        ((float *)z->data)[r] = *(const float *)bias->data + weighted_sum(x, values, r * K, K);
}

static void scale_row(float by, const ech_tensor *values, int64_t from, int64_t K,
                      const ech_tensor *dx)
{
    ECH_ALIGNED float part[ECH_PART];
    for (int64_t first = 0; first < K; first += ECH_PART) {
        int64_t n = ech_part(K, first, ECH_PART);
        const float *one = (const float *)values->data + from + first;
        float *to = ech_part_to(dx, from + first, part);
#pragma omp simd
        for (int64_t k = 0; k < n; k++) to[k] = by * one[k];
        ech_part_done(dx, from + first, n, to);
    }
}

void ECH_CPU(sparse_logits_backward)(ech_kernel_context *context, const ech_tensor *dz,
                                     const ech_tensor *values, bool accumulate,
                                     const ech_tensor *dx, const ech_tensor *dbias)
{
    int64_t R = dx->shape[0], K = dx->shape[1];
    const float *by = dz->data;
    ECH_SHAPES(sparse_logits_backward, ECH_REAL, dz, values, dx, dbias);
    double sum = accumulate && dbias ? (double)ech_number(dbias, 0) : 0;
#pragma omp parallel for num_threads(context->threads) if (R * K > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) scale_row(by[r], values, r * K, K, dx);
    for (int64_t r = 0; dbias && r < R; r++) sum += (double)by[r];
    if (dbias) ech_set_number(dbias, 0, (float)sum);
}

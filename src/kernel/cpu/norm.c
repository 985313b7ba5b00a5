/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm and RMSNorm: rows are independent.
 */
#include <math.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

static void layernorm_row(int64_t C, const float *x, const float *gain, const float *bias,
                          double eps, float *y, float *mean, float *rstd)
{
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < C; c++) sum += x[c];
    float m = sum / (float)C;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < C; c++) squares += (x[c] - m) * (x[c] - m);
    float s = (float)(1 / sqrt(squares / (double)C + eps));
    for (int64_t c = 0; c < C; c++) y[c] = (x[c] - m) * s * gain[c] + bias[c];
    *mean = m;
    *rstd = s;
}

void ECH_CPU(layernorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *gain, const ech_tensor *bias, double eps,
                                const ech_tensor *y, const ech_tensor *mean, const ech_tensor *rstd)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(layernorm_forward, ECH_F32, x, gain, bias, y, mean, rstd);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        layernorm_row(C, (const float *)x->data + r * C, gain->data, bias->data, eps,
                      (float *)y->data + r * C, (float *)mean->data + r, (float *)rstd->data + r);
}

static void rmsnorm_row(int64_t C, const float *x, const float *gain, double eps, float *y,
                        float *rstd)
{
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < C; c++) squares += x[c] * x[c];
    float s = (float)(1 / sqrt(squares / (double)C + eps));
    for (int64_t c = 0; c < C; c++) y[c] = x[c] * s * gain[c];
    *rstd = s;
}

void ECH_CPU(rmsnorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                              const ech_tensor *gain, double eps, const ech_tensor *y,
                              const ech_tensor *rstd)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(rmsnorm_forward, ECH_F32, x, gain, y, rstd);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        rmsnorm_row(C, (const float *)x->data + r * C, gain->data, eps, (float *)y->data + r * C,
                    (float *)rstd->data + r);
}

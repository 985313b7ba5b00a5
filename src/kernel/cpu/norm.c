/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm and RMSNorm. Rows are independent; the gradients of gain and bias are summed by
 * columns, each in row order, so nothing depends on the number of threads.
 */
#include <math.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

/* Columns that one thread sums at a time: their fp64 sums stay in the nearest cache. */
enum { COLUMNS = 128 };

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
    ECH_SHAPE(x, ECH_F32, R, C);
    ECH_SHAPE(gain, ECH_F32, C);
    ECH_SHAPE(bias, ECH_F32, C);
    ECH_SHAPE(y, ECH_F32, R, C);
    ECH_SHAPE(mean, ECH_F32, R);
    ECH_SHAPE(rstd, ECH_F32, R);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        layernorm_row(C, (const float *)x->data + r * C, gain->data, bias->data, eps,
                      (float *)y->data + r * C, (float *)mean->data + r, (float *)rstd->data + r);
}

/* With n = (x - mean) rstd and e = dy gain: dx = rstd (e - mean(e) - n mean(e n)). */
static void layernorm_dx_row(int64_t C, const float *dy, const float *x, const float *gain,
                             float mean, float rstd, const float *add, float *dx)
{
    float e_sum = 0, en_sum = 0;
#pragma omp simd reduction(+ : e_sum, en_sum)
    for (int64_t c = 0; c < C; c++) {
        float e = dy[c] * gain[c];
        e_sum += e;
        en_sum += e * ((x[c] - mean) * rstd);
    }
    float e_mean = e_sum / (float)C, en_mean = en_sum / (float)C;
    if (add) {
#pragma omp simd
        for (int64_t c = 0; c < C; c++)
            dx[c] = rstd * (dy[c] * gain[c] - e_mean - (x[c] - mean) * rstd * en_mean) + add[c];
    } else {
#pragma omp simd
        for (int64_t c = 0; c < C; c++)
            dx[c] = rstd * (dy[c] * gain[c] - e_mean - (x[c] - mean) * rstd * en_mean);
    }
}

/* dgain and dbias of `n` columns from `first` on. */
static void layernorm_columns(int64_t R, int64_t C, int64_t first, int64_t n, const float *dy,
                              const float *x, const float *mean, const float *rstd, bool accumulate,
                              float *dgain, float *dbias)
{
    double gain_sum[COLUMNS], bias_sum[COLUMNS];
    for (int64_t j = 0; j < n; j++) {
        gain_sum[j] = accumulate ? dgain[first + j] : 0.0;
        bias_sum[j] = accumulate ? dbias[first + j] : 0.0;
    }
    for (int64_t r = 0; r < R; r++) {
        const float *d = dy + r * C + first, *v = x + r * C + first;
        float m = mean[r], s = rstd[r];
        for (int64_t j = 0; j < n; j++) {
            gain_sum[j] += (double)(d[j] * ((v[j] - m) * s));
            bias_sum[j] += (double)d[j];
        }
    }
    for (int64_t j = 0; j < n; j++) {
        dgain[first + j] = (float)gain_sum[j];
        dbias[first + j] = (float)bias_sum[j];
    }
}

void ECH_CPU(layernorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *x, const ech_tensor *gain,
                                 const ech_tensor *mean, const ech_tensor *rstd,
                                 const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                                 const ech_tensor *dgain, const ech_tensor *dbias)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPE(dy, ECH_F32, R, C);
    ECH_SHAPE(x, ECH_F32, R, C);
    ECH_SHAPE(gain, ECH_F32, C);
    ECH_SHAPE(mean, ECH_F32, R);
    ECH_SHAPE(rstd, ECH_F32, R);
    ECH_SHAPE_OPTIONAL(add, ECH_F32, R, C);
    ECH_SHAPE(dx, ECH_F32, R, C);
    ECH_SHAPE(dgain, ECH_F32, C);
    ECH_SHAPE(dbias, ECH_F32, C);
    const float *d = dy->data, *in = x->data, *more = add ? add->data : NULL;
#pragma omp parallel num_threads(context->threads) if (R * C > ECH_CHUNK)
    {
#pragma omp for nowait
        for (int64_t first = 0; first < C; first += COLUMNS)
            layernorm_columns(R, C, first, C - first < COLUMNS ? C - first : COLUMNS, d, in,
                              mean->data, rstd->data, accumulate, dgain->data, dbias->data);
#pragma omp for
        for (int64_t r = 0; r < R; r++)
            layernorm_dx_row(C, d + r * C, in + r * C, gain->data, ((const float *)mean->data)[r],
                             ((const float *)rstd->data)[r], more ? more + r * C : NULL,
                             (float *)dx->data + r * C);
    }
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
    ECH_SHAPE(x, ECH_F32, R, C);
    ECH_SHAPE(gain, ECH_F32, C);
    ECH_SHAPE(y, ECH_F32, R, C);
    ECH_SHAPE(rstd, ECH_F32, R);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        rmsnorm_row(C, (const float *)x->data + r * C, gain->data, eps, (float *)y->data + r * C,
                    (float *)rstd->data + r);
}

/* With n = x rstd and e = dy gain: dx = rstd (e - n mean(e n)). */
static void rmsnorm_dx_row(int64_t C, const float *dy, const float *x, const float *gain,
                           float rstd, const float *add, float *dx)
{
    float en_sum = 0;
#pragma omp simd reduction(+ : en_sum)
    for (int64_t c = 0; c < C; c++) en_sum += dy[c] * gain[c] * (x[c] * rstd);
    float en_mean = en_sum / (float)C;
    if (add) {
#pragma omp simd
        for (int64_t c = 0; c < C; c++)
            dx[c] = rstd * (dy[c] * gain[c] - x[c] * rstd * en_mean) + add[c];
    } else {
#pragma omp simd
        for (int64_t c = 0; c < C; c++) dx[c] = rstd * (dy[c] * gain[c] - x[c] * rstd * en_mean);
    }
}

static void rmsnorm_columns(int64_t R, int64_t C, int64_t first, int64_t n, const float *dy,
                            const float *x, const float *rstd, bool accumulate, float *dgain)
{
    double sum[COLUMNS];
    for (int64_t j = 0; j < n; j++) sum[j] = accumulate ? dgain[first + j] : 0.0;
    for (int64_t r = 0; r < R; r++) {
        const float *d = dy + r * C + first, *v = x + r * C + first;
        float s = rstd[r];
        for (int64_t j = 0; j < n; j++) sum[j] += (double)(d[j] * (v[j] * s));
    }
    for (int64_t j = 0; j < n; j++) dgain[first + j] = (float)sum[j];
}

void ECH_CPU(rmsnorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *x, const ech_tensor *gain, const ech_tensor *rstd,
                               const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                               const ech_tensor *dgain)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPE(dy, ECH_F32, R, C);
    ECH_SHAPE(x, ECH_F32, R, C);
    ECH_SHAPE(gain, ECH_F32, C);
    ECH_SHAPE(rstd, ECH_F32, R);
    ECH_SHAPE_OPTIONAL(add, ECH_F32, R, C);
    ECH_SHAPE(dx, ECH_F32, R, C);
    ECH_SHAPE(dgain, ECH_F32, C);
    const float *d = dy->data, *in = x->data, *more = add ? add->data : NULL;
#pragma omp parallel num_threads(context->threads) if (R * C > ECH_CHUNK)
    {
#pragma omp for nowait
        for (int64_t first = 0; first < C; first += COLUMNS)
            rmsnorm_columns(R, C, first, C - first < COLUMNS ? C - first : COLUMNS, d, in,
                            rstd->data, accumulate, dgain->data);
#pragma omp for
        for (int64_t r = 0; r < R; r++)
            rmsnorm_dx_row(C, d + r * C, in + r * C, gain->data, ((const float *)rstd->data)[r],
                           more ? more + r * C : NULL, (float *)dx->data + r * C);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm and RMSNorm.
 */
#include <math.h>

#include "kernel/ref/real.h"

void ECH_REF(layernorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *gain, const ech_tensor *bias, double eps,
                                const ech_tensor *y, const ech_tensor *mean, const ech_tensor *rstd)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(layernorm_forward, ECH_REAL, x, gain, bias, y, mean, rstd);
    const real *g = gain->data, *b = bias->data;
    for (int64_t r = 0; r < R; r++) {
        const real *row = (const real *)x->data + r * C;
        real *out = (real *)y->data + r * C;
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < C; c++) sum += row[c];
        double m = sum / (double)C;
        for (int64_t c = 0; c < C; c++) squares += (row[c] - m) * (row[c] - m);
        double s = 1 / sqrt(squares / (double)C + eps);
        for (int64_t c = 0; c < C; c++) out[c] = (real)((row[c] - m) * s * g[c] + b[c]);
        ((real *)mean->data)[r] = (real)m;
        ((real *)rstd->data)[r] = (real)s;
    }
}

/* With n = (x - mean) rstd and e = dy gain: dx = rstd (e - mean(e) - n mean(e n)). */
static void layernorm_row(int64_t C, const real *dy, const real *x, const real *gain, double mean,
                          double rstd, const real *add, real *dx, double *dgain, double *dbias)
{
    double e_sum = 0, en_sum = 0;
    for (int64_t c = 0; c < C; c++) {
        double n = (x[c] - mean) * rstd, e = (double)dy[c] * gain[c];
        e_sum += e;
        en_sum += e * n;
        dgain[c] += dy[c] * n;
        dbias[c] += dy[c];
    }
    for (int64_t c = 0; c < C; c++) {
        double n = (x[c] - mean) * rstd, e = (double)dy[c] * gain[c];
        double d = rstd * (e - e_sum / (double)C - n * en_sum / (double)C);
        dx[c] = (real)(d + (add ? add[c] : 0.0));
    }
}

void ECH_REF(layernorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *x, const ech_tensor *gain,
                                 const ech_tensor *mean, const ech_tensor *rstd,
                                 const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                                 const ech_tensor *dgain, const ech_tensor *dbias)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(layernorm_backward, ECH_REAL, dy, x, gain, mean, rstd, add, dx, dgain, dbias);
    double *gain_sum = ech_scratch(context, 2 * (size_t)C * sizeof *gain_sum);
    double *bias_sum = gain_sum + C;
    real *gain_out = dgain->data, *bias_out = dbias->data;
    for (int64_t c = 0; c < C; c++) {
        gain_sum[c] = accumulate ? gain_out[c] : 0.0;
        bias_sum[c] = accumulate ? bias_out[c] : 0.0;
    }
    for (int64_t r = 0; r < R; r++)
        layernorm_row(C, (const real *)dy->data + r * C, (const real *)x->data + r * C, gain->data,
                      ((const real *)mean->data)[r], ((const real *)rstd->data)[r],
                      add ? (const real *)add->data + r * C : NULL, (real *)dx->data + r * C,
                      gain_sum, bias_sum);
    for (int64_t c = 0; c < C; c++) {
        gain_out[c] = (real)gain_sum[c];
        bias_out[c] = (real)bias_sum[c];
    }
}

void ECH_REF(rmsnorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                              const ech_tensor *gain, double eps, const ech_tensor *y,
                              const ech_tensor *rstd)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(rmsnorm_forward, ECH_REAL, x, gain, y, rstd);
    const real *g = gain->data;
    for (int64_t r = 0; r < R; r++) {
        const real *row = (const real *)x->data + r * C;
        real *out = (real *)y->data + r * C;
        double squares = 0;
        for (int64_t c = 0; c < C; c++) squares += (double)row[c] * row[c];
        double s = 1 / sqrt(squares / (double)C + eps);
        for (int64_t c = 0; c < C; c++) out[c] = (real)(row[c] * s * g[c]);
        ((real *)rstd->data)[r] = (real)s;
    }
}

/* With n = x rstd and e = dy gain: dx = rstd (e - n mean(e n)). */
static void rmsnorm_row(int64_t C, const real *dy, const real *x, const real *gain, double rstd,
                        const real *add, real *dx, double *dgain)
{
    double en_sum = 0;
    for (int64_t c = 0; c < C; c++) {
        double n = x[c] * rstd;
        en_sum += (double)dy[c] * gain[c] * n;
        dgain[c] += dy[c] * n;
    }
    for (int64_t c = 0; c < C; c++) {
        double n = x[c] * rstd, e = (double)dy[c] * gain[c];
        dx[c] = (real)(rstd * (e - n * en_sum / (double)C) + (add ? add[c] : 0.0));
    }
}

void ECH_REF(rmsnorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *x, const ech_tensor *gain, const ech_tensor *rstd,
                               const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                               const ech_tensor *dgain)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(rmsnorm_backward, ECH_REAL, dy, x, gain, rstd, add, dx, dgain);
    double *sum = ech_scratch(context, (size_t)C * sizeof *sum);
    real *out = dgain->data;
    for (int64_t c = 0; c < C; c++) sum[c] = accumulate ? out[c] : 0.0;
    for (int64_t r = 0; r < R; r++)
        rmsnorm_row(C, (const real *)dy->data + r * C, (const real *)x->data + r * C, gain->data,
                    ((const real *)rstd->data)[r], add ? (const real *)add->data + r * C : NULL,
                    (real *)dx->data + r * C, sum);
    for (int64_t c = 0; c < C; c++) out[c] = (real)sum[c];
}

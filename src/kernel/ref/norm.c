/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm; and RMSNorm, whose mean, bias and dbias are NULL here.
 */
#include <math.h>

#include "kernel/ref/real.h"

static void forward(const ech_tensor *x, const ech_tensor *gain, const ech_tensor *bias, double eps,
                    const ech_tensor *y, const ech_tensor *mean, const ech_tensor *rstd)
{
    int64_t R = x->shape[0], C = x->shape[1];
    const real *g = gain->data, *b = bias ? bias->data : NULL;
    for (int64_t r = 0; r < R; r++) {
        const real *row = (const real *)x->data + r * C;
        real *out = (real *)y->data + r * C;
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < C; c++) sum += row[c];
        double m = mean ? sum / (double)C : 0;
        for (int64_t c = 0; c < C; c++) squares += (row[c] - m) * (row[c] - m);
        double s = 1 / sqrt(squares / (double)C + eps);
        for (int64_t c = 0; c < C; c++) {
            double scaled = (row[c] - m) * s * g[c];
            out[c] = (real)(b ? scaled + b[c] : scaled);
        }
        if (mean) ((real *)mean->data)[r] = (real)m;
        ((real *)rstd->data)[r] = (real)s;
    }
}

void ECH_REF(layernorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *gain, const ech_tensor *bias, double eps,
                                const ech_tensor *y, const ech_tensor *mean, const ech_tensor *rstd)
{
    ECH_SHAPES(layernorm_forward, ECH_REAL, x, gain, bias, y, mean, rstd);
    forward(x, gain, bias, eps, y, mean, rstd);
}

void ECH_REF(rmsnorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                              const ech_tensor *gain, double eps, const ech_tensor *y,
                              const ech_tensor *rstd)
{
    ECH_SHAPES(rmsnorm_forward, ECH_REAL, x, gain, y, rstd);
    forward(x, gain, NULL, eps, y, NULL, rstd);
}

/* With n = (x - mean) rstd and e = dy gain: dx = rstd (e - mean(e) - n mean(e n)); without mean(e) of RMSNorm. */
static void backward_row(int64_t C, const real *dy, const real *x, const real *gain,
                         const real *mean, double rstd, const real *add, real *dx, double *dgain,
                         double *dbias)
{
    double m = mean ? *mean : 0, e_sum = 0, en_sum = 0;
    for (int64_t c = 0; c < C; c++) {
        double n = (x[c] - m) * rstd, e = (double)dy[c] * gain[c];
        if (mean) e_sum += e;
        en_sum += e * n;
        dgain[c] += dy[c] * n;
        if (dbias) dbias[c] += dy[c];
    }
    for (int64_t c = 0; c < C; c++) {
        double n = (x[c] - m) * rstd, e = (double)dy[c] * gain[c];
        double d = rstd * (e - e_sum / (double)C - n * en_sum / (double)C);
        dx[c] = (real)(d + (add ? add[c] : 0.0));
    }
}

static void backward(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                     const ech_tensor *gain, const ech_tensor *mean, const ech_tensor *rstd,
                     const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                     const ech_tensor *dgain, const ech_tensor *dbias)
{
    int64_t R = x->shape[0], C = x->shape[1], sums = dbias ? 2 * C : C;
    double *sum = ech_scratch(context, (size_t)sums * sizeof *sum);
    real *gain_out = dgain->data, *bias_out = dbias ? dbias->data : NULL;
    for (int64_t i = 0; i < sums; i++)
        sum[i] = accumulate ? (i < C ? gain_out[i] : bias_out[i - C]) : 0.0;
    for (int64_t r = 0; r < R; r++)
        backward_row(C, (const real *)dy->data + r * C, (const real *)x->data + r * C, gain->data,
                     mean ? (const real *)mean->data + r : NULL, ((const real *)rstd->data)[r],
                     add ? (const real *)add->data + r * C : NULL, (real *)dx->data + r * C, sum,
                     dbias ? sum + C : NULL);
    for (int64_t c = 0; c < C; c++) gain_out[c] = (real)sum[c];
    for (int64_t c = 0; dbias && c < C; c++) bias_out[c] = (real)sum[C + c];
}

void ECH_REF(layernorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *x, const ech_tensor *gain,
                                 const ech_tensor *mean, const ech_tensor *rstd,
                                 const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                                 const ech_tensor *dgain, const ech_tensor *dbias)
{
    ECH_SHAPES(layernorm_backward, ECH_REAL, dy, x, gain, mean, rstd, add, dx, dgain, dbias);
    backward(context, dy, x, gain, mean, rstd, add, dx, accumulate, dgain, dbias);
}

void ECH_REF(rmsnorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *x, const ech_tensor *gain, const ech_tensor *rstd,
                               const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                               const ech_tensor *dgain)
{
    ECH_SHAPES(rmsnorm_backward, ECH_REAL, dy, x, gain, rstd, add, dx, dgain);
    backward(context, dy, x, gain, NULL, rstd, add, dx, accumulate, dgain, NULL);
}

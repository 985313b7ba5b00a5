/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm; and RMSNorm, whose mean, bias and dbias are NULL here. squares and dsquares are NULL
 * for whole rows.
 */
#include <math.h>

#include "kernel/ref/real.h"

static void forward(const ech_tensor *x, const ech_tensor *known, const ech_tensor *gain,
                    double offset, const ech_tensor *bias, double eps, const ech_tensor *y,
                    const ech_tensor *mean, const ech_tensor *rstd)
{
    int64_t R = x->shape[0], C = x->shape[1];
    for (int64_t r = 0; r < R; r++) {
        int64_t row = r * C;
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < C; c++) sum += ech_value(x, row + c);
        double m = mean ? sum / (double)C : 0;
        for (int64_t c = 0; c < C; c++) {
            double d = ech_value(x, row + c) - m;
            squares += d * d;
        }
        double s = 1 / sqrt((known ? ech_value(known, r) : squares / (double)C) + eps);
        for (int64_t c = 0; c < C; c++) {
            double scaled = (ech_value(x, row + c) - m) * s * (ech_value(gain, c) + offset);
            ech_store(y, row + c, bias ? scaled + ech_value(bias, c) : scaled);
        }
        if (mean) ech_store(mean, r, m);
        ech_store(rstd, r, s);
    }
}

void ECH_REF(layernorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *gain, const ech_tensor *bias, double eps,
                                const ech_tensor *y, const ech_tensor *mean, const ech_tensor *rstd)
{
    ECH_SHAPES(layernorm_forward, ECH_REAL, x, gain, bias, y, mean, rstd);
    forward(x, NULL, gain, 0, bias, eps, y, mean, rstd);
}

void ECH_REF(rmsnorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                              const ech_tensor *squares, const ech_tensor *gain, double offset,
                              double eps, const ech_tensor *y, const ech_tensor *rstd)
{
    ECH_SHAPES(rmsnorm_forward, ECH_REAL, x, squares, gain, y, rstd);
    forward(x, squares, gain, offset, NULL, eps, y, NULL, rstd);
}

/* Operands of both backwards; mean, add and dsquares may be NULL. */
typedef struct norm {
    const ech_tensor *dy, *x, *gain, *mean, *rstd, *add, *dx, *dsquares;
    double offset;
} norm;

/* With n = (x - mean) rstd and e = dy gain: dx = rstd (e - mean(e) - n mean(e n)); without mean(e)
 * for RMSNorm. If rows are parts, dx = rstd e is without means, and dsquares =
 * - rstd^2 / 2 sum of e n. */
static void backward_row(const norm *at, int64_t r, double *dgain, double *dbias)
{
    int64_t C = at->x->shape[1], row = r * C;
    double m = at->mean ? ech_value(at->mean, r) : 0, rstd = ech_value(at->rstd, r);
    double e_sum = 0, en_sum = 0;
    for (int64_t c = 0; c < C; c++) {
        double dy = ech_value(at->dy, row + c), n = (ech_value(at->x, row + c) - m) * rstd;
        double e = dy * (ech_value(at->gain, c) + at->offset);
        if (at->mean) e_sum += e;
        en_sum += e * n;
        dgain[c] += dy * n;
        if (dbias) dbias[c] += dy;
    }
    if (at->dsquares) {
        ech_store(at->dsquares, r, -0.5 * rstd * rstd * en_sum);
        en_sum = 0;
    }
    for (int64_t c = 0; c < C; c++) {
        double n = (ech_value(at->x, row + c) - m) * rstd;
        double e = ech_value(at->dy, row + c) * (ech_value(at->gain, c) + at->offset);
        double d = rstd * (e - e_sum / (double)C - n * en_sum / (double)C);
        ech_store(at->dx, row + c, d + (at->add ? ech_value(at->add, row + c) : 0.0));
    }
}

static void backward(ech_kernel_context *context, norm at, bool accumulate, const ech_tensor *dgain,
                     const ech_tensor *dbias)
{
    int64_t R = at.x->shape[0], C = at.x->shape[1], sums = at.mean ? 2 * C : C;
    double *sum = ech_scratch(context, (size_t)sums * sizeof *sum);
    for (int64_t i = 0; i < sums; i++) {
        const ech_tensor *to = i < C ? dgain : dbias;
        sum[i] = accumulate && to ? ech_value(to, i % C) : 0.0;
    }
    for (int64_t r = 0; r < R; r++) backward_row(&at, r, sum, dbias ? sum + C : NULL);
    for (int64_t c = 0; dgain && c < C; c++) ech_store(dgain, c, sum[c]);
    for (int64_t c = 0; dbias && c < C; c++) ech_store(dbias, c, sum[C + c]);
}

void ECH_REF(layernorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *x, const ech_tensor *gain,
                                 const ech_tensor *mean, const ech_tensor *rstd,
                                 const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                                 const ech_tensor *dgain, const ech_tensor *dbias)
{
    ECH_SHAPES(layernorm_backward, ECH_REAL, dy, x, gain, mean, rstd, add, dx, dgain, dbias);
    backward(context, (norm){dy, x, gain, mean, rstd, add, dx, NULL, 0}, accumulate, dgain, dbias);
}

void ECH_REF(rmsnorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *x, const ech_tensor *gain, double offset,
                               const ech_tensor *rstd, const ech_tensor *add, const ech_tensor *dx,
                               const ech_tensor *dsquares, bool accumulate, const ech_tensor *dgain)
{
    ECH_SHAPES(rmsnorm_backward, ECH_REAL, dy, x, gain, rstd, add, dx, dsquares, dgain);
    backward(context, (norm){dy, x, gain, NULL, rstd, add, dx, dsquares, offset}, accumulate, dgain,
             NULL);
}

void ECH_REF(squares_forward)(ech_kernel_context *context, const ech_tensor *x, double share,
                              const ech_tensor *y)
{
    ECH_SHAPES(squares_forward, ECH_REAL, x, y);
    int64_t C = x->shape[1];
    for (int64_t r = 0; r < x->shape[0]; r++) {
        double sum = 0;
        for (int64_t c = 0; c < C; c++) sum += ech_value(x, r * C + c) * ech_value(x, r * C + c);
        ech_store(y, r, share * sum);
    }
}

void ECH_REF(squares_backward)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *x, double share, const ech_tensor *add,
                               const ech_tensor *dx)
{
    ECH_SHAPES(squares_backward, ECH_REAL, dy, x, add, dx);
    int64_t C = x->shape[1];
    for (int64_t i = 0; i < ech_tensor_count(x); i++) {
        double d = 2 * share * ech_value(dy, i / C) * ech_value(x, i);
        ech_store(dx, i, d + (add ? ech_value(add, i) : 0.0));
    }
}

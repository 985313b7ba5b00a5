/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm over groups of samples.
 */
#include <math.h>

#include "kernel/ref/real.h"

/* Rows of each sample. */
static int64_t rows_of(const ech_tensor *x, const ech_tensor *mean)
{
    int64_t R = x->shape[0], S = mean->shape[0];
    ECH_ASSERT(S > 0 && R > 0 && R % S == 0);
    return R / S;
}

void ECH_REF(batch_norm_statistics)(ech_kernel_context *context, const ech_tensor *x,
                                    int64_t samples, const ech_tensor *mean,
                                    const ech_tensor *variance)
{
    int64_t C = x->shape[1], S = mean->shape[0];
    ECH_SHAPES(batch_norm_statistics, ECH_REAL, x, mean, variance);
    ECH_ASSERT(samples > 0 && S % samples == 0);
    int64_t n = rows_of(x, mean) * samples;
    for (int64_t i = 0; i < S / samples * C; i++) {
        int64_t first = i / C * n * C + i % C, to = i / C * samples * C + i % C;
        double sum = 0, squares = 0;
        for (int64_t r = 0; r < n; r++) sum += ech_value(x, first + r * C);
        double m = sum / (double)n;
        for (int64_t r = 0; r < n; r++) {
            double d = ech_value(x, first + r * C) - m;
            squares += d * d;
        }
        for (int64_t s = 0; s < samples; s++) {
            ech_store(mean, to + s * C, m);
            ech_store(variance, to + s * C, squares / (double)n);
        }
    }
}

static double rstd_of(const ech_tensor *variance, int64_t i, double eps)
{
    return 1 / sqrt(ech_value(variance, i) + eps);
}

void ECH_REF(batch_norm_forward)(ech_kernel_context *context, const ech_tensor *x,
                                 const ech_tensor *mean, const ech_tensor *variance,
                                 const ech_tensor *gain, const ech_tensor *bias, double eps,
                                 const ech_tensor *y)
{
    int64_t C = x->shape[1];
    ECH_SHAPES(batch_norm_forward, ECH_REAL, x, mean, variance, gain, bias, y);
    int64_t n = rows_of(x, mean);
    for (int64_t i = 0; i < ech_tensor_count(x); i++) {
        int64_t c = i % C, s = i / C / n * C + c;
        double scaled = (ech_value(x, i) - ech_value(mean, s)) * rstd_of(variance, s, eps);
        ech_store(y, i, scaled * ech_value(gain, c) + ech_value(bias, c));
    }
}

/* With z = (x - mean) rstd: dx = gain rstd (dy - mean(dy) - z mean(dy z)), with means over the
 * group; dgain = sum of dy z, dbias = sum of dy. */
void ECH_REF(batch_norm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                  const ech_tensor *x, int64_t samples, const ech_tensor *mean,
                                  const ech_tensor *variance, const ech_tensor *gain, double eps,
                                  const ech_tensor *dx, bool accumulate, const ech_tensor *dgain,
                                  const ech_tensor *dbias)
{
    int64_t C = x->shape[1];
    ECH_SHAPES(batch_norm_backward, ECH_REAL, dy, x, mean, variance, gain, dx, dgain, dbias);
    ECH_ASSERT(samples > 0 && mean->shape[0] % samples == 0);
    int64_t n = rows_of(x, mean) * samples;
    for (int64_t c = 0; c < C; c++) {
        double all = accumulate && dbias ? ech_value(dbias, c) : 0;
        double all_z = accumulate && dgain ? ech_value(dgain, c) : 0;
        for (int64_t s = 0; s < mean->shape[0]; s += samples) {
            int64_t first = s / samples * n * C + c;
            double m = ech_value(mean, s * C + c), rstd = rstd_of(variance, s * C + c, eps);
            double sum = 0, sum_z = 0;
            for (int64_t i = first; i < first + n * C; i += C) {
                sum += ech_value(dy, i);
                sum_z += ech_value(dy, i) * (ech_value(x, i) - m) * rstd;
            }
            for (int64_t i = first; i < first + n * C; i += C) {
                double z = (ech_value(x, i) - m) * rstd;
                double d = ech_value(dy, i) - sum / (double)n - z * sum_z / (double)n;
                ech_store(dx, i, ech_value(gain, c) * rstd * d);
            }
            all += sum;
            all_z += sum_z;
        }
        if (dbias) ech_store(dbias, c, all);
        if (dgain) ech_store(dgain, c, all_z);
    }
}

void ECH_REF(batch_norm_merge)(ech_kernel_context *context, const ech_tensor *moments,
                               const ech_tensor *mean, const ech_tensor *variance)
{
    int64_t D = moments->shape[0] / 2, C = moments->shape[1], S = mean->shape[0];
    ECH_SHAPES(batch_norm_merge, ECH_REAL, moments, mean, variance);
    ECH_ASSERT(D > 0 && moments->shape[0] == 2 * D);
    for (int64_t c = 0; c < C; c++) {
        double m = 0, v = 0;
        for (int64_t d = 0; d < D; d++) m += ech_value(moments, 2 * d * C + c);
        m /= (double)D;
        for (int64_t d = 0; d < D; d++) {
            double off = ech_value(moments, 2 * d * C + c) - m;
            v += ech_value(moments, (2 * d + 1) * C + c) + off * off;
        }
        for (int64_t s = 0; s < S; s++) {
            ech_store(mean, s * C + c, m);
            ech_store(variance, s * C + c, v / (double)D);
        }
    }
}

static void store_sum(const ech_tensor *to, int64_t at, bool accumulate, double sum)
{
    if (to) ech_store(to, at, (accumulate ? ech_value(to, at) : 0) + sum);
}

void ECH_REF(batch_norm_sums)(ech_kernel_context *context, const ech_tensor *dy,
                              const ech_tensor *x, const ech_tensor *mean,
                              const ech_tensor *variance, double eps, const ech_tensor *sums,
                              bool accumulate, const ech_tensor *dgain, const ech_tensor *dbias)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(batch_norm_sums, ECH_REAL, dy, x, mean, variance, sums, dgain, dbias);
    ECH_ASSERT(sums->shape[0] == 2);
    for (int64_t c = 0; c < C; c++) {
        double m = ech_value(mean, c), rstd = rstd_of(variance, c, eps), sum = 0, sum_z = 0;
        for (int64_t i = c; i < R * C; i += C) {
            sum += ech_value(dy, i);
            sum_z += ech_value(dy, i) * (ech_value(x, i) - m) * rstd;
        }
        ech_store(sums, c, sum);
        ech_store(sums, C + c, sum_z);
        store_sum(dbias, c, accumulate, sum);
        store_sum(dgain, c, accumulate, sum_z);
    }
}

void ECH_REF(batch_norm_input)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *x, const ech_tensor *mean,
                               const ech_tensor *variance, const ech_tensor *gain,
                               const ech_tensor *sums, int64_t rows, double eps,
                               const ech_tensor *dx)
{
    int64_t C = x->shape[1];
    double n = (double)rows;
    ECH_SHAPES(batch_norm_input, ECH_REAL, dy, x, mean, variance, gain, sums, dx);
    ECH_ASSERT(sums->shape[0] == 2 && rows >= x->shape[0]);
    for (int64_t i = 0; i < ech_tensor_count(x); i++) {
        int64_t c = i % C;
        double rstd = rstd_of(variance, c, eps), z = (ech_value(x, i) - ech_value(mean, c)) * rstd;
        double d = ech_value(dy, i) - ech_value(sums, c) / n - z * ech_value(sums, C + c) / n;
        ech_store(dx, i, ech_value(gain, c) * rstd * d);
    }
}

void ECH_REF(batch_norm_partial)(ech_kernel_context *context, const ech_tensor *x, double factor,
                                 bool accumulate, const ech_tensor *partial)
{
    int64_t S = x->shape[0], C = x->shape[1];
    double *sum = partial->data;
    ECH_SHAPES(batch_norm_partial, ECH_REAL, x, partial);
    for (int64_t c = 0; c < C; c++) {
        double all = 0;
        for (int64_t s = 0; s < S; s++) all += ech_value(x, s * C + c);
        sum[c] = (accumulate ? sum[c] : 0) + factor * all;
    }
}

void ECH_REF(batch_norm_commit)(ech_kernel_context *context, const ech_tensor *sum, double rate,
                                const ech_update *update, const ech_tensor *state)
{
    ECH_SHAPES(batch_norm_commit, ECH_REAL, sum, state);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    for (int64_t c = 0; c < sum->shape[0]; c++)
        ech_store(state, c,
                  (1 - rate) * ech_value(state, c) + rate * ((const double *)sum->data)[c]);
}

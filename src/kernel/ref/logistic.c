/* SPDX-License-Identifier: Apache-2.0
 *
 * Logistic regression: logits of samples of weighted features, and the loss.
 */
#include <math.h>

#include "kernel/ref/real.h"

void ECH_REF(sparse_logits)(ech_kernel_context *context, const ech_tensor *x,
                            const ech_tensor *values, const ech_tensor *bias, const ech_tensor *z)
{
    int64_t R = x->shape[0], K = x->shape[1];
    ECH_SHAPES(sparse_logits, ECH_REAL, x, values, bias, z);
    for (int64_t r = 0; r < R; r++) {
        double sum = ech_value(bias, 0);
        for (int64_t i = r * K; i < (r + 1) * K; i++)
            sum += ech_value(x, i) * (double)((const float *)values->data)[i];
        ech_store(z, r, sum);
    }
}

void ECH_REF(sparse_logits_backward)(ech_kernel_context *context, const ech_tensor *dz,
                                     const ech_tensor *values, bool accumulate,
                                     const ech_tensor *dx, const ech_tensor *dbias)
{
    int64_t R = dx->shape[0], K = dx->shape[1];
    double sum = accumulate && dbias ? ech_value(dbias, 0) : 0;
    ECH_SHAPES(sparse_logits_backward, ECH_REAL, dz, values, dx, dbias);
    for (int64_t r = 0; r < R; r++) {
        for (int64_t i = r * K; i < (r + 1) * K; i++)
            ech_store(dx, i, ech_value(dz, r) * (double)((const float *)values->data)[i]);
        sum += ech_value(dz, r);
    }
    if (dbias) ech_store(dbias, 0, sum);
}

/* log(1 + exp(x)), accurate for large x. */
static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

void ECH_REF(logistic_loss)(ech_kernel_context *context, const ech_tensor *z,
                            const ech_tensor *targets, const ech_tensor *weights,
                            const ech_tensor *sums)
{
    int64_t R = targets->shape[0], K = targets->shape[1];
    double *total = sums->data;
    ECH_SHAPES(logistic_loss, ECH_REAL, z, targets, weights, sums);
    for (int64_t i = 0; i < R * K; i++) {
        double weight = (double)((const float *)weights->data)[i], logit = ech_value(z, i / K);
        if (weight == 0) continue;
        total[ECH_LOSS_SUM] +=
            weight * softplus(((const int32_t *)targets->data)[i] ? -logit : logit);
        total[ECH_LOSS_WEIGHT] += weight;
    }
}

void ECH_REF(logistic_loss_backward)(ech_kernel_context *context, const ech_tensor *z,
                                     const ech_tensor *targets, const ech_tensor *weights,
                                     const ech_tensor *scale, const ech_tensor *dz)
{
    int64_t R = targets->shape[0], K = targets->shape[1];
    ECH_SHAPES(logistic_loss_backward, ECH_REAL, z, targets, weights, dz);
    ECH_ASSERT(scale->dtype == ECH_F64 && ech_tensor_count(scale) == 1);
    for (int64_t r = 0; r < R; r++) {
        double logit = ech_value(z, r), slope = 0;
        for (int64_t i = r * K; i < (r + 1) * K; i++) {
            double weight = (double)((const float *)weights->data)[i];
            double sign = ((const int32_t *)targets->data)[i] ? -1 : 1;
            if (weight != 0) slope += weight * sign / (1 + exp(-sign * logit));
        }
        ech_store(dz, r, slope * *(const double *)scale->data);
    }
}

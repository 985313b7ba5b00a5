/* SPDX-License-Identifier: Apache-2.0
 *
 * The cross-entropy of rows of logits, whole or of a vocabulary shard: statistics of each row; and
 * the loss and its gradient from the statistics of whole rows.
 */
#include <math.h>

#include "kernel/ref/real.h"

/* NaN is no largest value. With fmax, gcc 12 for 64-bit Arm stops with an internal error. */
static double largest(const ech_tensor *x, int64_t first, int64_t n)
{
    double most = -INFINITY;
    for (int64_t i = first; i < first + n; i++)
        if (ech_value(x, i) > most) most = ech_value(x, i);
    return most;
}

void ECH_REF(loss_statistics)(ech_kernel_context *context, const ech_tensor *logits,
                              const ech_tensor *targets, int64_t first_id, const ech_tensor *stats)
{
    int64_t R = logits->shape[0], n = logits->shape[1];
    ECH_SHAPES(loss_statistics, ECH_REAL, logits, targets, stats);
    for (int64_t r = 0; r < R; r++) {
        int64_t row = r * logits->stride[0];
        int64_t target = ((const int32_t *)targets->data)[r] - first_id;
        double *out = (double *)stats->data + r * ECH_LOSS_STATS, sum = 0;
        double max = largest(logits, row, n);
        for (int64_t v = 0; v < n; v++) sum += exp(ech_value(logits, row + v) - max);
        out[ECH_STAT_MAX] = max;
        out[ECH_STAT_SUM] = sum;
        out[ECH_STAT_TARGET] = target >= 0 && target < n ? ech_value(logits, row + target) : 0;
    }
}

void ECH_REF(loss_gradient)(ech_kernel_context *context, const ech_tensor *logits,
                            const ech_tensor *targets, const ech_tensor *weights, int64_t first_id,
                            const ech_tensor *stats, const ech_tensor *scale, double of_logits,
                            double cap, const ech_tensor *gradient, const ech_tensor *sums)
{
    int64_t R = logits->shape[0], n = logits->shape[1];
    ECH_SHAPES(loss_gradient, ECH_REAL, logits, targets, weights, stats, gradient, sums);
    ECH_ASSERT(!gradient || (scale->dtype == ECH_F64 && ech_tensor_count(scale) == 1));
    double *total = sums->data;
    for (int64_t r = 0; r < R; r++) {
        int64_t row = r * logits->stride[0], out = gradient ? r * gradient->stride[0] : 0;
        const double *known = (const double *)stats->data + r * ECH_LOSS_STATS;
        double weight = ((const float *)weights->data)[r];
        if (weight == 0) {
            for (int64_t v = 0; gradient && v < n; v++) ech_store(gradient, out + v, 0);
            continue;
        }
        int64_t target = ((const int32_t *)targets->data)[r];
        ECH_ASSERT(target >= 0);
        double lse = known[ECH_STAT_MAX] + log(known[ECH_STAT_SUM]);
        double factor = gradient ? weight * *(const double *)scale->data * of_logits : 0;
        for (int64_t v = 0; gradient && v < n; v++) {
            double z = ech_value(logits, row + v), slope = cap > 0 ? 1 - z / cap * (z / cap) : 1;
            ech_store(gradient, out + v,
                      (exp(z - lse) - (first_id + v == target)) * factor * slope);
        }
        total[ECH_LOSS_SUM] += weight * (lse - known[ECH_STAT_TARGET]);
        total[ECH_LOSS_WEIGHT] += weight;
    }
}

void ECH_REF(smooth_statistics)(ech_kernel_context *context, const ech_tensor *logits, double share,
                                const ech_tensor *stats)
{
    int64_t R = logits->shape[0], n = logits->shape[1];
    ECH_SHAPES(smooth_statistics, ECH_REAL, logits, stats);
    for (int64_t r = 0; r < R; r++) {
        double *known = (double *)stats->data + r * ECH_LOSS_STATS, sum = 0;
        for (int64_t v = 0; v < n; v++) sum += ech_value(logits, r * logits->stride[0] + v);
        known[ECH_STAT_TARGET] = (1 - share) * known[ECH_STAT_TARGET] + share * sum / (double)n;
    }
}

void ECH_REF(smooth_gradient)(ech_kernel_context *context, const ech_tensor *targets,
                              const ech_tensor *weights, const ech_tensor *scale, double share,
                              const ech_tensor *gradient)
{
    int64_t R = gradient->shape[0], n = gradient->shape[1];
    ECH_SHAPES(smooth_gradient, ECH_REAL, targets, weights, gradient);
    ECH_ASSERT(scale->dtype == ECH_F64 && ech_tensor_count(scale) == 1);
    for (int64_t r = 0; r < R; r++) {
        double weight = ((const float *)weights->data)[r];
        int64_t row = r * gradient->stride[0], target = ((const int32_t *)targets->data)[r];
        double factor = share * weight * *(const double *)scale->data;
        for (int64_t v = 0; weight != 0 && v < n; v++) {
            double more = (v == target) - 1 / (double)n;
            ech_store(gradient, row + v, ech_value(gradient, row + v) + more * factor);
        }
    }
}

/* Number of logits of a row that come before the target's; n: it is NaN. */
static int64_t rank_of(const ech_tensor *logits, int64_t row, int64_t n, int64_t target)
{
    double own = ech_value(logits, row + target);
    int64_t before = 0;
    if (isnan(own)) return n;
    for (int64_t v = 0; v < n; v++) {
        double other = ech_value(logits, row + v);
        before += other > own || (other == own && v < target);
    }
    return before;
}

void ECH_REF(class_hits)(ech_kernel_context *context, const ech_tensor *logits,
                         const ech_tensor *targets, const ech_tensor *weights,
                         const ech_tensor *sums)
{
    int64_t R = logits->shape[0], n = logits->shape[1];
    ECH_SHAPES(class_hits, ECH_REAL, logits, targets, weights, sums);
    double *total = sums->data;
    for (int64_t r = 0; r < R; r++) {
        double weight = ((const float *)weights->data)[r];
        int64_t target = ((const int32_t *)targets->data)[r];
        if (weight == 0) continue;
        ECH_ASSERT(target >= 0 && target < n);
        int64_t rank = rank_of(logits, r * logits->stride[0], n, target);
        total[ECH_HITS_OF_1] += rank < 1 && rank < n ? weight : 0;
        total[ECH_HITS_OF_5] += rank < 5 && rank < n ? weight : 0;
    }
}

/* A shard without columns has sum 0 and adds nothing. */
static void combine_row(const double *part, int N, int64_t stride, double *out)
{
    double max = -INFINITY, sum = 0, target = 0;
    for (int i = 0; i < N; i++) {
        double largest = part[i * stride + ECH_STAT_MAX];
        max = largest > max || isnan(largest) ? largest : max;
    }
    for (int i = 0; i < N; i++) {
        const double *known = part + i * stride;
        if (known[ECH_STAT_SUM] == 0) continue;
        sum += known[ECH_STAT_SUM] * exp(known[ECH_STAT_MAX] - max);
        target += known[ECH_STAT_TARGET];
    }
    out[ECH_STAT_MAX] = max;
    out[ECH_STAT_SUM] = sum;
    out[ECH_STAT_TARGET] = target;
}

void ECH_REF(loss_combine)(ech_kernel_context *context, const ech_tensor *parts,
                           const ech_tensor *stats)
{
    int64_t R = parts->shape[1];
    ECH_SHAPES(loss_combine, ECH_REAL, parts, stats);
    for (int64_t r = 0; r < R; r++)
        combine_row((const double *)parts->data + r * ECH_LOSS_STATS, (int)parts->shape[0],
                    R * ECH_LOSS_STATS, (double *)stats->data + r * ECH_LOSS_STATS);
}

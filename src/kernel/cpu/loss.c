/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of rows of logits, with or without label smoothing, and its gradient in place. The
 * statistics read a row twice, for the maximum and for the exponentials; the second time it is in
 * the cache.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/part.h"
#include "kernel/shape.h"

/* V logits from element `row` on. */
static float row_max(int64_t V, const ech_tensor *logits, int64_t row)
{
    ECH_ALIGNED float part[ECH_PART];
    float max = -INFINITY;
    for (int64_t first = 0; first < V; first += ECH_PART) {
        int64_t n = ech_part(V, first, ECH_PART);
        const float *x = ech_part_of(logits, row + first, n, part);
#pragma omp simd reduction(max : max)
        for (int64_t v = 0; v < n; v++) max = x[v] > max ? x[v] : max;
    }
    return max;
}

/* The sum of a part is fp32, the sum over parts fp64. */
static double exp_sum(int64_t V, const ech_tensor *logits, int64_t row, float max)
{
    double total = 0;
    ECH_ALIGNED float part[ECH_PART];
    for (int64_t first = 0; first < V; first += ECH_PART) {
        int64_t n = ech_part(V, first, ECH_PART);
        const float *x = ech_part_of(logits, row + first, n, part);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t v = 0; v < n; v++) sum += ech_exp(x[v] - max);
        total += (double)sum;
    }
    return total;
}

/* gradient (V elements from `out` on) = exp(logit - max) factor; if bounded, this is multiplied by
 * 1 - (logit / cap)^2. */
ECH_INLINE void scaled_exp(int64_t V, const ech_tensor *logits, int64_t row, float max,
                           float factor, float cap, bool bounded, const ech_tensor *gradient,
                           int64_t out)
{
    ECH_ALIGNED float part[2][ECH_PART];
    for (int64_t first = 0; first < V; first += ECH_PART) {
        int64_t n = ech_part(V, first, ECH_PART);
        const float *x = ech_part_of(logits, row + first, n, part[0]);
        float *y = ech_part_to(gradient, out + first, part[1]);
#pragma omp simd
        for (int64_t v = 0; v < n; v++) {
            float share = x[v] / cap, p = ech_exp(x[v] - max) * factor;
            y[v] = bounded ? p * (1.0F - share * share) : p;
        }
        ech_part_done(gradient, out + first, n, y);
    }
}

void ECH_CPU(loss_statistics)(ech_kernel_context *context, const ech_tensor *logits,
                              const ech_tensor *targets, int64_t first_id, const ech_tensor *stats)
{
    int64_t R = logits->shape[0], n = logits->shape[1];
    ECH_SHAPES(loss_statistics, ECH_REAL, logits, targets, stats);
#pragma omp parallel for num_threads(context->threads) if (R * n > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        int64_t row = r * logits->stride[0];
        int64_t target = ((const int32_t *)targets->data)[r] - first_id;
        double *out = (double *)stats->data + r * ECH_LOSS_STATS;
        float max = row_max(n, logits, row);
        out[ECH_STAT_MAX] = (double)max;
        out[ECH_STAT_SUM] = exp_sum(n, logits, row, max);
        bool mine = target >= 0 && target < n;
        out[ECH_STAT_TARGET] = mine ? (double)ech_number(logits, row + target) : 0;
    }
}

/* (softmax - onehot) factor of n logits from element `row` on, multiplied by the slope of a
 * cap. The target's is computed in fp64, so that no digits cancel near 1 - 1. */
static void row_gradient(int64_t n, const ech_tensor *logits, int64_t row, int64_t target,
                         const double *known, double factor, double cap, const ech_tensor *gradient,
                         int64_t out)
{
    float max = (float)known[ECH_STAT_MAX];
    double sum = known[ECH_STAT_SUM], probability = 0;
    bool mine = target >= 0 && target < n;
    double z = mine ? (double)ech_number(logits, row + target) : 0;
    double slope = cap > 0 ? 1 - z / cap * (z / cap) : 1;
    if (mine) probability = (double)ech_exp((float)z - max) / sum;
    if (cap > 0)
        scaled_exp(n, logits, row, max, (float)(factor / sum), (float)cap, true, gradient, out);
    else
        scaled_exp(n, logits, row, max, (float)(factor / sum), 1, false, gradient, out);
    if (mine) ech_set_number(gradient, out + target, (float)((probability - 1) * factor * slope));
}

void ECH_CPU(loss_gradient)(ech_kernel_context *context, const ech_tensor *logits,
                            const ech_tensor *targets, const ech_tensor *weights, int64_t first_id,
                            const ech_tensor *stats, const ech_tensor *scale, double factor,
                            double cap, const ech_tensor *gradient, const ech_tensor *sums)
{
    int64_t R = logits->shape[0], n = logits->shape[1];
    ECH_SHAPES(loss_gradient, ECH_REAL, logits, targets, weights, stats, gradient, sums);
    ECH_ASSERT(!gradient || (scale->dtype == ECH_F64 && ech_tensor_count(scale) == 1));
    double global = gradient ? *(const double *)scale->data * factor : 0, *total = sums->data;
    const double *known = stats->data;
    const float *weight = weights->data;
    const int32_t *target = targets->data;
#pragma omp parallel for num_threads(context->threads) if (R * n > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        if (!gradient) continue;
        int64_t out = r * gradient->stride[0];
        if (weight[r] == 0.0F)
            memset(ech_either_at(gradient, out), 0, (size_t)n * ech_dtype_bytes(gradient->dtype));
        else
            row_gradient(n, logits, r * logits->stride[0], target[r] - first_id,
                         known + r * ECH_LOSS_STATS, (double)weight[r] * global, cap, gradient,
                         out);
    }
    for (int64_t r = 0; r < R; r++) {
        const double *row = known + r * ECH_LOSS_STATS;
        if (weight[r] == 0.0F) continue;
        ECH_ASSERT(target[r] >= 0);
        double loss = row[ECH_STAT_MAX] + log(row[ECH_STAT_SUM]) - row[ECH_STAT_TARGET];
        total[ECH_LOSS_SUM] += (double)weight[r] * loss;
        total[ECH_LOSS_WEIGHT] += (double)weight[r];
    }
}

/* ---- label smoothing ---- */

/* The sum of V logits from element `row` on: fp32 in a part, fp64 over parts. */
static double row_sum(int64_t V, const ech_tensor *logits, int64_t row)
{
    double total = 0;
    ECH_ALIGNED float part[ECH_PART];
    for (int64_t first = 0; first < V; first += ECH_PART) {
        int64_t n = ech_part(V, first, ECH_PART);
        const float *x = ech_part_of(logits, row + first, n, part);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t v = 0; v < n; v++) sum += x[v];
        total += (double)sum;
    }
    return total;
}

void ECH_CPU(smooth_statistics)(ech_kernel_context *context, const ech_tensor *logits, double share,
                                const ech_tensor *stats)
{
    int64_t R = logits->shape[0], n = logits->shape[1];
    ECH_SHAPES(smooth_statistics, ECH_REAL, logits, stats);
#pragma omp parallel for num_threads(context->threads) if (R * n > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        double *target = (double *)stats->data + r * ECH_LOSS_STATS + ECH_STAT_TARGET;
        double mean = row_sum(n, logits, r * logits->stride[0]) / (double)n;
        *target = (1 - share) * *target + share * mean;
    }
}

/* Adds `more` to V numbers from element `row` on. */
static void add_everywhere(int64_t V, const ech_tensor *gradient, int64_t row, float more)
{
    ECH_ALIGNED float part[ECH_PART];
    for (int64_t first = 0; first < V; first += ECH_PART) {
        int64_t n = ech_part(V, first, ECH_PART);
        const float *x = ech_part_of(gradient, row + first, n, part);
        float *y = ech_part_to(gradient, row + first, part);
#pragma omp simd
        for (int64_t v = 0; v < n; v++) y[v] = x[v] + more;
        ech_part_done(gradient, row + first, n, y);
    }
}

void ECH_CPU(smooth_gradient)(ech_kernel_context *context, const ech_tensor *targets,
                              const ech_tensor *weights, const ech_tensor *scale, double share,
                              const ech_tensor *gradient)
{
    int64_t R = gradient->shape[0], n = gradient->shape[1];
    ECH_SHAPES(smooth_gradient, ECH_REAL, targets, weights, gradient);
    ECH_ASSERT(scale->dtype == ECH_F64 && ech_tensor_count(scale) == 1);
    const int32_t *target = targets->data;
    const float *weight = weights->data;
    double global = share * *(const double *)scale->data;
#pragma omp parallel for num_threads(context->threads) if (R * n > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        if (weight[r] == 0.0F) continue;
        int64_t row = r * gradient->stride[0], own = row + target[r];
        double factor = (double)weight[r] * global, at_target = (double)ech_number(gradient, own);
        add_everywhere(n, gradient, row, (float)(-factor / (double)n));
        ech_set_number(gradient, own, (float)(at_target + factor * (1 - 1 / (double)n)));
    }
}

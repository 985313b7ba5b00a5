/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of rows of logits, and its gradient in place. The statistics read a row twice, for the maximum and for
 * the exponentials; the second time it is in the cache.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

/* fp32 sums of so many exponentials are added up in fp64. */
enum { PART = 1024 };

static float row_max(int64_t V, const float *logits)
{
    float max = -INFINITY;
#pragma omp simd reduction(max : max)
    for (int64_t v = 0; v < V; v++) max = logits[v] > max ? logits[v] : max;
    return max;
}

static double exp_sum(int64_t V, const float *logits, float max)
{
    double total = 0;
    for (int64_t first = 0; first < V; first += PART) {
        int64_t n = V - first < PART ? V - first : PART;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t v = 0; v < n; v++) sum += ech_exp(logits[first + v] - max);
        total += (double)sum;
    }
    return total;
}

/* out = exp(logit - max) factor; out may be logits. */
static void scaled_exp(int64_t V, const float *logits, float max, float factor, float *out)
{
#pragma omp simd
    for (int64_t v = 0; v < V; v++) out[v] = ech_exp(logits[v] - max) * factor;
}

void ECH_CPU(loss_statistics)(ech_kernel_context *context, const ech_tensor *logits,
                              const ech_tensor *targets, int64_t first_id, const ech_tensor *stats)
{
    int64_t R = logits->shape[0], n = logits->shape[1];
    ECH_SHAPES(loss_statistics, ECH_F32, logits, targets, stats);
#pragma omp parallel for num_threads(context->threads) if (R * n > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        const float *row = (const float *)logits->data + r * logits->stride[0];
        int64_t target = ((const int32_t *)targets->data)[r] - first_id;
        double *out = (double *)stats->data + r * ECH_LOSS_STATS;
        float max = row_max(n, row);
        out[ECH_STAT_MAX] = (double)max;
        out[ECH_STAT_SUM] = exp_sum(n, row, max);
        out[ECH_STAT_TARGET] = target >= 0 && target < n ? (double)row[target] : 0;
    }
}

/* (softmax - onehot) factor of one row. The target's is found in fp64: near 1 - 1 nothing is lost. */
static void row_gradient(int64_t n, const float *logits, int64_t target, const double *known,
                         double factor, float *gradient)
{
    float max = (float)known[ECH_STAT_MAX];
    double sum = known[ECH_STAT_SUM], probability = 0;
    bool mine = target >= 0 && target < n;
    if (mine) probability = (double)ech_exp(logits[target] - max) / sum;
    scaled_exp(n, logits, max, (float)(factor / sum), gradient);
    if (mine) gradient[target] = (float)((probability - 1) * factor);
}

void ECH_CPU(loss_gradient)(ech_kernel_context *context, const ech_tensor *logits,
                            const ech_tensor *targets, const ech_tensor *weights, int64_t first_id,
                            const ech_tensor *stats, const ech_tensor *scale,
                            const ech_tensor *gradient, const ech_tensor *sums)
{
    int64_t R = logits->shape[0], n = logits->shape[1];
    ECH_SHAPES(loss_gradient, ECH_F32, logits, targets, weights, stats, gradient, sums);
    ECH_ASSERT(!gradient || (scale->dtype == ECH_F64 && ech_tensor_count(scale) == 1));
    double global = gradient ? *(const double *)scale->data : 0, *total = sums->data;
    const double *known = stats->data;
    const float *weight = weights->data;
    const int32_t *target = targets->data;
#pragma omp parallel for num_threads(context->threads) if (R * n > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        if (!gradient) continue;
        float *out = (float *)gradient->data + r * gradient->stride[0];
        if (weight[r] == 0.0F)
            memset(out, 0, (size_t)n * sizeof *out);
        else
            row_gradient(n, (const float *)logits->data + r * logits->stride[0],
                         target[r] - first_id, known + r * ECH_LOSS_STATS,
                         (double)weight[r] * global, out);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of rows of logits, and its gradient in their place. A row is walked while it is in the
 * cache: once for its maximum, once for its exponentials, once to scale them.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

/* fp32 sums of so many exponentials are added up in fp64. */
enum { PART = 1024 };

ECH_CLONES static float row_max(int64_t V, const float *logits)
{
    float max = -INFINITY;
#pragma omp simd reduction(max : max)
    for (int64_t v = 0; v < V; v++) max = logits[v] > max ? logits[v] : max;
    return max;
}

ECH_CLONES static double exp_sum(int64_t V, const float *logits, float max)
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

/* The same, the exponentials written over the logits. */
ECH_CLONES static double exp_sum_in_place(int64_t V, float *logits, float max)
{
    double total = 0;
    for (int64_t first = 0; first < V; first += PART) {
        int64_t n = V - first < PART ? V - first : PART;
        float sum = 0, *part = logits + first;
#pragma omp simd reduction(+ : sum)
        for (int64_t v = 0; v < n; v++) {
            part[v] = ech_exp(part[v] - max);
            sum += part[v];
        }
        total += (double)sum;
    }
    return total;
}

ECH_CLONES static void scale_row(int64_t V, float *row, float factor)
{
    for (int64_t v = 0; v < V; v++) row[v] *= factor;
}

static double row_loss(int64_t V, float *logits, int64_t target)
{
    float max = row_max(V, logits);
    return (double)max + log(exp_sum(V, logits, max)) - (double)logits[target];
}

/* Leaves (softmax - onehot) factor in the logits' place. */
static double row_gradient(int64_t V, float *logits, int64_t target, double factor)
{
    float max = row_max(V, logits);
    double wanted = (double)logits[target], sum = exp_sum_in_place(V, logits, max);
    double probability = (double)logits[target] / sum;
    scale_row(V, logits, (float)(factor / sum));
    logits[target] = (float)((probability - 1) * factor);
    return (double)max + log(sum) - wanted;
}

void ech_cpu_cross_entropy(ech_kernel_context *context, const ech_tensor *logits,
                           const ech_tensor *targets, const ech_tensor *weights,
                           const ech_tensor *scale, bool gradient, const ech_tensor *sums)
{
    int64_t R = logits->shape[0], V = logits->shape[1];
    ECH_SHAPE(logits, ECH_F32, R, V);
    ECH_SHAPE(targets, ECH_I32, R);
    ECH_SHAPE(weights, ECH_F32, R);
    ECH_SHAPE(sums, ECH_F64, ECH_LOSS_SUMS);
    ECH_ASSERT(!gradient || (scale->dtype == ECH_F64 && ech_tensor_count(scale) == 1));
    double global = gradient ? *(const double *)scale->data : 0, *total = sums->data;
    double *loss = ech_scratch(context, (size_t)R * sizeof *loss);
    const float *weight = weights->data;
#pragma omp parallel for num_threads(context->threads) if (R * V > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        float *row = (float *)logits->data + r * V;
        int64_t target = ((const int32_t *)targets->data)[r];
        if (weight[r] == 0.0F) {
            if (gradient) memset(row, 0, (size_t)V * sizeof *row);
            continue;
        }
        ECH_ASSERT(target >= 0 && target < V);
        loss[r] = gradient ? row_gradient(V, row, target, (double)weight[r] * global)
                           : row_loss(V, row, target);
    }
    for (int64_t r = 0; r < R; r++) {
        if (weight[r] == 0.0F) continue;
        total[ECH_LOSS_SUM] += (double)weight[r] * loss[r];
        total[ECH_LOSS_WEIGHT] += (double)weight[r];
    }
}

/* dims: R, V. One loss a row. */
size_t ech_cpu_scratch_cross_entropy(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return (size_t)dims[0] * sizeof(double);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of rows of logits, and its gradient in their place.
 */
#include <math.h>

#include "kernel/ref/real.h"

/* Writes the gradient (softmax - onehot) factor over the row if wanted; returns the row's loss. */
static double row_loss(int64_t V, real *logits, int64_t target, bool gradient, double factor)
{
    double max = logits[0], sum = 0;
    for (int64_t v = 1; v < V; v++) max = fmax(max, logits[v]);
    for (int64_t v = 0; v < V; v++) sum += exp(logits[v] - max);
    double lse = max + log(sum), loss = lse - logits[target];
    if (gradient)
        for (int64_t v = 0; v < V; v++)
            logits[v] = (real)((exp(logits[v] - lse) - (v == target)) * factor);
    return loss;
}

void ECH_REF(cross_entropy)(ech_kernel_context *context, const ech_tensor *logits,
                            const ech_tensor *targets, const ech_tensor *weights,
                            const ech_tensor *scale, bool gradient, const ech_tensor *sums)
{
    (void)context;
    int64_t R = logits->shape[0], V = logits->shape[1];
    ECH_SHAPE(logits, ECH_REAL, R, V);
    ECH_SHAPE(targets, ECH_I32, R);
    ECH_SHAPE(weights, ECH_F32, R);
    ECH_SHAPE(sums, ECH_F64, ECH_LOSS_SUMS);
    ECH_ASSERT(!gradient || (scale->dtype == ECH_F64 && ech_tensor_count(scale) == 1));
    double *total = sums->data;
    for (int64_t r = 0; r < R; r++) {
        real *row = (real *)logits->data + r * V;
        double weight = ((const float *)weights->data)[r];
        if (weight == 0) {
            if (gradient)
                for (int64_t v = 0; v < V; v++) row[v] = 0;
            continue;
        }
        int64_t target = ((const int32_t *)targets->data)[r];
        ECH_ASSERT(target >= 0 && target < V);
        double factor = gradient ? weight * *(const double *)scale->data : 0;
        total[ECH_LOSS_SUM] += weight * row_loss(V, row, target, gradient, factor);
        total[ECH_LOSS_WEIGHT] += weight;
    }
}

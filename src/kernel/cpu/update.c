/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates.
 */
#include <math.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

void ECH_CPU(adamw)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                    const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                    const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(adamw, ECH_F32, param, grad, exp_avg, exp_avg_sq, rounded);
    ECH_ASSERT(update->count >= 1);
    /* What is the same for all elements, rounded once. */
    double count = (double)update->count;
    const float grad_scale = (float)update->grad_scale, eps = (float)update->eps;
    const float beta1 = (float)update->beta1, rest1 = (float)(1 - update->beta1);
    const float beta2 = (float)update->beta2, rest2 = (float)(1 - update->beta2);
    const float m_scale = (float)(1 / (1 - pow(update->beta1, count)));
    const float v_scale = (float)(1 / (1 - pow(update->beta2, count)));
    const float rate = (float)update->learning_rate, decay = (float)update->weight_decay;
    const float *from = grad->data;
    float *p = param->data, *m = exp_avg->data, *v = exp_avg_sq->data;
    int64_t n = ech_tensor_count(param);
#pragma omp parallel for simd num_threads(context->threads) if (parallel : n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i++) {
        float g = from[i] * grad_scale;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * g * g;
        float step = m[i] * m_scale / (sqrtf(v[i] * v_scale) + eps);
        p[i] -= rate * (step + decay * p[i]);
    }
}

void ECH_CPU(sgd)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                  const ech_tensor *momentum, const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(sgd, ECH_F32, param, grad, momentum, rounded);
    ECH_ASSERT(momentum || update->momentum == 0);
    const float grad_scale = (float)update->grad_scale, decay = (float)update->weight_decay;
    const float rate = (float)update->learning_rate, beta = (float)update->momentum;
    /* What is stepped by: g + u buf with nesterov, buf without. */
    const float of_g = update->nesterov ? 1.0F : 0.0F, of_buffer = update->nesterov ? beta : 1.0F;
    const float *from = grad->data;
    float *p = param->data, *buffer = momentum ? momentum->data : NULL;
    int64_t n = ech_tensor_count(param);
    if (!momentum) {
#pragma omp parallel for simd num_threads(context->threads) if (parallel : n > ECH_CHUNK)
        for (int64_t i = 0; i < n; i++) p[i] -= rate * (from[i] * grad_scale + decay * p[i]);
        return;
    }
#pragma omp parallel for simd num_threads(context->threads) if (parallel : n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i++) {
        float g = from[i] * grad_scale + decay * p[i];
        buffer[i] = beta * buffer[i] + g;
        p[i] -= rate * (of_g * g + of_buffer * buffer[i]);
    }
}

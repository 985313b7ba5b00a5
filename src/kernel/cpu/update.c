/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates.
 */
#include <math.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

/* What is the same for all elements, rounded once. */
typedef struct adamw_factors {
    float grad_scale, beta1, beta2, rest1, rest2, m_scale, v_scale, eps, learning_rate, decay;
} adamw_factors;

static void adamw_chunk(int64_t n, adamw_factors f, float *p, const float *grad, float *m, float *v)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * f.grad_scale;
        m[i] = f.beta1 * m[i] + f.rest1 * g;
        v[i] = f.beta2 * v[i] + f.rest2 * g * g;
        float step = m[i] * f.m_scale / (sqrtf(v[i] * f.v_scale) + f.eps);
        p[i] -= f.learning_rate * (step + f.decay * p[i]);
    }
}

void ECH_CPU(adamw)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                    const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                    const ech_update *update)
{
    ECH_SHAPES(adamw, ECH_F32, param, grad, exp_avg, exp_avg_sq);
    ECH_ASSERT(update->count >= 1);
    double count = (double)update->count;
    adamw_factors f = {
        .grad_scale = (float)update->grad_scale,
        .beta1 = (float)update->beta1,
        .beta2 = (float)update->beta2,
        .rest1 = (float)(1 - update->beta1),
        .rest2 = (float)(1 - update->beta2),
        .m_scale = (float)(1 / (1 - pow(update->beta1, count))),
        .v_scale = (float)(1 / (1 - pow(update->beta2, count))),
        .eps = (float)update->eps,
        .learning_rate = (float)update->learning_rate,
        .decay = (float)update->weight_decay,
    };
    int64_t n = ech_tensor_count(param);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i += ECH_CHUNK)
        adamw_chunk(n - i < ECH_CHUNK ? n - i : ECH_CHUNK, f, (float *)param->data + i,
                    (const float *)grad->data + i, (float *)exp_avg->data + i,
                    (float *)exp_avg_sq->data + i);
}

typedef struct sgd_factors {
    float grad_scale, decay, momentum, learning_rate;
    bool nesterov;
} sgd_factors;

static void sgd_chunk(int64_t n, sgd_factors f, float *p, const float *grad)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] -= f.learning_rate * (grad[i] * f.grad_scale + f.decay * p[i]);
}

static void momentum_chunk(int64_t n, sgd_factors f, float *p, const float *grad, float *buffer)
{
    /* g + u buf with nesterov, buf without. */
    float of_g = f.nesterov ? 1.0F : 0.0F, of_buffer = f.nesterov ? f.momentum : 1.0F;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * f.grad_scale + f.decay * p[i];
        buffer[i] = f.momentum * buffer[i] + g;
        p[i] -= f.learning_rate * (of_g * g + of_buffer * buffer[i]);
    }
}

void ECH_CPU(sgd)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                  const ech_tensor *momentum, const ech_update *update)
{
    ECH_SHAPES(sgd, ECH_F32, param, grad, momentum);
    ECH_ASSERT(momentum || update->momentum == 0);
    sgd_factors f = {(float)update->grad_scale, (float)update->weight_decay,
                     (float)update->momentum, (float)update->learning_rate, update->nesterov};
    int64_t n = ech_tensor_count(param);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i += ECH_CHUNK) {
        int64_t count = n - i < ECH_CHUNK ? n - i : ECH_CHUNK;
        float *p = (float *)param->data + i;
        const float *g = (const float *)grad->data + i;
        if (momentum)
            momentum_chunk(count, f, p, g, (float *)momentum->data + i);
        else
            sgd_chunk(count, f, p, g);
    }
}

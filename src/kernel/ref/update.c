/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates, element by element.
 */
#include <math.h>

#include "kernel/ref/real.h"

void ECH_REF(adamw)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                    const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                    const ech_update *update)
{
    ECH_SHAPES(adamw, ECH_REAL, param, grad, exp_avg, exp_avg_sq);
    ECH_ASSERT(update->count >= 1);
    real *p = param->data, *m = exp_avg->data, *v = exp_avg_sq->data;
    double b1 = update->beta1, b2 = update->beta2;
    double m_correction = 1 - pow(b1, (double)update->count);
    double v_correction = 1 - pow(b2, (double)update->count);
    for (int64_t i = 0, n = ech_tensor_count(param); i < n; i++) {
        double g = ((const real *)grad->data)[i] * update->grad_scale;
        double m_new = b1 * m[i] + (1 - b1) * g, v_new = b2 * v[i] + (1 - b2) * g * g;
        double step = m_new / m_correction / (sqrt(v_new / v_correction) + update->eps);
        p[i] = (real)(p[i] - update->learning_rate * (step + update->weight_decay * p[i]));
        m[i] = (real)m_new;
        v[i] = (real)v_new;
    }
}

void ECH_REF(sgd)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                  const ech_tensor *momentum, const ech_update *update)
{
    ECH_SHAPES(sgd, ECH_REAL, param, grad, momentum);
    ECH_ASSERT(momentum || update->momentum == 0);
    real *p = param->data;
    for (int64_t i = 0, n = ech_tensor_count(param); i < n; i++) {
        double g = ((const real *)grad->data)[i] * update->grad_scale;
        g += update->weight_decay * p[i];
        if (momentum) {
            real *buffer = (real *)momentum->data + i;
            double moved = update->momentum * *buffer + g;
            *buffer = (real)moved;
            g = update->nesterov ? g + update->momentum * moved : moved;
        }
        p[i] = (real)(p[i] - update->learning_rate * g);
    }
}

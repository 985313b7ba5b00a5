/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates, element by element.
 */
#include <math.h>

#include "kernel/listed.h"
#include "kernel/ref/real.h"
#include "kernel/shared.h"

#define STEP(old, rate, g) ((old) - (rate) * (g))
ECH_SHARED_NUMBERS(wide, double, STEP, load_shared, step_shared)

void ECH_REF(adamw)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                    const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                    const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(adamw, ECH_REAL, param, grad, exp_avg, exp_avg_sq, rounded);
    ECH_UPDATE_UNLESS_WITHHELD(update, ech_store_rounded(param, rounded));
    ECH_ASSERT(update->count >= 1);
    double b1 = update->beta1, b2 = update->beta2;
    double m_correction = 1 - pow(b1, (double)update->count);
    double v_correction = 1 - pow(b2, (double)update->count);
    for (int64_t i = 0, n = ech_tensor_count(param); i < n; i++) {
        double g = ech_value(grad, i) * update->grad_scale, p = ech_value(param, i);
        double m = b1 * ech_value(exp_avg, i) + (1 - b1) * g;
        double v = b2 * ech_value(exp_avg_sq, i) + (1 - b2) * g * g;
        double step = m / m_correction / (sqrt(v / v_correction) + update->eps);
        ech_store(exp_avg, i, m);
        ech_store(exp_avg_sq, i, v);
        ech_store_param(param, rounded, i,
                        p - update->learning_rate * (step + update->weight_decay * p));
    }
}

void ECH_REF(sgd)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                  const ech_tensor *momentum, const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(sgd, ECH_REAL, param, grad, momentum, rounded);
    ECH_UPDATE_UNLESS_WITHHELD(update, ech_store_rounded(param, rounded));
    ECH_ASSERT(momentum || update->momentum == 0);
    for (int64_t i = 0, n = ech_tensor_count(param); i < n; i++) {
        double p = ech_value(param, i), g = ech_value(grad, i) * update->grad_scale;
        g += update->weight_decay * p;
        if (momentum) {
            double moved = update->momentum * ech_value(momentum, i) + g;
            ech_store(momentum, i, moved);
            g = update->nesterov ? g + update->momentum * moved : moved;
        }
        ech_store_param(param, rounded, i, p - update->learning_rate * g);
    }
}

void ECH_REF(sgd_shared)(ech_kernel_context *context, const ech_tensor *shared,
                         const ech_tensor *grad, const ech_update *update)
{
    ECH_SHAPES(sgd_shared, ECH_REAL, shared, grad);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    for (int64_t i = 0, n = ech_tensor_count(shared); i < n; i++) {
        double g = ech_value(grad, i) * update->grad_scale;
        if (g != 0) step_shared((wide *)shared->data + i, update->learning_rate, g);
    }
}

void ECH_REF(relay_shared)(ech_kernel_context *context, const ech_tensor *own,
                           const ech_tensor *next, const ech_tensor *relayed, double beta,
                           double lambda, double rate, double tolerance, int64_t alone)
{
    ECH_SHAPES(relay_shared, ECH_REAL, own, next, relayed);
    (void)alone; /* concurrent changes by other threads do not alter the result */
    for (int64_t i = 0, n = ech_tensor_count(own); i < n; i++) {
        wide *here = (wide *)own->data + i, *there = (wide *)next->data + i;
        double w = load_shared(here), d = rate * (w - ech_value(relayed, i));
        bool passes = fabs(d) > tolerance;
        double moved =
            lambda * (load_shared(there) - w) + (passes ? beta + lambda - 1 : lambda) * d;
        ech_store(relayed, i, w + moved - (passes ? 0 : d));
        if (moved != 0) step_shared(here, -1, moved);
        if (passes) step_shared(there, -1, beta * d);
    }
}

void ECH_REF(copy_shared)(ech_kernel_context *context, const ech_tensor *shared,
                          const ech_tensor *y)
{
    ECH_SHAPES(copy_shared, ECH_REAL, shared, y);
    for (int64_t i = 0, n = ech_tensor_count(shared); i < n; i++)
        ((wide *)y->data)[i] = load_shared((const wide *)shared->data + i);
}

void ECH_REF(sgd_shared_rows)(ech_kernel_context *context, const ech_tensor *shared,
                              const ech_tensor *grad, const ech_tensor *rows,
                              const ech_update *update)
{
    ECH_SHAPES(sgd_shared_rows, ECH_REAL, shared, grad, rows);
    ech_update now;
    bool adds = ech_update_begins(&update, &now);
    const int32_t *row = rows->data;
    int64_t C = shared->shape[1], n = ech_listed(row, rows->shape[0]);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < C; c++) {
            wide *x = (wide *)shared->data + row[r] * C + c;
            double g = ech_value(grad, r * C + c) * update->grad_scale;
            if (adds && g != 0) step_shared(x, update->learning_rate, g);
            ech_store(grad, r * C + c, 0);
        }
}

void ECH_REF(copy_shared_rows)(ech_kernel_context *context, const ech_tensor *shared,
                               const ech_tensor *rows, const ech_tensor *y)
{
    ECH_SHAPES(copy_shared_rows, ECH_REAL, shared, rows, y);
    const int32_t *row = rows->data;
    int64_t C = shared->shape[1], n = ech_listed(row, rows->shape[0]);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < C; c++)
            ((wide *)y->data)[r * C + c] = load_shared((const wide *)shared->data + row[r] * C + c);
}

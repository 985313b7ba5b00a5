/* SPDX-License-Identifier: Apache-2.0
 *
 * Adafactor. Shazeer and Stern 2018, arXiv:1804.04235.
 */
#include <math.h>

#include "kernel/ref/real.h"

void ECH_REF(adafactor_sums)(ech_kernel_context *context, const ech_tensor *param,
                             const ech_tensor *grad, const ech_update *update,
                             const ech_tensor *rows, const ech_tensor *columns,
                             const ech_tensor *square)
{
    ECH_SHAPES(adafactor_sums, ECH_REAL, param, grad, rows, columns, square);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    int64_t C = grad->shape[1];
    double *column = columns->data, *all = square->data;
    *all = 0;
    for (int64_t c = 0; c < C; c++) column[c] = 0;
    for (int64_t r = 0; r < grad->shape[0]; r++) {
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < C; c++) {
            double g = ech_value(grad, r * C + c) * update->grad_scale,
                   p = ech_value(param, r * C + c);
            sum += g * g + update->eps;
            column[c] += g * g + update->eps;
            squares += p * p;
        }
        if (rows) ((double *)rows->data)[r] = sum;
        *all += squares;
    }
}

void ECH_REF(adafactor_factors)(ech_kernel_context *context, const ech_tensor *sums,
                                const ech_update *update, const ech_tensor *state,
                                const ech_tensor *factors, const ech_tensor *total)
{
    ECH_SHAPES(adafactor_factors, ECH_REAL, sums, state, factors, total);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    double all = 0, beta2 = ech_adafactor_beta2(update);
    for (int64_t i = 0; i < sums->shape[0]; i++) {
        double sum = ((const double *)sums->data)[i];
        ech_store(state, i, beta2 * ech_value(state, i) + (1 - beta2) * sum);
        ech_store(factors, i, 1 / sqrt(ech_value(state, i)));
        all += ech_value(state, i);
    }
    if (total) *(double *)total->data = all;
}

static double scaled(const ech_tensor *grad, const ech_tensor *rows, const ech_tensor *columns,
                     const ech_update *update, int64_t r, int64_t c)
{
    double g = ech_value(grad, r * grad->shape[1] + c) * update->grad_scale;
    return g * (rows ? ech_value(rows, r) : 1) * ech_value(columns, c);
}

void ECH_REF(adafactor_squares)(ech_kernel_context *context, const ech_tensor *grad,
                                const ech_tensor *rows, const ech_tensor *columns,
                                const ech_update *update, const ech_tensor *square)
{
    ECH_SHAPES(adafactor_squares, ECH_REAL, grad, rows, columns, square);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    double *all = square->data;
    *all = 0;
    for (int64_t r = 0; r < grad->shape[0]; r++) {
        double sum = 0;
        for (int64_t c = 0; c < grad->shape[1]; c++) {
            double u = scaled(grad, rows, columns, update, r, c);
            sum += u * u;
        }
        *all += sum;
    }
}

void ECH_REF(adafactor)(ech_kernel_context *context, const ech_tensor *param,
                        const ech_tensor *grad, const ech_tensor *rows, const ech_tensor *columns,
                        const ech_tensor *momentum, const ech_tensor *total,
                        const ech_tensor *squares, const ech_tensor *weights, int64_t elements,
                        const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(adafactor, ECH_REAL, param, grad, rows, columns, momentum, total, squares, weights,
               rounded);
    ECH_UPDATE_UNLESS_WITHHELD(update, ech_store_rounded(param, rounded));
    const double scale = ech_adafactor_scale(update, total, squares, weights, elements);
    const double decay = ech_adafactor_rate(update, weights, elements) * update->weight_decay;
    const double beta = update->momentum;
    for (int64_t r = 0; r < grad->shape[0]; r++)
        for (int64_t c = 0; c < grad->shape[1]; c++) {
            int64_t i = r * grad->shape[1] + c;
            double u = scale * scaled(grad, rows, columns, update, r, c), p = ech_value(param, i);
            if (momentum) {
                u = beta * ech_value(momentum, i) + (1 - beta) * u;
                ech_store(momentum, i, u);
            }
            ech_store_param(param, rounded, i, p - (decay * p + u));
        }
}

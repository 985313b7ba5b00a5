/* SPDX-License-Identifier: Apache-2.0
 *
 * SM3-II. Anil et al. 2019, arXiv:1901.11150.
 */
#include <math.h>

#include "kernel/ref/real.h"

/* A NaN is larger, and smaller, than everything. */
static double larger(double a, double b)
{
    return a > b || a != a ? a : b;
}

static double smaller(double a, double b)
{
    return a < b || a != a ? a : b;
}

/* nu of element (r, c): its accumulator, with its square. */
static double accumulated(const ech_tensor *grad, const ech_tensor *row_state,
                          const ech_tensor *column_state, const ech_update *update, int64_t r,
                          int64_t c)
{
    double g = ech_value(grad, r * grad->shape[1] + c) * update->grad_scale;
    double column = ech_value(column_state, c);
    return (row_state ? smaller(ech_value(row_state, r), column) : column) + g * g;
}

void ECH_REF(sm3_maxima)(ech_kernel_context *context, const ech_tensor *grad,
                         const ech_tensor *row_state, const ech_tensor *column_state,
                         const ech_update *update, const ech_tensor *rows,
                         const ech_tensor *columns)
{
    ECH_SHAPES(sm3_maxima, ECH_REAL, grad, row_state, column_state, rows, columns);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    double *column = columns->data;
    for (int64_t c = 0; c < grad->shape[1]; c++) column[c] = 0;
    for (int64_t r = 0; r < grad->shape[0]; r++) {
        double row = 0;
        for (int64_t c = 0; c < grad->shape[1]; c++) {
            double nu = accumulated(grad, row_state, column_state, update, r, c);
            row = larger(row, nu);
            column[c] = larger(column[c], nu);
        }
        if (rows) ((double *)rows->data)[r] = row;
    }
}

void ECH_REF(sm3)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                  const ech_tensor *row_state, const ech_tensor *column_state,
                  const ech_tensor *rows, const ech_tensor *columns, const ech_tensor *momentum,
                  const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(sm3, ECH_REAL, param, grad, row_state, column_state, rows, columns, momentum,
               rounded);
    ECH_UPDATE_UNLESS_WITHHELD(update, ech_store_rounded(param, rounded));
    double beta = update->momentum;
    for (int64_t r = 0; r < grad->shape[0]; r++)
        for (int64_t c = 0; c < grad->shape[1]; c++) {
            int64_t i = r * grad->shape[1] + c;
            double g = ech_value(grad, i) * update->grad_scale, p = ech_value(param, i);
            double nu = accumulated(grad, row_state, column_state, update, r, c);
            double u = nu == 0 ? 0 : g / sqrt(nu);
            if (momentum) {
                u = beta * ech_value(momentum, i) + (1 - beta) * u;
                ech_store(momentum, i, u);
            }
            ech_store_param(param, rounded, i,
                            p - update->learning_rate * (update->weight_decay * p + u));
        }
    for (int64_t r = 0; rows && r < grad->shape[0]; r++)
        ech_store(row_state, r, ((const double *)rows->data)[r]);
    for (int64_t c = 0; c < grad->shape[1]; c++)
        ech_store(column_state, c, ((const double *)columns->data)[c]);
}

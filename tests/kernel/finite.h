/* SPDX-License-Identifier: Apache-2.0
 *
 * Finite differences in fp64: is dx the gradient of a function of x?
 */
#ifndef ECH_TESTS_KERNEL_FINITE_H
#define ECH_TESTS_KERNEL_FINITE_H

#include "kernel/values.h"

/* A number that depends on memory the caller knows. */
typedef double (*finite_function)(void *state);

/* The largest error of dx against central differences of f, relative to the largest |dx|. Two step
 * widths h, extrapolated (Richardson), leave an error of order h^4, and rounding 1e-16 / h. */
static inline double finite_error(finite_function f, void *state, int64_t n, double *x,
                                  const double *dx)
{
    const double h = 1e-3;
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double at = x[i], slope[2];
        for (int half = 0; half < 2; half++) {
            double step = half ? h / 2 : h;
            x[i] = at + step;
            double above = f(state);
            x[i] = at - step;
            slope[half] = (above - f(state)) / (2 * step);
        }
        x[i] = at;
        double error = fabs((4 * slope[1] - slope[0]) / 3 - dx[i]);
        worst = isfinite(error) ? fmax(worst, error) : INFINITY;
    }
    return worst / largest(n, dx, 1e-3);
}

#endif

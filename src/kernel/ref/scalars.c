/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalars of a training step: totals, folds, gradient clipping.
 */
#include <math.h>

#include "kernel/ref/real.h"
#include "kernel/total.h"

static double *number(const ech_tensor *x)
{
    return x->data;
}

void ECH_REF(total)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *scale,
                    bool counts, const ech_tensor *sum)
{
    double sum_of[ECH_TOTAL_SUMS] = {0}, total = 0, by = scale ? *number(scale) : 1;
    /* NORM sums each parameter: checking against the row's text would take longer than the sum. */
    ECH_ASSERT(x->dims == 1 && x->dtype == ECH_F64 && sum->dims == 0 && sum->dtype == ECH_F64);
    for (int64_t i = 0; i < x->shape[0]; i++) sum_of[i % ECH_TOTAL_SUMS] += number(x)[i];
    for (int64_t i = 0; i < ECH_TOTAL_SUMS && i < x->shape[0]; i++) total += sum_of[i];
    total /= by * by;
    *number(sum) = counts || !isfinite(total) ? total : 0;
}

static double larger(double a, double b)
{
    return a > b || isnan(a) ? a : b;
}

void ECH_REF(fold)(ech_kernel_context *context, const ech_tensor *x, bool maximum,
                   const ech_tensor *y)
{
    ECH_SHAPES(fold, ECH_REAL, x, y);
    for (int64_t i = 0; i < y->shape[0]; i++) {
        const double *column = number(x) + i;
        double all = column[0];
        for (int64_t r = 1; r < x->shape[0]; r++) {
            double next = column[r * x->stride[0]];
            all = maximum ? larger(all, next) : all + next;
        }
        number(y)[i] = all;
    }
}

void ECH_REF(clip)(ech_kernel_context *context, const ech_tensor *squares, const ech_tensor *loss,
                   const ech_tensor *scale, double limit, const ech_tensor *norm,
                   const ech_tensor *withheld, const ech_tensor *factor)
{
    ECH_SHAPES(clip, ECH_REAL, squares, loss, scale, norm, withheld, factor);
    *number(norm) = sqrt(*number(squares));
    if (!isfinite(*number(squares)) || (loss && !isfinite(*number(loss)))) *number(withheld) = 1;
    bool updates = *number(withheld) <= 0;
    *number(factor) = updates ? ech_clip_factor(*number(norm), limit) / *number(scale) : 0;
}

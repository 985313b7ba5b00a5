/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of an update that is on the device: rows with an ech_update begin with it. Private to
 * src/kernel.
 */
#ifndef ECH_KERNEL_UPDATE_H
#define ECH_KERNEL_UPDATE_H

#include <math.h>

#include "kernel/kernel.h"

/* Points *update to `now`, the update with the numbers on the device applied. False: it is
 * withheld. */
ECH_EVERYWHERE bool ech_update_begins(const ech_update **update, ech_update *now)
{
    *now = **update;
    *update = now;
    if (now->rate) now->learning_rate *= *now->rate;
    if (now->adjust > 0) now->learning_rate *= now->adjust;
    if (now->number) now->count = *now->number;
    if (now->clip) now->grad_scale *= *now->clip;
    return !now->withheld || *now->withheld <= 0;
}
/* A row's first line: if the update is withheld, only `otherwise` is done. */
#define ECH_UPDATE_UNLESS_WITHHELD(update, otherwise)                                              \
    ech_update now;                                                                                \
    if (!ech_update_begins(&(update), &now)) {                                                     \
        otherwise;                                                                                 \
        return;                                                                                    \
    }

ECH_EVERYWHERE double ech_update_number(const ech_tensor *scalar)
{
    return *(const double *)scalar->data;
}

/* For adafactor_factors. */
ECH_EVERYWHERE double ech_adafactor_beta2(const ech_update *update)
{
    return 1 - pow((double)update->count, -0.8);
}

/* For adafactor: the learning rate of a parameter of n elements, whose sum of squares is
 * `weights`. */
ECH_EVERYWHERE double ech_adafactor_rate(const ech_update *update, const ech_tensor *weights,
                                         int64_t n)
{
    if (!update->scale_parameter) return update->learning_rate;
    return update->learning_rate * fmax(1e-3, sqrt(ech_update_number(weights) / (double)n));
}

/* For adafactor: the factor of u; arguments as in kernel.def. */
ECH_EVERYWHERE double ech_adafactor_scale(const ech_update *update, const ech_tensor *total,
                                          const ech_tensor *squares, const ech_tensor *weights,
                                          int64_t n)
{
    double all = total ? ech_update_number(total) : 1;
    double rms = sqrt(all * ech_update_number(squares) / (double)n);
    return ech_adafactor_rate(update, weights, n) * sqrt(all) / fmax(1.0, rms);
}

/* For scaled_sum: alpha combined with `squares` and `update` (NULL: neither). */
ECH_EVERYWHERE double ech_scaled_alpha(double alpha, const ech_tensor *squares,
                                       const ech_update *update)
{
    if (!update) return alpha;
    if (squares) {
        double norm = sqrt(ech_update_number(squares)) + update->eps;
        alpha = norm > 0 ? alpha / norm : 0;
    }
    return alpha * update->grad_scale;
}

#endif

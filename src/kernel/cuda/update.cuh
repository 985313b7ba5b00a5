/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates: their part on the device.
 */
#ifndef ECH_KERNEL_CUDA_UPDATE_H
#define ECH_KERNEL_CUDA_UPDATE_H

#include "kernel/cuda/reduce.cuh"

namespace
{

/* An update with the device's numbers applied. */
struct ech_update_now {
    ech_update now;
    bool is_withheld;
    double number[2]; /* specific to the row: bias corrections, scales */
};

static __device__ inline void ech_begin(const ech_update &update, ech_update_now *step)
{
    const ech_update *at = &update;
    step->is_withheld = !ech_update_begins(&at, &step->now);
}

/* AdamW's bias corrections of both averages. */
static __device__ inline void ech_begin_adamw(const ech_update &update, ech_update_now *step)
{
    ech_begin(update, step);
    step->number[0] = 1 - pow(step->now.beta1, (double)step->now.count);
    step->number[1] = 1 - pow(step->now.beta2, (double)step->now.count);
}

/* For one number: updates the averages, and the parameter by them. */
static __device__ inline wide ech_adamw(const ech_update_now &step, wide g, wide p, wide *m,
                                        wide *v)
{
    const ech_update &u = step.now;
    *m = (wide)u.beta1 * *m + (wide)(1 - u.beta1) * g;
    *v = (wide)u.beta2 * *v + (wide)(1 - u.beta2) * g * g;
    wide by = *m / (wide)step.number[0] / (sqrt(*v / (wide)step.number[1]) + (wide)u.eps);
    return p - (wide)u.learning_rate * (by + (wide)u.weight_decay * p);
}

/* A part of a parameter, and its rounded copy if there is one. */
static __device__ inline void ech_store_param(const ech_numbers &param, const ech_numbers &rounded,
                                              int64_t i, int n, const wide *value)
{
    param.store(i, n, value);
    if (rounded.is_here()) rounded.store(i, n, value);
}

/* The copy of a parameter whose update is withheld. */
static __device__ inline void ech_store_rounded(const ech_numbers &param,
                                                const ech_numbers &rounded, int64_t i, int n)
{
    wide value[ECH_PART];
    if (!rounded.is_here()) return;
    param.load(i, n, value);
    rounded.store(i, n, value);
}

/* Row and column of ascending elements. */
struct ech_place {
    int64_t r, c, C;

    __device__ ech_place(int64_t i, int64_t columns) : r(i / columns), c(i % columns), C(columns)
    {
    }
    __device__ void next()
    {
        if (++c < C) return;
        c = 0;
        r++;
    }
};

} // namespace

#endif

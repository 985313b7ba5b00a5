/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, GELU and SwiGLU of parts of tensors (part.h). With z = 2 sqrt(2/pi) (x + 0.044715 x^3) and
 * s = sigmoid(z), (1 + tanh(z/2)) / 2 = s, so gelu(x) = x s and gelu'(x) = s + x s (1 - s) z'.
 */
#ifndef ECH_KERNEL_CPU_ACTIVATION_H
#define ECH_KERNEL_CPU_ACTIVATION_H

#include "kernel/cpu/part.h"

ECH_INLINE void ech_relu_forward_part(const ech_tensor *x, const ech_tensor *y, int64_t first,
                                      int64_t count)
{
    ECH_ALIGNED float part[2][ECH_PART];
    const float *in = ech_part_of(x, first, count, part[0]);
    float *out = ech_part_to(y, first, part[1]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) out[i] = in[i] < 0.0F ? 0.0F : in[i];
    ech_part_done(y, first, count, out);
}

ECH_INLINE void ech_relu_backward_part(const ech_tensor *dy, const ech_tensor *x,
                                       const ech_tensor *dx, int64_t first, int64_t count)
{
    ECH_ALIGNED float part[3][ECH_PART];
    const float *d = ech_part_of(dy, first, count, part[0]);
    const float *in = ech_part_of(x, first, count, part[1]);
    float *out = ech_part_to(dx, first, part[2]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) out[i] = ech_kept(in[i] > 0.0F, d[i]);
    ech_part_done(dx, first, count, out);
}

#define ECH_TWO_SQRT_2_OVER_PI 1.59576912F

/* Beyond ±9.9 gelu is x or 0 to the last bit, and z' would only overflow. */
ECH_INLINE float ech_gelu_bounded(float x)
{
    x = x > 9.9F ? 9.9F : x;
    return x < -9.9F ? -9.9F : x;
}

/* e^-z of a bounded x: |z| is below 85.1. */
ECH_INLINE float ech_exp_of_inner(float v)
{
    return ech_exp_bounded(-ECH_TWO_SQRT_2_OVER_PI * (v + 0.044715F * v * v * v));
}

ECH_INLINE void ech_gelu_forward_part(const ech_tensor *x, const ech_tensor *y, int64_t first,
                                      int64_t count)
{
    ECH_ALIGNED float part[2][ECH_PART];
    const float *in = ech_part_of(x, first, count, part[0]);
    float *out = ech_part_to(y, first, part[1]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        out[i] = in[i] / (1.0F + ech_exp_of_inner(ech_gelu_bounded(in[i])));
    ech_part_done(y, first, count, out);
}

ECH_INLINE void ech_gelu_backward_part(const ech_tensor *dy, const ech_tensor *x,
                                       const ech_tensor *dx, int64_t first, int64_t count)
{
    ECH_ALIGNED float part[3][ECH_PART];
    const float *d = ech_part_of(dy, first, count, part[0]);
    const float *in = ech_part_of(x, first, count, part[1]);
    float *out = ech_part_to(dx, first, part[2]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float v = ech_gelu_bounded(in[i]);
        float e = ech_exp_of_inner(v);
        float slope = ECH_TWO_SQRT_2_OVER_PI * (1.0F + 3 * 0.044715F * v * v);
        /* 1 - s as e s, which loses no digits where s is near 1. */
        float s = 1.0F / (1.0F + e);
        out[i] = d[i] * (s + v * slope * s * (e * s));
    }
    ech_part_done(dx, first, count, out);
}

ECH_INLINE void ech_swiglu_forward_part(const ech_tensor *gate, const ech_tensor *up,
                                        const ech_tensor *y, int64_t first, int64_t count)
{
    ECH_ALIGNED float part[3][ECH_PART];
    const float *g = ech_part_of(gate, first, count, part[0]);
    const float *u = ech_part_of(up, first, count, part[1]);
    float *out = ech_part_to(y, first, part[2]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) out[i] = g[i] * ech_sigmoid(g[i]) * u[i];
    ech_part_done(y, first, count, out);
}

ECH_INLINE void ech_swiglu_backward_part(const ech_tensor *dy, const ech_tensor *gate,
                                         const ech_tensor *up, const ech_tensor *dgate,
                                         const ech_tensor *dup, int64_t first, int64_t count)
{
    ECH_ALIGNED float part[5][ECH_PART];
    const float *dout = ech_part_of(dy, first, count, part[0]);
    const float *g = ech_part_of(gate, first, count, part[1]);
    const float *u = ech_part_of(up, first, count, part[2]);
    float *dg = ech_part_to(dgate, first, part[3]), *du = ech_part_to(dup, first, part[4]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float d = dout[i], v = g[i], w = u[i];
        /* e as large as 1e30 leaves s = 0 to fp32's digits; infinite, e s would be NaN. */
        float e = ech_exp(v < -70.0F ? 70.0F : -v);
        float s = 1.0F / (1.0F + e);
        dg[i] = d * w * s * (1.0F + v * (e * s));
        du[i] = d * v * s;
    }
    ech_part_done(dgate, first, count, dg);
    ech_part_done(dup, first, count, du);
}

#endif

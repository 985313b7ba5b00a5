/* SPDX-License-Identifier: Apache-2.0
 *
 * The activations of kernel/activations.h, of parts of tensors (part.h).
 */
#ifndef ECH_KERNEL_CPU_ACTIVATION_H
#define ECH_KERNEL_CPU_ACTIVATION_H

#include "kernel/cpu/part.h"

/* ---- single numbers of one operand: y, and dx ---- */

ECH_INLINE float ech_relu(float v)
{
    return v < 0.0F ? 0.0F : v;
}

ECH_INLINE float ech_relu_gradient(float d, float v)
{
    return ech_kept(v > 0.0F, d);
}

ECH_INLINE float ech_relu2(float v)
{
    return v < 0.0F ? 0.0F : v * v;
}

ECH_INLINE float ech_relu2_gradient(float d, float v)
{
    return ech_kept(v > 0.0F, d * 2.0F * v);
}

/* GELU by tanh: with z = 2 sqrt(2/pi) (x + 0.044715 x^3) and s = sigmoid(z),
 * (1 + tanh(z/2)) / 2 = s, so gelu(x) = x s and gelu'(x) = s + x s (1 - s) z'. */
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

ECH_INLINE float ech_gelu(float v)
{
    return v / (1.0F + ech_exp_of_inner(ech_gelu_bounded(v)));
}

ECH_INLINE float ech_gelu_gradient(float d, float x)
{
    float v = ech_gelu_bounded(x);
    float e = ech_exp_of_inner(v);
    float slope = ECH_TWO_SQRT_2_OVER_PI * (1.0F + 3 * 0.044715F * v * v);
    /* 1 - s as e s, which loses no digits where s is near 1. */
    float s = 1.0F / (1.0F + e);
    return d * (s + v * slope * s * (e * s));
}

/* The normal distribution up to v: half the complementary error function of |v| / sqrt(2), or the
 * complement of that. By the Chebyshev fit of Press et al. 1992, "Numerical Recipes" (erfcc), whose
 * relative error is below 1.2e-7. */
ECH_INLINE float ech_normal(float v)
{
    float a = (v < 0.0F ? -v : v) * 0.707106781F, t = 1.0F / (1.0F + 0.5F * a);
    float p = 0.17087277F;
    p = p * t - 0.82215223F;
    p = p * t + 1.48851587F;
    p = p * t - 1.13520398F;
    p = p * t + 0.27886807F;
    p = p * t - 0.18628806F;
    p = p * t + 0.09678418F;
    p = p * t + 0.37409196F;
    p = p * t + 1.00002368F;
    p = p * t - 1.26551223F;
    float tail = 0.5F * t * ech_exp(p - a * a);
    return v < 0.0F ? tail : 1.0F - tail;
}

/* Beyond ±13.5 the tail is below all fp32 numbers, and squares would only overflow. */
ECH_INLINE float ech_normal_bounded(float v)
{
    v = v > 13.5F ? 13.5F : v;
    return v < -13.5F ? -13.5F : v;
}

ECH_INLINE float ech_gelu_exact(float v)
{
    float b = ech_normal_bounded(v), normal = ech_normal(b);
    return v < -13.5F ? b * normal : v * normal;
}

ECH_INLINE float ech_gelu_exact_gradient(float d, float x)
{
    float v = ech_normal_bounded(x);
    return d * (ech_normal(v) + v * (ech_exp(-0.5F * v * v) * 0.398942280F));
}

/* ---- of two operands: y, and the gradients of gate and up ---- */

ECH_INLINE float ech_swiglu(float g, float u)
{
    return g * ech_sigmoid(g) * u;
}

ECH_INLINE void ech_swiglu_gradient(float d, float v, float w, float *dg, float *du)
{
    /* e as large as 1e30 leaves s = 0 to fp32's digits; infinite, e s would be NaN. */
    float e = ech_exp(v < -70.0F ? 70.0F : -v);
    float s = 1.0F / (1.0F + e);
    *dg = d * w * s * (1.0F + v * (e * s));
    *du = d * v * s;
}

ECH_INLINE float ech_geglu(float g, float u)
{
    return ech_gelu(g) * u;
}

ECH_INLINE void ech_geglu_gradient(float d, float v, float w, float *dg, float *du)
{
    *dg = ech_gelu_gradient(d * w, v);
    *du = d * ech_gelu(v);
}

ECH_INLINE float ech_geglu_exact(float g, float u)
{
    return ech_gelu_exact(g) * u;
}

ECH_INLINE void ech_geglu_exact_gradient(float d, float v, float w, float *dg, float *du)
{
    *dg = ech_gelu_exact_gradient(d * w, v);
    *du = d * ech_gelu_exact(v);
}

/* Bounds of gpt-oss's operands; a NaN is between them. */
ECH_INLINE float ech_clamped_gate(float v)
{
    return v > 7.0F ? 7.0F : v;
}

ECH_INLINE float ech_clamped_up(float w)
{
    w = w > 7.0F ? 7.0F : w;
    return w < -7.0F ? -7.0F : w;
}

ECH_INLINE float ech_swiglu_clamped(float v, float w)
{
    float g = ech_clamped_gate(v);
    return g * ech_sigmoid(1.702F * g) * (ech_clamped_up(w) + 1.0F);
}

ECH_INLINE void ech_swiglu_clamped_gradient(float d, float v, float w, float *dg, float *du)
{
    float g = ech_clamped_gate(v), z = 1.702F * g, u = ech_clamped_up(w);
    float e = ech_exp(z < -70.0F ? 70.0F : -z);
    float s = 1.0F / (1.0F + e);
    *dg = ech_kept(!(v > 7.0F), d * (u + 1.0F) * s * (1.0F + z * (e * s)));
    *du = ech_kept(!(w > 7.0F) && !(w < -7.0F), d * g * s);
}

/* ---- parts: `of` is known where these are inlined ---- */

#define ECH_OPERANDS_1(v, w)           v
#define ECH_OPERANDS_2(v, w)           v, w
#define ECH_GRADIENTS_1(name, d, v, w) *dv = ech_##name##_gradient(d, v)
#define ECH_GRADIENTS_2(name, d, v, w) ech_##name##_gradient(d, v, w, dv, dw)

ECH_INLINE float ech_value_of(ech_activation of, float v, float w)
{
#define ECH_CASE(NAME, name, operands, ...)                                                        \
    if (of == ECH_ACTIVATION_##NAME) return ech_##name(ECH_OPERANDS_##operands(v, w));
    ECH_ACTIVATIONS(ECH_CASE)
#undef ECH_CASE
    return v;
}

ECH_INLINE void ech_gradients_of(ech_activation of, float d, float v, float w, float *dv, float *dw)
{
#define ECH_CASE(NAME, name, operands, ...)                                                        \
    if (of == ECH_ACTIVATION_##NAME) ECH_GRADIENTS_##operands(name, d, v, w);
    ECH_ACTIVATIONS(ECH_CASE)
#undef ECH_CASE
}

ECH_INLINE void ech_forward_part_1(ech_activation of, const ech_tensor *x, const ech_tensor *y,
                                   int64_t first, int64_t count)
{
    ECH_ALIGNED float part[2][ECH_PART];
    const float *in = ech_part_of(x, first, count, part[0]);
    float *out = ech_part_to(y, first, part[1]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) out[i] = ech_value_of(of, in[i], 0.0F);
    ech_part_done(y, first, count, out);
}

ECH_INLINE void ech_backward_part_1(ech_activation of, const ech_tensor *dy, const ech_tensor *x,
                                    const ech_tensor *dx, int64_t first, int64_t count)
{
    ECH_ALIGNED float part[3][ECH_PART];
    const float *d = ech_part_of(dy, first, count, part[0]);
    const float *in = ech_part_of(x, first, count, part[1]);
    float *out = ech_part_to(dx, first, part[2]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float of_x = 0, none = 0;
        ech_gradients_of(of, d[i], in[i], 0.0F, &of_x, &none);
        out[i] = of_x;
    }
    ech_part_done(dx, first, count, out);
}

ECH_INLINE void ech_forward_part_2(ech_activation of, const ech_tensor *gate, const ech_tensor *up,
                                   const ech_tensor *y, int64_t first, int64_t count)
{
    ECH_ALIGNED float part[3][ECH_PART];
    const float *g = ech_part_of(gate, first, count, part[0]);
    const float *u = ech_part_of(up, first, count, part[1]);
    float *out = ech_part_to(y, first, part[2]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) out[i] = ech_value_of(of, g[i], u[i]);
    ech_part_done(y, first, count, out);
}

ECH_INLINE void ech_backward_part_2(ech_activation of, const ech_tensor *dy, const ech_tensor *gate,
                                    const ech_tensor *up, const ech_tensor *dgate,
                                    const ech_tensor *dup, int64_t first, int64_t count)
{
    ECH_ALIGNED float part[5][ECH_PART];
    const float *d = ech_part_of(dy, first, count, part[0]);
    const float *g = ech_part_of(gate, first, count, part[1]);
    const float *u = ech_part_of(up, first, count, part[2]);
    float *dg = ech_part_to(dgate, first, part[3]), *du = ech_part_to(dup, first, part[4]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float of_gate = 0, of_up = 0;
        ech_gradients_of(of, d[i], g[i], u[i], &of_gate, &of_up);
        dg[i] = of_gate;
        du[i] = of_up;
    }
    ech_part_done(dgate, first, count, dg);
    ech_part_done(dup, first, count, du);
}

/* ech_NAME_forward_part(x, y, first, count) and so on. */
#define ECH_PARTS_1(NAME, name)                                                                    \
    ECH_INLINE void ech_##name##_forward_part(const ech_tensor *x, const ech_tensor *y,            \
                                              int64_t first, int64_t count)                        \
    {                                                                                              \
        ech_forward_part_1(ECH_ACTIVATION_##NAME, x, y, first, count);                             \
    }                                                                                              \
    ECH_INLINE void ech_##name##_backward_part(const ech_tensor *dy, const ech_tensor *x,          \
                                               const ech_tensor *dx, int64_t first, int64_t count) \
    {                                                                                              \
        ech_backward_part_1(ECH_ACTIVATION_##NAME, dy, x, dx, first, count);                       \
    }

#define ECH_PARTS_2(NAME, name)                                                                    \
    ECH_INLINE void ech_##name##_forward_part(const ech_tensor *gate, const ech_tensor *up,        \
                                              const ech_tensor *y, int64_t first, int64_t count)   \
    {                                                                                              \
        ech_forward_part_2(ECH_ACTIVATION_##NAME, gate, up, y, first, count);                      \
    }                                                                                              \
    ECH_INLINE void ech_##name##_backward_part(                                                    \
        const ech_tensor *dy, const ech_tensor *gate, const ech_tensor *up,                        \
        const ech_tensor *dgate, const ech_tensor *dup, int64_t first, int64_t count)              \
    {                                                                                              \
        ech_backward_part_2(ECH_ACTIVATION_##NAME, dy, gate, up, dgate, dup, first, count);        \
    }

#define ECH_PARTS(NAME, name, operands, ...) ECH_PARTS_##operands(NAME, name)
ECH_ACTIVATIONS(ECH_PARTS)

#endif

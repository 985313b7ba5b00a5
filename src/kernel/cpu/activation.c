/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU and SwiGLU. With z = 2 sqrt(2/pi) (x + 0.044715 x^3) and s = sigmoid(z),
 * (1 + tanh(z/2)) / 2 = s, so gelu(x) = x s and gelu'(x) = s + x s (1 - s) z'.
 */
#include "kernel/cpu/part.h"
#include "kernel/shape.h"

#define TWO_SQRT_2_OVER_PI 1.59576912F

/* Beyond ±9.9 gelu is x or 0 to the last bit, and z' would only overflow. */
ECH_INLINE float bounded(float x)
{
    x = x > 9.9F ? 9.9F : x;
    return x < -9.9F ? -9.9F : x;
}

/* e^-z of a bounded x: |z| is below 85.1. */
ECH_INLINE float exp_of_inner(float v)
{
    return ech_exp_bounded(-TWO_SQRT_2_OVER_PI * (v + 0.044715F * v * v * v));
}

void ECH_CPU(gelu_forward)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ECH_SHAPES(gelu_forward, ECH_REAL, x, y);
    int64_t n = ech_tensor_count(x);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        ECH_ALIGNED float part[2][ECH_PART];
        int64_t count = ech_part(n, first, ECH_PART);
        const float *in = ech_part_of(x, first, count, part[0]);
        float *out = ech_part_to(y, first, part[1]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) out[i] = in[i] / (1.0F + exp_of_inner(bounded(in[i])));
        ech_part_done(y, first, count, out);
    }
}

void ECH_CPU(gelu_backward)(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                            const ech_tensor *dx)
{
    ECH_SHAPES(gelu_backward, ECH_REAL, dy, x, dx);
    int64_t n = ech_tensor_count(x);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        ECH_ALIGNED float part[3][ECH_PART];
        int64_t count = ech_part(n, first, ECH_PART);
        const float *d = ech_part_of(dy, first, count, part[0]);
        const float *in = ech_part_of(x, first, count, part[1]);
        float *out = ech_part_to(dx, first, part[2]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float v = bounded(in[i]);
            float e = exp_of_inner(v);
            float slope = TWO_SQRT_2_OVER_PI * (1.0F + 3 * 0.044715F * v * v);
            /* 1 - s as e s, which loses no digits where s is near 1. */
            float s = 1.0F / (1.0F + e);
            out[i] = d[i] * (s + v * slope * s * (e * s));
        }
        ech_part_done(dx, first, count, out);
    }
}

void ECH_CPU(swiglu_forward)(ech_kernel_context *context, const ech_tensor *gate,
                             const ech_tensor *up, const ech_tensor *y)
{
    ECH_SHAPES(swiglu_forward, ECH_REAL, gate, up, y);
    int64_t n = ech_tensor_count(gate);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        ECH_ALIGNED float part[3][ECH_PART];
        int64_t count = ech_part(n, first, ECH_PART);
        const float *g = ech_part_of(gate, first, count, part[0]);
        const float *u = ech_part_of(up, first, count, part[1]);
        float *out = ech_part_to(y, first, part[2]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) out[i] = g[i] * ech_sigmoid(g[i]) * u[i];
        ech_part_done(y, first, count, out);
    }
}

void ECH_CPU(swiglu_backward)(ech_kernel_context *context, const ech_tensor *dy,
                              const ech_tensor *gate, const ech_tensor *up, const ech_tensor *dgate,
                              const ech_tensor *dup)
{
    ECH_SHAPES(swiglu_backward, ECH_REAL, dy, gate, up, dgate, dup);
    int64_t n = ech_tensor_count(gate);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        ECH_ALIGNED float part[5][ECH_PART];
        int64_t count = ech_part(n, first, ECH_PART);
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
}

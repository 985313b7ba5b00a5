/* SPDX-License-Identifier: Apache-2.0
 *
 * The activations of kernel/activations.h, as their formulas are written there.
 */
#include <math.h>

#include "kernel/ref/real.h"

#define SQRT_2_OVER_PI 0.79788456080286535588
#define SQRT_HALF      0.70710678118654752440
#define SQRT_2_PI      2.50662827463100050242

/* ---- of one operand: y, and dx ---- */

static double relu(double v)
{
    return v < 0 ? 0 : v;
}

static double relu_gradient(double d, double v)
{
    return v > 0 ? d : 0;
}

static double relu2(double v)
{
    return v < 0 ? 0 : v * v;
}

static double relu2_gradient(double d, double v)
{
    return v > 0 ? d * 2 * v : 0;
}

static double gelu(double v)
{
    return v / 2 * (1 + tanh(SQRT_2_OVER_PI * (v + 0.044715 * v * v * v)));
}

static double gelu_gradient(double d, double v)
{
    double t = tanh(SQRT_2_OVER_PI * (v + 0.044715 * v * v * v));
    double inner = SQRT_2_OVER_PI * (1 + 3 * 0.044715 * v * v);
    return d * ((1 + t) / 2 + v / 2 * (1 - t * t) * inner);
}

static double gelu_exact(double v)
{
    return v * (erfc(-v * SQRT_HALF) / 2);
}

static double gelu_exact_gradient(double d, double v)
{
    return d * (erfc(-v * SQRT_HALF) / 2 + v * (exp(-v * v / 2) / SQRT_2_PI));
}

/* ---- of two: y, and the gradients of gate and up ---- */

static double swiglu(double v, double w)
{
    return v / (1 + exp(-v)) * w;
}

static void swiglu_gradient(double d, double v, double w, double *dv, double *dw)
{
    double s = 1 / (1 + exp(-v));
    *dv = d * w * s * (1 + v * (1 - s));
    *dw = d * v * s;
}

static double geglu(double v, double w)
{
    return gelu(v) * w;
}

static void geglu_gradient(double d, double v, double w, double *dv, double *dw)
{
    *dv = gelu_gradient(d * w, v);
    *dw = d * gelu(v);
}

static double geglu_exact(double v, double w)
{
    return gelu_exact(v) * w;
}

static void geglu_exact_gradient(double d, double v, double w, double *dv, double *dw)
{
    *dv = gelu_exact_gradient(d * w, v);
    *dw = d * gelu_exact(v);
}

/* A NaN is between all bounds. */
static double clamped(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

static double swiglu_clamped(double v, double w)
{
    double g = clamped(v, -INFINITY, 7), u = clamped(w, -7, 7);
    return g / (1 + exp(-1.702 * g)) * (u + 1);
}

static void swiglu_clamped_gradient(double d, double v, double w, double *dv, double *dw)
{
    double g = clamped(v, -INFINITY, 7), u = clamped(w, -7, 7), s = 1 / (1 + exp(-1.702 * g));
    *dv = v > 7 ? 0 : d * (u + 1) * s * (1 + 1.702 * g * (1 - s));
    *dw = w > 7 || w < -7 ? 0 : d * g * s;
}

/* ---- the rows ---- */

#define ROWS_1(name)                                                                               \
    void ECH_REF(name##_forward)(ech_kernel_context * context, const ech_tensor *x,                \
                                 const ech_tensor *y)                                              \
    {                                                                                              \
        ECH_SHAPES(name##_forward, ECH_REAL, x, y);                                                \
        for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++)                                   \
            ech_store(y, i, name(ech_value(x, i)));                                                \
    }                                                                                              \
    void ECH_REF(name##_backward)(ech_kernel_context * context, const ech_tensor *dy,              \
                                  const ech_tensor *x, const ech_tensor *dx)                       \
    {                                                                                              \
        ECH_SHAPES(name##_backward, ECH_REAL, dy, x, dx);                                          \
        for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++)                                   \
            ech_store(dx, i, name##_gradient(ech_value(dy, i), ech_value(x, i)));                  \
    }

#define ROWS_2(name)                                                                               \
    void ECH_REF(name##_forward)(ech_kernel_context * context, const ech_tensor *gate,             \
                                 const ech_tensor *up, const ech_tensor *y)                        \
    {                                                                                              \
        ECH_SHAPES(name##_forward, ECH_REAL, gate, up, y);                                         \
        for (int64_t i = 0, n = ech_tensor_count(gate); i < n; i++)                                \
            ech_store(y, i, name(ech_value(gate, i), ech_value(up, i)));                           \
    }                                                                                              \
    void ECH_REF(name##_backward)(ech_kernel_context * context, const ech_tensor *dy,              \
                                  const ech_tensor *gate, const ech_tensor *up,                    \
                                  const ech_tensor *dgate, const ech_tensor *dup)                  \
    {                                                                                              \
        ECH_SHAPES(name##_backward, ECH_REAL, dy, gate, up, dgate, dup);                           \
        for (int64_t i = 0, n = ech_tensor_count(gate); i < n; i++) {                              \
            double of_gate, of_up;                                                                 \
            name##_gradient(ech_value(dy, i), ech_value(gate, i), ech_value(up, i), &of_gate,      \
                            &of_up);                                                               \
            ech_store(dgate, i, of_gate);                                                          \
            ech_store(dup, i, of_up);                                                              \
        }                                                                                          \
    }

#define ROWS(NAME, name, operands, ...) ROWS_##operands(name)
ECH_ACTIVATIONS(ROWS)

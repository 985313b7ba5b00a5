/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, GELU (its tanh form) and the gated SiLU of SwiGLU.
 */
#include <math.h>

#include "kernel/ref/real.h"

#define SQRT_2_OVER_PI 0.79788456080286535588

void ECH_REF(relu_forward)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ECH_SHAPES(relu_forward, ECH_REAL, x, y);
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) {
        double v = ech_value(x, i);
        ech_store(y, i, v < 0 ? 0 : v);
    }
}

void ECH_REF(relu_backward)(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                            const ech_tensor *dx)
{
    ECH_SHAPES(relu_backward, ECH_REAL, dy, x, dx);
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++)
        ech_store(dx, i, ech_value(x, i) > 0 ? ech_value(dy, i) : 0);
}

void ECH_REF(gelu_forward)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ECH_SHAPES(gelu_forward, ECH_REAL, x, y);
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) {
        double v = ech_value(x, i);
        ech_store(y, i, v / 2 * (1 + tanh(SQRT_2_OVER_PI * (v + 0.044715 * v * v * v))));
    }
}

void ECH_REF(gelu_backward)(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                            const ech_tensor *dx)
{
    ECH_SHAPES(gelu_backward, ECH_REAL, dy, x, dx);
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) {
        double v = ech_value(x, i), t = tanh(SQRT_2_OVER_PI * (v + 0.044715 * v * v * v));
        double inner = SQRT_2_OVER_PI * (1 + 3 * 0.044715 * v * v);
        ech_store(dx, i, ech_value(dy, i) * ((1 + t) / 2 + v / 2 * (1 - t * t) * inner));
    }
}

void ECH_REF(swiglu_forward)(ech_kernel_context *context, const ech_tensor *gate,
                             const ech_tensor *up, const ech_tensor *y)
{
    ECH_SHAPES(swiglu_forward, ECH_REAL, gate, up, y);
    for (int64_t i = 0, n = ech_tensor_count(gate); i < n; i++) {
        double v = ech_value(gate, i);
        ech_store(y, i, v / (1 + exp(-v)) * ech_value(up, i));
    }
}

void ECH_REF(swiglu_backward)(ech_kernel_context *context, const ech_tensor *dy,
                              const ech_tensor *gate, const ech_tensor *up, const ech_tensor *dgate,
                              const ech_tensor *dup)
{
    ECH_SHAPES(swiglu_backward, ECH_REAL, dy, gate, up, dgate, dup);
    for (int64_t i = 0, n = ech_tensor_count(gate); i < n; i++) {
        double dout = ech_value(dy, i), v = ech_value(gate, i), w = ech_value(up, i);
        double s = 1 / (1 + exp(-v));
        ech_store(dgate, i, dout * w * s * (1 + v * (1 - s)));
        ech_store(dup, i, dout * v * s);
    }
}

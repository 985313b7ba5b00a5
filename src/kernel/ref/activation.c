/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU (its tanh form) and the gated SiLU of SwiGLU.
 */
#include <math.h>

#include "kernel/ref/real.h"

#define SQRT_2_OVER_PI 0.79788456080286535588

void ECH_REF(gelu_forward)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ECH_SHAPES(gelu_forward, ECH_REAL, x, y);
    const real *in = x->data;
    real *out = y->data;
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) {
        double v = ech_value(in[i]);
        out[i] = ech_stored(v / 2 * (1 + tanh(SQRT_2_OVER_PI * (v + 0.044715 * v * v * v))));
    }
}

void ECH_REF(gelu_backward)(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                            const ech_tensor *dx)
{
    ECH_SHAPES(gelu_backward, ECH_REAL, dy, x, dx);
    const real *in = x->data, *d = dy->data;
    real *out = dx->data;
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) {
        double v = ech_value(in[i]), t = tanh(SQRT_2_OVER_PI * (v + 0.044715 * v * v * v));
        double inner = SQRT_2_OVER_PI * (1 + 3 * 0.044715 * v * v);
        out[i] = ech_stored(ech_value(d[i]) * ((1 + t) / 2 + v / 2 * (1 - t * t) * inner));
    }
}

void ECH_REF(swiglu_forward)(ech_kernel_context *context, const ech_tensor *gate,
                             const ech_tensor *up, const ech_tensor *y)
{
    ECH_SHAPES(swiglu_forward, ECH_REAL, gate, up, y);
    const real *g = gate->data, *u = up->data;
    real *out = y->data;
    for (int64_t i = 0, n = ech_tensor_count(gate); i < n; i++)
        out[i] = ech_stored(ech_value(g[i]) / (1 + exp(-ech_value(g[i]))) * ech_value(u[i]));
}

void ECH_REF(swiglu_backward)(ech_kernel_context *context, const ech_tensor *dy,
                              const ech_tensor *gate, const ech_tensor *up, const ech_tensor *dgate,
                              const ech_tensor *dup)
{
    ECH_SHAPES(swiglu_backward, ECH_REAL, dy, gate, up, dgate, dup);
    const real *d = dy->data, *g = gate->data, *u = up->data;
    real *dg = dgate->data, *du = dup->data;
    for (int64_t i = 0, n = ech_tensor_count(gate); i < n; i++) {
        double dout = ech_value(d[i]), v = ech_value(g[i]), w = ech_value(u[i]),
               s = 1 / (1 + exp(-v));
        dg[i] = ech_stored(dout * w * s * (1 + v * (1 - s)));
        du[i] = ech_stored(dout * v * s);
    }
}

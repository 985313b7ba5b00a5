/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU (its tanh form) and the gated SiLU of SwiGLU.
 */
#include "kernel/cuda/real.h"

#define SQRT_2_OVER_PI ((wide)0.79788456080286535588)
#define CUBIC          ((wide)0.044715)

void ECH_CUDA(gelu_forward)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_gelu_forward, ECH_REAL, x, y);
    const ech_numbers from = x, to = y;
    ech_each(context, ech_tensor_count(x), [=] __device__(int64_t i, int n) {
        wide v[ECH_PART];
        from.load(i, n, v);
        for (int k = 0; k < ECH_PART; k++) {
            wide t = tanh(SQRT_2_OVER_PI * (v[k] + CUBIC * v[k] * v[k] * v[k]));
            v[k] = v[k] / 2 * (1 + t);
        }
        to.store(i, n, v);
    });
}

void ECH_CUDA(gelu_backward)(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                             const ech_tensor *dx)
{
    ech_cuda_check(ECH_OP_gelu_backward, ECH_REAL, dy, x, dx);
    const ech_numbers gradient = dy, from = x, to = dx;
    ech_each(context, ech_tensor_count(x), [=] __device__(int64_t i, int n) {
        wide d[ECH_PART], v[ECH_PART];
        gradient.load(i, n, d);
        from.load(i, n, v);
        for (int k = 0; k < ECH_PART; k++) {
            wide t = tanh(SQRT_2_OVER_PI * (v[k] + CUBIC * v[k] * v[k] * v[k]));
            wide inner = SQRT_2_OVER_PI * (1 + 3 * CUBIC * v[k] * v[k]);
            d[k] *= (1 + t) / 2 + v[k] / 2 * (1 - t * t) * inner;
        }
        to.store(i, n, d);
    });
}

void ECH_CUDA(swiglu_forward)(ech_kernel_context *context, const ech_tensor *gate,
                              const ech_tensor *up, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_swiglu_forward, ECH_REAL, gate, up, y);
    const ech_numbers gates = gate, ups = up, to = y;
    ech_each(context, ech_tensor_count(gate), [=] __device__(int64_t i, int n) {
        wide v[ECH_PART], w[ECH_PART];
        gates.load(i, n, v);
        ups.load(i, n, w);
        for (int k = 0; k < ECH_PART; k++) v[k] = v[k] / (1 + exp(-v[k])) * w[k];
        to.store(i, n, v);
    });
}

void ECH_CUDA(swiglu_backward)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *gate, const ech_tensor *up,
                               const ech_tensor *dgate, const ech_tensor *dup)
{
    ech_cuda_check(ECH_OP_swiglu_backward, ECH_REAL, dy, gate, up, dgate, dup);
    const ech_numbers gradient = dy, gates = gate, ups = up, to_gate = dgate, to_up = dup;
    ech_each(context, ech_tensor_count(gate), [=] __device__(int64_t i, int n) {
        wide d[ECH_PART], v[ECH_PART], w[ECH_PART];
        gradient.load(i, n, d);
        gates.load(i, n, v);
        ups.load(i, n, w);
        for (int k = 0; k < ECH_PART; k++) {
            wide s = 1 / (1 + exp(-v[k])), gated = d[k] * v[k] * s;
            v[k] = d[k] * w[k] * s * (1 + v[k] * (1 - s));
            w[k] = gated;
        }
        to_gate.store(i, n, v);
        to_up.store(i, n, w);
    });
}

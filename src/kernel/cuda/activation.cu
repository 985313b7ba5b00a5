/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU (its tanh form) and the gated SiLU of SwiGLU.
 */
#include "kernel/cuda/real.cuh"

#define SQRT_8_OVER_PI ((wide)1.5957691216057307118)
#define CUBIC          ((wide)0.044715)

/* The sigmoid of v; and of -v, without a difference of numbers alike. */
static __device__ wide sigmoid(wide v, wide *rest)
{
    wide e = exp(-fabs(v)), large = 1 / (1 + e), small = e * large;
    *rest = v < 0 ? large : small;
    return v < 0 ? small : large;
}

/* (1 + tanh(u / 2)) / 2 is the sigmoid of u; of GELU, u is this. */
static __device__ wide gelu_angle(wide v)
{
    return SQRT_8_OVER_PI * (v + CUBIC * v * v * v);
}

void ECH_CUDA(gelu_forward)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_gelu_forward, ECH_REAL, x, y);
    const ech_numbers from = x, to = y;
    ech_each(context, ech_tensor_count(x), [=] __device__(int64_t i, int n) {
        wide v[ECH_PART];
        from.load(i, n, v);
        for (int k = 0; k < ECH_PART; k++) {
            wide rest;
            v[k] *= sigmoid(gelu_angle(v[k]), &rest);
        }
        to.store(i, n, v);
    });
}

void ECH_CUDA(gelu_backward)(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                             const ech_tensor *dx)
{
    ech_cuda_check(ECH_OP_gelu_backward, ECH_REAL, dy, x, dx);
    ech_each_pair(context, dy, x, dx, [] __device__(wide d, wide v) {
        wide rest, s = sigmoid(gelu_angle(v), &rest);
        return d * (s + v * s * rest * SQRT_8_OVER_PI * (1 + 3 * CUBIC * v * v));
    });
}

void ECH_CUDA(swiglu_forward)(ech_kernel_context *context, const ech_tensor *gate,
                              const ech_tensor *up, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_swiglu_forward, ECH_REAL, gate, up, y);
    ech_each_pair(context, gate, up, y, [] __device__(wide v, wide w) {
        wide rest, s = sigmoid(v, &rest);
        return v * (s * w);
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
            wide rest, s = sigmoid(v[k], &rest);
            wide gated = d[k] * v[k] * s;
            v[k] = d[k] * w[k] * s * (1 + v[k] * rest);
            w[k] = gated;
        }
        to_gate.store(i, n, v);
        to_up.store(i, n, w);
    });
}

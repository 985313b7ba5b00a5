/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, GELU (its tanh form) and the gated SiLU of SwiGLU for single numbers.
 */
#ifndef ECH_KERNEL_CUDA_ACTIVATION_H
#define ECH_KERNEL_CUDA_ACTIVATION_H

#include "kernel/cuda/real.cuh"

namespace
{

#define ECH_SQRT_8_OVER_PI ((wide)1.5957691216057307118)
#define ECH_CUBIC          ((wide)0.044715)

/* The sigmoid of v; and of -v, without cancellation. */
static __device__ inline wide ech_sigmoid(wide v, wide *rest)
{
    wide e = exp(-fabs(v)), large = 1 / (1 + e), small = e * large;
    *rest = v < 0 ? large : small;
    return v < 0 ? small : large;
}

/* (1 + tanh(u / 2)) / 2 is the sigmoid of u; for GELU, u is this. */
static __device__ inline wide ech_gelu_angle(wide v)
{
    return ECH_SQRT_8_OVER_PI * (v + ECH_CUBIC * v * v * v);
}

struct ech_relu {
    __device__ wide operator()(wide v) const { return v < 0 ? 0 : v; }
};

struct ech_relu_gradient {
    __device__ wide operator()(wide d, wide v) const { return v > 0 ? d : 0; }
};

struct ech_gelu {
    __device__ wide operator()(wide v) const
    {
        wide rest;
        return v * ech_sigmoid(ech_gelu_angle(v), &rest);
    }
};

struct ech_gelu_gradient {
    __device__ wide operator()(wide d, wide v) const
    {
        wide rest, s = ech_sigmoid(ech_gelu_angle(v), &rest);
        return d * (s + v * s * rest * ECH_SQRT_8_OVER_PI * (1 + 3 * ECH_CUBIC * v * v));
    }
};

struct ech_swiglu {
    __device__ wide operator()(wide v, wide w) const
    {
        wide rest, s = ech_sigmoid(v, &rest);
        return v * (s * w);
    }
};

/* gate and up become their gradients. */
static __device__ inline void ech_swiglu_gradient(wide d, wide *gate, wide *up)
{
    wide rest, v = *gate, s = ech_sigmoid(v, &rest);
    *gate = d * *up * s * (1 + v * rest);
    *up = d * v * s;
}

} // namespace

#endif

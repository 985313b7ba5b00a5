/* SPDX-License-Identifier: Apache-2.0
 *
 * The activations of kernel/activations.h, of single numbers.
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

struct ech_relu2 {
    __device__ wide operator()(wide v) const
    {
        return v < 0 ? 0 : v * v;
    }
};

struct ech_relu2_gradient {
    __device__ wide operator()(wide d, wide v) const
    {
        return v > 0 ? d * 2 * v : 0;
    }
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
        wide rest, s = ech_sigmoid(ech_gelu_angle(v), &rest), slope = s * rest;
        if (slope == 0) return d * s; /* far out, where the square overflows */
        return d * (s + v * slope * ECH_SQRT_8_OVER_PI * (1 + 3 * ECH_CUBIC * v * v));
    }
};

/* The normal distribution up to v. */
static __device__ inline wide ech_normal(wide v)
{
    return erfc(-v * (wide)0.70710678118654752440) / 2;
}

struct ech_gelu_exact {
    __device__ wide operator()(wide v) const
    {
        return v * ech_normal(v);
    }
};

struct ech_gelu_exact_gradient {
    __device__ wide operator()(wide d, wide v) const
    {
        return d * (ech_normal(v) + v * (exp(-v * v / 2) * (wide)0.39894228040143267794));
    }
};

struct ech_swiglu {
    __device__ wide operator()(wide v, wide w) const
    {
        wide rest, s = ech_sigmoid(v, &rest);
        return v * (s * w);
    }
};

/* Of two operands: gate and up become their gradients. */
struct ech_swiglu_gradient {
    __device__ void operator()(wide d, wide *gate, wide *up) const
    {
        wide rest, v = *gate, s = ech_sigmoid(v, &rest);
        *gate = d * *up * s * (1 + v * rest);
        *up = d * v * s;
    }
};

template <typename Value> struct ech_gated {
    __device__ wide operator()(wide v, wide w) const
    {
        return Value()(v) * w;
    }
};

template <typename Value, typename Gradient> struct ech_gated_gradient {
    __device__ void operator()(wide d, wide *gate, wide *up) const
    {
        wide v = *gate;
        *gate = Gradient()(d * *up, v);
        *up = d * Value()(v);
    }
};

typedef ech_gated<ech_gelu> ech_geglu;
typedef ech_gated_gradient<ech_gelu, ech_gelu_gradient> ech_geglu_gradient;
typedef ech_gated<ech_gelu_exact> ech_geglu_exact;
typedef ech_gated_gradient<ech_gelu_exact, ech_gelu_exact_gradient> ech_geglu_exact_gradient;

#define ECH_CLAMPED_SLOPE ((wide)1.702)

/* A NaN is between all bounds. */
static __device__ inline wide ech_clamp_up(wide w)
{
    return w < -7 ? -7 : w > 7 ? 7 : w;
}

struct ech_swiglu_clamped {
    __device__ wide operator()(wide v, wide w) const
    {
        wide rest, g = v > 7 ? 7 : v, s = ech_sigmoid(ECH_CLAMPED_SLOPE * g, &rest);
        return g * s * (ech_clamp_up(w) + 1);
    }
};

struct ech_swiglu_clamped_gradient {
    __device__ void operator()(wide d, wide *gate, wide *up) const
    {
        wide rest, v = *gate, w = *up, g = v > 7 ? 7 : v;
        wide s = ech_sigmoid(ECH_CLAMPED_SLOPE * g, &rest);
        *gate = v > 7 ? 0 : d * (ech_clamp_up(w) + 1) * s * (1 + ECH_CLAMPED_SLOPE * g * rest);
        *up = w > 7 || w < -7 ? 0 : d * g * s;
    }
};

/* The gradients of n elements from the i-th on, of an activation of two operands. */
template <typename Gradient>
static __device__ void ech_gradients_of_part(const ech_numbers &dy, const ech_numbers &gate,
                                             const ech_numbers &up, const ech_numbers &dgate,
                                             const ech_numbers &dup, int64_t i, int n)
{
    wide d[ECH_PART], v[ECH_PART], w[ECH_PART];
    dy.load(i, n, d);
    gate.load(i, n, v);
    up.load(i, n, w);
    for (int k = 0; k < ECH_PART; k++) Gradient()(d[k], &v[k], &w[k]);
    dgate.store(i, n, v);
    dup.store(i, n, w);
}

} // namespace

#endif

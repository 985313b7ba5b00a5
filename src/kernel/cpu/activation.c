/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, GELU and SwiGLU.
 */
#include "kernel/cpu/activation.h"
#include "kernel/shape.h"

void ECH_CPU(relu_forward)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ECH_SHAPES(relu_forward, ECH_REAL, x, y);
    int64_t n = ech_tensor_count(x);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART)
        ech_relu_forward_part(x, y, first, ech_part(n, first, ECH_PART));
}

void ECH_CPU(relu_backward)(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                            const ech_tensor *dx)
{
    ECH_SHAPES(relu_backward, ECH_REAL, dy, x, dx);
    int64_t n = ech_tensor_count(x);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART)
        ech_relu_backward_part(dy, x, dx, first, ech_part(n, first, ECH_PART));
}

void ECH_CPU(gelu_forward)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ECH_SHAPES(gelu_forward, ECH_REAL, x, y);
    int64_t n = ech_tensor_count(x);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART)
        ech_gelu_forward_part(x, y, first, ech_part(n, first, ECH_PART));
}

void ECH_CPU(gelu_backward)(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                            const ech_tensor *dx)
{
    ECH_SHAPES(gelu_backward, ECH_REAL, dy, x, dx);
    int64_t n = ech_tensor_count(x);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART)
        ech_gelu_backward_part(dy, x, dx, first, ech_part(n, first, ECH_PART));
}

void ECH_CPU(swiglu_forward)(ech_kernel_context *context, const ech_tensor *gate,
                             const ech_tensor *up, const ech_tensor *y)
{
    ECH_SHAPES(swiglu_forward, ECH_REAL, gate, up, y);
    int64_t n = ech_tensor_count(gate);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART)
        ech_swiglu_forward_part(gate, up, y, first, ech_part(n, first, ECH_PART));
}

void ECH_CPU(swiglu_backward)(ech_kernel_context *context, const ech_tensor *dy,
                              const ech_tensor *gate, const ech_tensor *up, const ech_tensor *dgate,
                              const ech_tensor *dup)
{
    ECH_SHAPES(swiglu_backward, ECH_REAL, dy, gate, up, dgate, dup);
    int64_t n = ech_tensor_count(gate);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART)
        ech_swiglu_backward_part(dy, gate, up, dgate, dup, first, ech_part(n, first, ECH_PART));
}

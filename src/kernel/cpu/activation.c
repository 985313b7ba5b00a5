/* SPDX-License-Identifier: Apache-2.0
 *
 * The activations of kernel/activations.h.
 */
#include "kernel/cpu/activation.h"
#include "kernel/shape.h"

/* Calls part(..., first, count) for the parts of tensors like x. */
#define EACH_PART(x, part, ...)                                                                    \
    int64_t n = ech_tensor_count(x);                                                               \
    _Pragma(                                                                                       \
        "omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)") for (int64_t first =  \
                                                                                      0;           \
                                                                                  first < n;       \
                                                                                  first +=         \
                                                                                  ECH_PART)        \
        part(__VA_ARGS__, first, ech_part(n, first, ECH_PART));

#define ROWS_1(name)                                                                               \
    void ECH_CPU(name##_forward)(ech_kernel_context * context, const ech_tensor *x,                \
                                 const ech_tensor *y)                                              \
    {                                                                                              \
        ECH_SHAPES(name##_forward, ECH_REAL, x, y);                                                \
        EACH_PART(x, ech_##name##_forward_part, x, y)                                              \
    }                                                                                              \
    void ECH_CPU(name##_backward)(ech_kernel_context * context, const ech_tensor *dy,              \
                                  const ech_tensor *x, const ech_tensor *dx)                       \
    {                                                                                              \
        ECH_SHAPES(name##_backward, ECH_REAL, dy, x, dx);                                          \
        EACH_PART(x, ech_##name##_backward_part, dy, x, dx)                                        \
    }

#define ROWS_2(name)                                                                               \
    void ECH_CPU(name##_forward)(ech_kernel_context * context, const ech_tensor *gate,             \
                                 const ech_tensor *up, const ech_tensor *y)                        \
    {                                                                                              \
        ECH_SHAPES(name##_forward, ECH_REAL, gate, up, y);                                         \
        EACH_PART(gate, ech_##name##_forward_part, gate, up, y)                                    \
    }                                                                                              \
    void ECH_CPU(name##_backward)(ech_kernel_context * context, const ech_tensor *dy,              \
                                  const ech_tensor *gate, const ech_tensor *up,                    \
                                  const ech_tensor *dgate, const ech_tensor *dup)                  \
    {                                                                                              \
        ECH_SHAPES(name##_backward, ECH_REAL, dy, gate, up, dgate, dup);                           \
        EACH_PART(gate, ech_##name##_backward_part, dy, gate, up, dgate, dup)                      \
    }

#define ROWS(NAME, name, operands, ...) ROWS_##operands(name)
ECH_ACTIVATIONS(ROWS)

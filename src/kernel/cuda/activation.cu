/* SPDX-License-Identifier: Apache-2.0
 *
 * The activations of kernel/activations.h.
 */
#include "kernel/cuda/activation.cuh"
#include "kernel/cuda/reduce.cuh"

/* y = f(x), number by number. */
template <typename F>
static void each_number(const ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y,
                        F f)
{
    const ech_numbers from = x, to = y;
    ech_each(context, ech_tensor_count(x), [=] __device__(int64_t i, int n) {
        wide v[ECH_PART];
        from.load(i, n, v);
        for (int k = 0; k < ECH_PART; k++) v[k] = f(v[k]);
        to.store(i, n, v);
    });
}

/* dx = f(dy, x), and the sum of its rows. */
template <typename F>
static void backward_bias(const ech_kernel_context *context, const ech_tensor *dy,
                          const ech_tensor *x, const ech_tensor *dx, bool accumulate,
                          const ech_tensor *dbias, F f)
{
    const ech_numbers gradient = dy, from = x, to = dx;
    const int64_t C = x->shape[1];
    ech_columns(
        context, x->shape[0], C, ech_plus(),
        [=] __device__(int64_t r, int64_t c, int n, wide *value) {
            wide v[ECH_PART];
            gradient.load(r * C + c, n, value);
            from.load(r * C + c, n, v);
            for (int k = 0; k < ECH_PART; k++) value[k] = f(value[k], v[k]);
            to.store(r * C + c, n, value);
            for (int k = 0; k < ECH_PART; k++) value[k] = ech_rounded(value[k]);
        },
        ech_put_sum{dbias, accumulate});
}

#define ROWS_1(name)                                                                               \
    void ECH_CUDA(name##_forward)(ech_kernel_context * context, const ech_tensor *x,               \
                                  const ech_tensor *y)                                             \
    {                                                                                              \
        ech_cuda_check(ECH_OP_##name##_forward, ECH_REAL, x, y);                                   \
        each_number(context, x, y, ech_##name());                                                  \
    }                                                                                              \
    void ECH_CUDA(name##_backward)(ech_kernel_context * context, const ech_tensor *dy,             \
                                   const ech_tensor *x, const ech_tensor *dx)                      \
    {                                                                                              \
        ech_cuda_check(ECH_OP_##name##_backward, ECH_REAL, dy, x, dx);                             \
        ech_each_pair(context, dy, x, dx, ech_##name##_gradient());                                \
    }                                                                                              \
    void ECH_CUDA(name##_backward_bias)(ech_kernel_context * context, const ech_tensor *dy,        \
                                        const ech_tensor *x, const ech_tensor *dx,                 \
                                        bool accumulate, const ech_tensor *dbias)                  \
    {                                                                                              \
        ech_cuda_check(ECH_OP_##name##_backward_bias, ECH_REAL, dy, x, dx, dbias);                 \
        backward_bias(context, dy, x, dx, accumulate, dbias, ech_##name##_gradient());             \
    }

#define ROWS_2(name)                                                                               \
    void ECH_CUDA(name##_forward)(ech_kernel_context * context, const ech_tensor *gate,            \
                                  const ech_tensor *up, const ech_tensor *y)                       \
    {                                                                                              \
        ech_cuda_check(ECH_OP_##name##_forward, ECH_REAL, gate, up, y);                            \
        ech_each_pair(context, gate, up, y, ech_##name());                                         \
    }                                                                                              \
    void ECH_CUDA(name##_backward)(ech_kernel_context * context, const ech_tensor *dy,             \
                                   const ech_tensor *gate, const ech_tensor *up,                   \
                                   const ech_tensor *dgate, const ech_tensor *dup)                 \
    {                                                                                              \
        ech_cuda_check(ECH_OP_##name##_backward, ECH_REAL, dy, gate, up, dgate, dup);              \
        const ech_numbers gradient = dy, gates = gate, ups = up, to_gate = dgate, to_up = dup;     \
        ech_each(context, ech_tensor_count(gate), [=] __device__(int64_t i, int n) {               \
            ech_gradients_of_part<ech_##name##_gradient>(gradient, gates, ups, to_gate, to_up, i,  \
                                                         n);                                       \
        });                                                                                        \
    }

#define ROWS(NAME, name, operands, ...) ROWS_##operands(name)
ECH_ACTIVATIONS(ROWS)

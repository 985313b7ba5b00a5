/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, GELU (its tanh form) and the gated SiLU of SwiGLU.
 */
#include "kernel/cuda/activation.cuh"
#include "kernel/cuda/reduce.cuh"

void ECH_CUDA(relu_forward)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_relu_forward, ECH_REAL, x, y);
    const ech_numbers from = x, to = y;
    ech_each(context, ech_tensor_count(x), [=] __device__(int64_t i, int n) {
        wide v[ECH_PART];
        from.load(i, n, v);
        for (int k = 0; k < ECH_PART; k++) v[k] = ech_relu()(v[k]);
        to.store(i, n, v);
    });
}

void ECH_CUDA(relu_backward)(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                             const ech_tensor *dx)
{
    ech_cuda_check(ECH_OP_relu_backward, ECH_REAL, dy, x, dx);
    ech_each_pair(context, dy, x, dx, ech_relu_gradient());
}

void ECH_CUDA(gelu_forward)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_gelu_forward, ECH_REAL, x, y);
    const ech_numbers from = x, to = y;
    ech_each(context, ech_tensor_count(x), [=] __device__(int64_t i, int n) {
        wide v[ECH_PART];
        from.load(i, n, v);
        for (int k = 0; k < ECH_PART; k++) v[k] = ech_gelu()(v[k]);
        to.store(i, n, v);
    });
}

void ECH_CUDA(gelu_backward)(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                             const ech_tensor *dx)
{
    ech_cuda_check(ECH_OP_gelu_backward, ECH_REAL, dy, x, dx);
    ech_each_pair(context, dy, x, dx, ech_gelu_gradient());
}

void ECH_CUDA(gelu_backward_bias)(ech_kernel_context *context, const ech_tensor *dy,
                                  const ech_tensor *x, const ech_tensor *dx, bool accumulate,
                                  const ech_tensor *dbias)
{
    ech_cuda_check(ECH_OP_gelu_backward_bias, ECH_REAL, dy, x, dx, dbias);
    const ech_numbers gradient = dy, from = x, to = dx;
    const int64_t C = x->shape[1];
    ech_columns(
        context, x->shape[0], C, ech_plus(),
        [=] __device__(int64_t r, int64_t c, int n, wide *value) {
            wide v[ECH_PART];
            gradient.load(r * C + c, n, value);
            from.load(r * C + c, n, v);
            for (int k = 0; k < ECH_PART; k++) value[k] = ech_gelu_gradient()(value[k], v[k]);
            to.store(r * C + c, n, value);
            for (int k = 0; k < ECH_PART; k++) value[k] = ech_rounded(value[k]);
        },
        ech_put_sum{dbias, accumulate});
}

void ECH_CUDA(swiglu_forward)(ech_kernel_context *context, const ech_tensor *gate,
                              const ech_tensor *up, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_swiglu_forward, ECH_REAL, gate, up, y);
    ech_each_pair(context, gate, up, y, ech_swiglu());
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
        for (int k = 0; k < ECH_PART; k++) ech_swiglu_gradient(d[k], &v[k], &w[k]);
        to_gate.store(i, n, v);
        to_up.store(i, n, w);
    });
}

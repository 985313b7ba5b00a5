/* SPDX-License-Identifier: Apache-2.0
 *
 * Sinks of attention.
 */
#include "kernel/cuda/real.cuh"
#include "kernel/cuda/reduce.cuh"

void ECH_CUDA(sinks_forward)(ech_kernel_context *context, const ech_tensor *sinks,
                             const ech_tensor *out, const ech_tensor *lse)
{
    ech_cuda_check(ECH_OP_sinks_forward, ECH_REAL, sinks, out, lse);
    const ech_numbers to = out;
    const wide *sink = static_cast<const wide *>(sinks->data);
    wide *row = static_cast<wide *>(lse->data);
    const int64_t T = out->shape[1], H = out->shape[2];
    ech_each(context, ech_tensor_count(out), [=] __device__(int64_t i, int n) {
        wide zeros[ECH_PART] = {};
        to.store(i, n, zeros);
    });
    ech_each(context, ech_tensor_count(lse), [=] __device__(int64_t i, int n) {
        for (int k = 0; k < n; k++) row[i + k] = sink[(i + k) / T % H];
    });
}

/* A block a head. */
static __global__ void sink_gradient(ech_numbers dout, ech_numbers out, const wide *lse,
                                     const wide *sinks, int64_t B, int64_t T, int64_t D,
                                     bool accumulate, ech_numbers dsinks)
{
    ECH_SHARED(double, room, ECH_BLOCK / ECH_WARP);
    const int64_t h = blockIdx.x, H = gridDim.x;
    double sum = 0;
    for (int64_t row = threadIdx.x; row < B * T; row += blockDim.x) {
        const int64_t first = (row * H + h) * D;
        wide delta = 0;
        for (int64_t d = 0; d < D; d++) delta += dout.get(first + d) * out.get(first + d);
        sum -= exp(sinks[h] - lse[(row / T * H + h) * T + row % T]) * delta;
    }
    sum = ech_block_fold(ech_plus(), sum, room);
    if (threadIdx.x == 0) dsinks.put(h, (wide)(accumulate ? sum + dsinks.get(h) : sum));
}

void ECH_CUDA(sinks_backward)(ech_kernel_context *context, const ech_tensor *dout,
                              const ech_tensor *out, const ech_tensor *lse, const ech_tensor *sinks,
                              bool accumulate, const ech_tensor *dsinks)
{
    ech_cuda_check(ECH_OP_sinks_backward, ECH_REAL, dout, out, lse, sinks, dsinks);
    ech_launch(context, sink_gradient, dim3((unsigned)out->shape[2]), ECH_BLOCK, 0,
               ech_numbers(dout), ech_numbers(out), static_cast<const wide *>(lse->data),
               static_cast<const wide *>(sinks->data), out->shape[0], out->shape[1], out->shape[3],
               accumulate, ech_numbers(dsinks));
}

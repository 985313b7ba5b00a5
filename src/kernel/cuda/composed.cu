/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are two others, one after the other.
 */
#include "kernel/cuda/real.cuh"

extern "C" {
#define ECH_COMPOSED        ECH_CUDA
#define ECH_COMPOSED_MATMUL ECH_CUDA(matmul)
#include "kernel/composed.h"
}

void ECH_CUDA(add_layernorm)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                             const ech_tensor *x, const ech_tensor *gain, const ech_tensor *bias,
                             double eps, const ech_tensor *y, const ech_tensor *mean,
                             const ech_tensor *rstd)
{
    ECH_CUDA(add)(context, a, b, x);
    ECH_CUDA(layernorm_forward)(context, x, gain, bias, eps, y, mean, rstd);
}

void ECH_CUDA(add_rmsnorm)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                           const ech_tensor *x, const ech_tensor *gain, double eps,
                           const ech_tensor *y, const ech_tensor *rstd)
{
    ECH_CUDA(add)(context, a, b, x);
    ECH_CUDA(rmsnorm_forward)(context, x, gain, eps, y, rstd);
}

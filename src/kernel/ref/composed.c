/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are defined by two others.
 */
#include "kernel/ref/real.h"

#define ECH_COMPOSED        ECH_REF
#define ECH_COMPOSED_MATMUL ECH_REF(matmul)
#include "kernel/composed.h"

void ECH_REF(add_layernorm)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                            const ech_tensor *x, const ech_tensor *gain, const ech_tensor *bias,
                            double eps, const ech_tensor *y, const ech_tensor *mean,
                            const ech_tensor *rstd)
{
    ECH_REF(add)(context, a, b, x);
    ECH_REF(layernorm_forward)(context, x, gain, bias, eps, y, mean, rstd);
}

void ECH_REF(add_rmsnorm)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                          const ech_tensor *x, const ech_tensor *gain, double eps,
                          const ech_tensor *y, const ech_tensor *rstd)
{
    ECH_REF(add)(context, a, b, x);
    ECH_REF(rmsnorm_forward)(context, x, gain, eps, y, rstd);
}

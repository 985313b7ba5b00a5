/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused rows as a sequence of two rows of the same table, for tables without a faster version. The
 * including file names the functions: ECH_COMPOSED(row), and ECH_COMPOSED_MATMUL, which may be
 * another table's. ECH_COMPOSED_NORMS: it has no rows of its own for sums with norms.
 * ECH_COMPOSED_BIAS: it has none for gradients with a bias's.
 */
#include "kernel/kernel.h"

#ifdef ECH_COMPOSED
#define FUSED_1(name)                                                                              \
    void ECH_COMPOSED(matmul_##name)(                                                              \
        ech_kernel_context * context, const ech_tensor *a, bool a_transposed, const ech_tensor *b, \
        bool b_transposed, const ech_tensor *bias, const ech_tensor *x, const ech_tensor *y)       \
    {                                                                                              \
        if (!x) x = y;                                                                             \
        ECH_COMPOSED_MATMUL(context, a, a_transposed, b, b_transposed, bias, NULL, x);             \
        ECH_COMPOSED(name##_forward)(context, x, y);                                               \
    }
#define FUSED_2(name)
#define FUSED(NAME, name, operands, ...) FUSED_##operands(name)
ECH_ACTIVATIONS(FUSED)
#undef FUSED_1

#ifdef ECH_COMPOSED_BIAS
#define FUSED_1(name)                                                                              \
    void ECH_COMPOSED(name##_backward_bias)(ech_kernel_context * context, const ech_tensor *dy,    \
                                            const ech_tensor *x, const ech_tensor *dx,             \
                                            bool accumulate, const ech_tensor *dbias)              \
    {                                                                                              \
        ECH_COMPOSED(name##_backward)(context, dy, x, dx);                                         \
        ECH_COMPOSED(bias_backward)(context, dx, accumulate, dbias);                               \
    }
ECH_ACTIVATIONS(FUSED)
#endif

#ifdef ECH_COMPOSED_NORMS
void ECH_COMPOSED(add_layernorm)(ech_kernel_context *context, const ech_tensor *a,
                                 const ech_tensor *b, const ech_tensor *x, const ech_tensor *gain,
                                 const ech_tensor *bias, double eps, const ech_tensor *y,
                                 const ech_tensor *mean, const ech_tensor *rstd)
{
    ECH_COMPOSED(add)(context, a, b, x);
    ECH_COMPOSED(layernorm_forward)(context, x, gain, bias, eps, y, mean, rstd);
}

void ECH_COMPOSED(add_rmsnorm)(ech_kernel_context *context, const ech_tensor *a,
                               const ech_tensor *b, const ech_tensor *x, const ech_tensor *gain,
                               double offset, double eps, const ech_tensor *y,
                               const ech_tensor *rstd)
{
    ECH_COMPOSED(add)(context, a, b, x);
    ECH_COMPOSED(rmsnorm_forward)(context, x, NULL, gain, offset, eps, y, rstd);
}
#endif

#endif

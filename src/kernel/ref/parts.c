/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of reductions over ranks.
 */
#include "kernel/ref/real.h"

void ECH_REF(add_parts)(ech_kernel_context *context, const ech_tensor *own, const ech_tensor *parts,
                        int64_t index, const ech_tensor *sum)
{
    ECH_SHAPES(add_parts, ECH_REAL, own, parts, sum);
    ech_tensor_add_parts(own, parts, index, sum);
}

void ECH_REF(convert)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ECH_SHAPES(convert, ECH_REAL, x, y);
    ECH_ASSERT(x->data == y->data);
    ech_tensor_convert(x, y);
}

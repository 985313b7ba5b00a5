/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels are measured against: multiply-adds that touch no memory, and the library's own matrix
 * product.
 */
#ifndef ECH_KERNEL_YARDSTICK_H
#define ECH_KERNEL_YARDSTICK_H

#include "kernel/kernel.h"

/* Independent fp32 multiply-adds in registers, `rounds` of them in each thread of the context. Returns
 * the floating-point operations done by all threads together. */
double ech_yardstick_multiply_adds(const ech_kernel_context *context, int64_t rounds);

/* c (M,N) = op(a) op(b), fp32, contiguous, shapes as kernel.def's matmul has them: one plain call of the
 * library behind the fast kernels. False where this build has no such library. */
bool ech_yardstick_library_product(const ech_tensor *a, bool a_transposed, const ech_tensor *b,
                                   bool b_transposed, const ech_tensor *c);

#endif

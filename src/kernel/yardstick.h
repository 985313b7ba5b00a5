/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference speeds for benchmarks of kernels: multiply-adds without memory accesses, and the library's own
 * matrix product.
 */
#ifndef ECH_KERNEL_YARDSTICK_H
#define ECH_KERNEL_YARDSTICK_H

#include "kernel/kernel.h"

/* Runs `rounds` rounds of independent fp32 multiply-adds in the registers of each thread of the context. Returns
 * the floating-point operations of all threads. */
double ech_yardstick_multiply_adds(const ech_kernel_context *context, int64_t rounds);

/* c (M,N) = op(a) op(b), fp32, contiguous, shapes as in kernel.def's matmul: one plain call of oneDNN. False:
 * this build is without it. */
bool ech_yardstick_library_product(const ech_tensor *a, bool a_transposed, const ech_tensor *b,
                                   bool b_transposed, const ech_tensor *c);

#endif

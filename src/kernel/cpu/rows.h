/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast fp32 functions for CPUs, ech_cpu_NAME, as rows.def lists them, and their scratch needs.
 */
#ifndef ECH_KERNEL_CPU_ROWS_H
#define ECH_KERNEL_CPU_ROWS_H

#include "kernel/kernel.h"

#define X(name, arguments, scratch_dims)                                                           \
    void ech_cpu_##name(ech_kernel_context *context, ECH_UNPACK arguments);
#include "kernel/kernel.def"
#undef X

size_t ech_cpu_scratch_matmul(ech_dtype dtype, int threads, const int64_t *dims);
size_t ech_cpu_scratch_rotary(ech_dtype dtype, int threads, const int64_t *dims);
size_t ech_cpu_scratch_attention_forward(ech_dtype dtype, int threads, const int64_t *dims);
size_t ech_cpu_scratch_attention_backward(ech_dtype dtype, int threads, const int64_t *dims);

#endif

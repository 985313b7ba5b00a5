/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference kernels, ech_ref_NAME_f32, _f64 and, for the rows of bf16.def, _bf16, and their scratch
 * functions.
 */
#ifndef ECH_KERNEL_REF_ROWS_H
#define ECH_KERNEL_REF_ROWS_H

#include "kernel/kernel.h"

#define X(name, arguments, scratch_dims)                                                           \
    void ech_ref_##name##_f32(ech_kernel_context *context, ECH_UNPACK arguments);                  \
    void ech_ref_##name##_f64(ech_kernel_context *context, ECH_UNPACK arguments);                  \
    void ech_ref_##name##_bf16(ech_kernel_context *context, ECH_UNPACK arguments);
#include "kernel/kernel.def"
#undef X

/* Scratch bytes: fp64 accumulators of sums over rows; for attention a row of probabilities. */
size_t ech_ref_scratch_bias_backward(ech_dtype dtype, int threads, const int64_t *dims);
size_t ech_ref_scratch_layernorm_backward(ech_dtype dtype, int threads, const int64_t *dims);
size_t ech_ref_scratch_rmsnorm_backward(ech_dtype dtype, int threads, const int64_t *dims);
size_t ech_ref_scratch_attention_forward(ech_dtype dtype, int threads, const int64_t *dims);
size_t ech_ref_scratch_attention_backward(ech_dtype dtype, int threads, const int64_t *dims);

/* The initializers of a table's scratch functions. */
#define ECH_REF_SCRATCH(op) [ECH_OP_##op] = ech_ref_scratch_##op
#define ECH_REF_SCRATCHES                                                                          \
    ECH_REF_SCRATCH(bias_backward), ECH_REF_SCRATCH(layernorm_backward),                           \
        ECH_REF_SCRATCH(rmsnorm_backward), ECH_REF_SCRATCH(attention_forward),                     \
        ECH_REF_SCRATCH(attention_backward)

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast kernels for CPUs, and their scratch functions (ech_kernel_scratch_fn). rows.def lists
 * the rows of kernel.def that have one. Files with loops are compiled once per instruction set and
 * type, with the macro ECH_ISA defined as the set's name and, for 16-bit types, ECH_REAL_BF16 or
 * ECH_REAL_F16: ECH_CPU(add) is ech_cpu_add_avx2_f32. This code runs only on machines with the set.
 * So these files must not define a symbol that another object defines, since the linker could use
 * this version for all: functions in headers are static inline.
 */
#ifndef ECH_KERNEL_CPU_ROWS_H
#define ECH_KERNEL_CPU_ROWS_H

#include "kernel/kernel.h"

#define ECH_CPU_JOIN(name, isa, type)   ech_cpu_##name##_##isa##_##type
#define ECH_CPU_EXPAND(name, isa, type) ECH_CPU_JOIN(name, isa, type)
/* The real type: ech_real is the element type of tensors (the bits for 16-bit types), ECH_REAL its
 * ech_dtype. */
#if defined(ECH_REAL_BF16)
#define ECH_CPU(name) ECH_CPU_EXPAND(name, ECH_ISA, bf16)
#define ECH_REAL      ECH_BF16
#define ECH_REAL_16
typedef uint16_t ech_real;
#ifdef __AVX512BF16__
#define ECH_PAIRS /* products of pairs of bf16 numbers, with sums in fp32 */
#endif
#elif defined(ECH_REAL_F16)
#define ECH_CPU(name) ECH_CPU_EXPAND(name, ECH_ISA, f16)
#define ECH_REAL      ECH_F16
#define ECH_REAL_16
typedef uint16_t ech_real;
#else
#define ECH_CPU(name) ECH_CPU_EXPAND(name, ECH_ISA, f32)
#define ECH_REAL      ECH_F32
typedef float ech_real;
#endif

#ifdef ECH_HAS_ONEDNN
/* Compiled once, since only oneDNN computes here: products of fp32 that are not thin, and the
 * library_product of ech_kernels, for benchmarks. ech_cpu_library_multiplies is the row for bf16 on
 * machines with products of bf16 pairs. It returns false, without computing, if the library has no
 * fast implementation: for rows with gaps if not computed in parts, and for empty sums. */
void ech_cpu_library_matmul(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                            const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                            const ech_tensor *add, const ech_tensor *c);
size_t ech_cpu_library_scratch_matmul(ech_dtype dtype, int threads, const int64_t *dims);
bool ech_cpu_library_multiplies(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                                const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                                const ech_tensor *add, const ech_tensor *c);
size_t ech_cpu_library_scratch(ech_dtype dtype, int threads, const int64_t *dims);
void ech_cpu_library_product(const ech_tensor *a, bool a_transposed, const ech_tensor *b,
                             bool b_transposed, const ech_tensor *c);
#define ECH_CPU_LIBRARY_PRODUCT ech_cpu_library_product
/* The rows grouped_matmul and grouped_matmul_weight of fp32, which need no scratch. */
void ech_cpu_grouped_matmul(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                            bool b_transposed, const ech_tensor *counts, bool accumulate,
                            const ech_tensor *c);
void ech_cpu_grouped_matmul_weight(ech_kernel_context *context, const ech_tensor *a,
                                   const ech_tensor *b, const ech_tensor *counts, bool accumulate,
                                   const ech_tensor *c);
/* Convolutions of fp32. */
#define DECLARE(op, ...)                                                                           \
    void ech_cpu_##op(ech_kernel_context *context, __VA_ARGS__);                                   \
    size_t ech_cpu_scratch_##op(ech_dtype dtype, int threads, const int64_t *dims);
DECLARE(conv2d_forward, const ech_tensor *x, const ech_tensor *weight, const ech_tensor *bias,
        const ech_filter *at, const ech_tensor *y)
DECLARE(conv2d_backward_input, const ech_tensor *dy, const ech_tensor *weight, const ech_filter *at,
        const ech_tensor *dx)
DECLARE(conv2d_backward_weight, const ech_tensor *dy, const ech_tensor *x, const ech_filter *at,
        bool accumulate, const ech_tensor *dweight)
#undef DECLARE
#else
#define ECH_CPU_LIBRARY_PRODUCT NULL
#endif

/* The rows of images in 16-bit types are the definition's. Convolutions of fp32 are the library's,
 * or, in a build without it, the definition's as well. */
#ifdef ECH_REAL_16
#define ECH_CPU_FP32(op) NULL
#else
#define ECH_CPU_FP32(op) ECH_CPU(op)
#endif
#if defined(ECH_HAS_ONEDNN) && !defined(ECH_REAL_16)
#define ECH_CPU_IMAGES(op) ech_cpu_##op
#else
#define ECH_CPU_IMAGES(op) NULL
#endif

/* Products of fp32 are thin (thin.c), or computed by the library if the build has it; all others
 * are computed in tiles (tiled.c). */
#if defined(ECH_HAS_ONEDNN) && !defined(ECH_REAL_16)
#define ECH_CPU_GROUPED(op)         ech_cpu_##op
#define ECH_CPU_SCRATCH_GROUPED(op) NULL
#else
#define ECH_CPU_GROUPED(op)         ECH_CPU(op)
#define ECH_CPU_SCRATCH_GROUPED(op) ECH_CPU(scratch_##op)
#endif

#ifdef ECH_ISA
extern const ech_kernels ECH_CPU(kernels);

#define X(name, arguments, ...)                                                                    \
    void ECH_CPU(name)(ech_kernel_context * context ECH_UNPACK arguments);
#include "kernel/kernel.def"
#undef X

#ifndef ECH_REAL_16
/* Computes a product of the row matmul, with checked shapes, if it is thin; false: not computed. */
bool ECH_CPU(multiplies_thin)(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                              const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                              const ech_tensor *add, const ech_tensor *c);
size_t ECH_CPU(scratch_thin)(ech_dtype dtype, int threads, const int64_t *dims);
#endif
size_t ECH_CPU(scratch_matmul)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_layernorm_backward)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_rmsnorm_backward)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_rotary)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_attention_forward)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_attention_backward)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_adafactor_sums)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_adamw8)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_router_forward)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_router_backward_weight)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_grouped_matmul)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_grouped_matmul_weight)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_batch_norm)(ech_dtype dtype, int threads, const int64_t *dims);
size_t ECH_CPU(scratch_sm3_maxima)(ech_dtype dtype, int threads, const int64_t *dims);
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of NVIDIA GPUs: ech_cuda_NAME_f32 and so on. With ECH_EMULATED, of the same source on the processor:
 * ech_emulated_NAME_f32.
 */
#ifndef ECH_KERNEL_CUDA_ROWS_H
#define ECH_KERNEL_CUDA_ROWS_H

#include "kernel/kernel.h"

/* A sum over the rows of a matrix is made in so many parts at most, in a fixed order: with one part a block of threads,
 * and the columns over the other blocks, it fills the largest GPUs. */
enum { ECH_CUDA_ROW_PARTS = 64 };
/* A product's workspace: what NVIDIA advises for cuBLASLt on Hopper; one size on all architectures, so that its choice of
 * an algorithm, and a plan, does not depend on the card. */
#ifdef ECH_EMULATED
enum { ECH_CUDA_WORKSPACE = 4 << 10 };
#else
enum { ECH_CUDA_WORKSPACE = 32 << 20 };
#endif
/* Scratch of several arrays: each begins at a multiple of so many bytes. */
enum { ECH_CUDA_ALIGNMENT = 256 };

static inline size_t ech_cuda_align(size_t bytes)
{
    return (bytes + ECH_CUDA_ALIGNMENT - 1) / ECH_CUDA_ALIGNMENT * ECH_CUDA_ALIGNMENT;
}

static inline int64_t ech_cuda_row_parts(int64_t R)
{
    return R < ECH_CUDA_ROW_PARTS ? R : (int64_t)ECH_CUDA_ROW_PARTS;
}

#ifdef ECH_EMULATED
#define ECH_CUDA_TABLE          ech_kernels_emulated
#define ECH_CUDA_NAME(op, type) ech_emulated_##op##_##type
#else
#define ECH_CUDA_TABLE          ech_kernels_cuda
#define ECH_CUDA_NAME(op, type) ech_cuda_##op##_##type
#endif

#if defined ECH_REAL_F64
#define ECH_REAL     ECH_F64
#define ECH_CUDA(op) ECH_CUDA_NAME(op, f64)
#elif defined ECH_REAL_BF16
#define ECH_REAL     ECH_BF16
#define ECH_CUDA(op) ECH_CUDA_NAME(op, bf16)
#elif defined ECH_REAL_F16
#define ECH_REAL     ECH_F16
#define ECH_CUDA(op) ECH_CUDA_NAME(op, f16)
#else
#define ECH_REAL     ECH_F32
#define ECH_CUDA(op) ECH_CUDA_NAME(op, f32)
#endif

#ifdef __cplusplus
extern "C" {
#endif
const ech_kernels *ECH_CUDA_TABLE(ech_dtype dtype);

#define DECLARE(name, type, arguments)                                                             \
    void ECH_CUDA_NAME(name, type)(ech_kernel_context * context ECH_UNPACK arguments);
#define X(name, arguments, ...)                                                                    \
    DECLARE(name, f32, arguments)                                                                  \
    DECLARE(name, f64, arguments) DECLARE(name, bf16, arguments) DECLARE(name, f16, arguments)
#include "kernel/kernel.def"
#undef X
#undef DECLARE
#ifdef __cplusplus
}
#endif

#endif

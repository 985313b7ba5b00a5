/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by cuBLASLt: fp32 products use TF32 only if the context allows it, and 16-bit products
 * sum in fp32. Each shape has one algorithm: the first one suggested by the library's heuristic
 * that adds in a fixed order. So a card and a library give the same bits in every run. With
 * ECH_EMULATED a stand-in replaces the library, only if ECHELON_EMULATED_LIBRARY is set.
 */
#ifndef ECH_KERNEL_CUDA_LIBRARY_H
#define ECH_KERNEL_CUDA_LIBRARY_H

#include "kernel/kernel.h"

/* c (M,N) = op(a) op(b) + bias (N) + add (M,N); strides are elements from row to row. A single row
 * has any stride. */
typedef struct ech_cuda_product {
    ech_dtype operands, results; /* types of a and b; of bias, add and c */
    int64_t M, N, K, a_stride, b_stride, add_stride, c_stride;
    bool a_transposed, b_transposed;
    const void *a, *b, *bias, *add; /* bias and add: NULL: none */
    void *c;
} ech_cuda_product;

#ifdef ECH_EMULATED
#define ECH_CUDA_LIBRARY(name) ech_emulated_library_##name
#else
#define ECH_CUDA_LIBRARY(name) ech_cuda_library_##name
#endif

/* True if the library is used for such a product; depends on strides, types and shape only. */
bool ECH_CUDA_LIBRARY(takes)(const ech_cuda_product *product);
/* Puts the product on the context's queue. workspace: ECH_CUDA_WORKSPACE bytes. False: the library
 * has no algorithm, and nothing was queued. Failures are reported as faults of the device. Any
 * thread may call it. */
bool ECH_CUDA_LIBRARY(multiply)(const ech_kernel_context *context, const ech_cuda_product *product,
                                void *workspace);

#endif

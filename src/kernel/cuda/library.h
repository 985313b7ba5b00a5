/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by cuBLASLt: in fp32 by TF32 only where the context allows it, of 16-bit types with sums
 * in fp32. Each shape has one algorithm, that which the library's heuristic names first, of those
 * that add in a fixed order: so a card and a library give the same bits in every run. With
 * ECH_EMULATED by a stand-in, and only where ECHELON_EMULATED_LIBRARY is set.
 */
#ifndef ECH_KERNEL_CUDA_LIBRARY_H
#define ECH_KERNEL_CUDA_LIBRARY_H

#include "kernel/kernel.h"

/* c (M,N) = op(a) op(b) + bias (N) + add (M,N); strides are elements from row to row. Rows of one
 * row have any stride. */
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

/* Whether it is asked for products of that kind: by strides, types and shape alone. */
bool ECH_CUDA_LIBRARY(takes)(const ech_cuda_product *product);
/* Puts the product on the context's queue. workspace: ECH_CUDA_WORKSPACE bytes. False: the library
 * knows no way, and nothing has been put. What fails is a fault of the device. Any thread. */
bool ECH_CUDA_LIBRARY(multiply)(const ech_kernel_context *context, const ech_cuda_product *product,
                                void *workspace);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's objects of one kernel context (ech_kernel_context.library), created at first use: for
 * each OpenMP thread an engine, a stream, and a cache of matmul primitives by shape.
 */
#ifndef ECH_KERNEL_CPU_LIBRARY_H
#define ECH_KERNEL_CPU_LIBRARY_H

#include "kernel/kernel.h"

/* The addend of a product: nothing, the old content of c, or another dense tensor. */
typedef enum ech_product_add { ECH_ADD_NOTHING, ECH_ADD_C, ECH_ADD_OTHER } ech_product_add;

/* Indices of a product's operands. Bias and add are NULL if absent. */
enum { ECH_IN_A, ECH_IN_B, ECH_IN_BIAS, ECH_IN_ADD, ECH_OUT_C, ECH_OPERANDS };

/* The cache's key: shapes, types and options of a product. Strides are between rows, in elements;
 * `add` is an ech_product_add, `dtype` the operands' ech_dtype: fp32, or bf16 where the machine has
 * products of its pairs; of bf16 ones bias, add and c may be fp32. Sums are in fp32. `part`: it is
 * part of a larger product; each thread multiplies some parts. Keys are compared as bytes: all
 * fields have one type, so that there is no padding. */
typedef struct ech_product {
    int64_t M, N, K, a_stride, b_stride, c_stride;
    int64_t a_transposed, b_transposed, has_bias, add, part;
    int64_t dtype[ECH_OPERANDS];
} ech_product;

/* Computes c with oneDNN's matmul primitive, which accepts rows with gaps. It uses all of the
 * context's threads and the library's preferred implementation. A `part`, in a parallel region,
 * runs on the calling thread alone with the library's GEMM and an equal share of the scratch. */
void ech_cpu_primitive(ech_kernel_context *context, const ech_product *product,
                       void *const operands[ECH_OPERANDS]);
size_t ech_cpu_primitive_scratch(int threads, const ech_product *product);

void ech_cpu_library_destroy(void *library); /* accepts NULL */

#endif

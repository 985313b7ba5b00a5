/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's objects of one kernel context (ech_kernel_context.library), created at first use: of
 * each OpenMP thread engine, stream, and a cache of matmul primitives by shape.
 */
#ifndef ECH_KERNEL_CPU_LIBRARY_H
#define ECH_KERNEL_CPU_LIBRARY_H

#include "kernel/kernel.h"

/* What is added to a product: nothing, the old content of c, or another dense tensor. */
typedef enum ech_product_add { ECH_ADD_NOTHING, ECH_ADD_C, ECH_ADD_OTHER } ech_product_add;

/* Indices of a product's operands. Those of bias and add are NULL where it has none. */
enum { ECH_IN_A, ECH_IN_B, ECH_IN_BIAS, ECH_IN_ADD, ECH_OUT_C, ECH_OPERANDS };

/* The cache's key: shapes, types and options of a product. Strides are between rows, in elements;
 * `add` is an ech_product_add, `dtype` the operands' ech_dtype: fp32, or bf16 where the machine has
 * products of its pairs; of bf16 ones bias, add and c may be fp32. Sums are in fp32. `part`: of a
 * larger product, of which each thread multiplies some. Keys are compared as bytes: all fields have
 * one type, so that there is no padding. */
typedef struct ech_product {
    int64_t M, N, K, a_stride, b_stride, c_stride;
    int64_t a_transposed, b_transposed, has_bias, add, part;
    int64_t dtype[ECH_OPERANDS];
} ech_product;

/* Computes c with oneDNN's matmul primitive: on all of the context's threads by what the library
 * prefers, but a part, in a parallel region, on the calling thread alone by its GEMM, with an equal
 * share of the scratch. That takes rows with gaps as well as dense ones. */
void ech_cpu_primitive(ech_kernel_context *context, const ech_product *product,
                       void *const operands[ECH_OPERANDS]);
size_t ech_cpu_primitive_scratch(int threads, const ech_product *product);

void ech_cpu_library_destroy(void *library); /* accepts NULL */

#endif

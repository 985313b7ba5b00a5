/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's objects of one rank: engine, stream and the primitives of the matrix products made so far.
 * They live in ech_kernel_context.library and are made at first use.
 */
#ifndef ECH_KERNEL_CPU_LIBRARY_H
#define ECH_KERNEL_CPU_LIBRARY_H

#include "kernel/kernel.h"

/* What is added to a product: nothing, what c holds, or another dense tensor. */
typedef enum ech_product_add { ECH_ADD_NOTHING, ECH_ADD_C, ECH_ADD_OTHER } ech_product_add;

/* What makes a product another one; strides are those between rows in memory, in elements; `add` is an
 * ech_product_add. Compared as bytes: all of one type, so that there are none between. */
typedef struct ech_product {
    int64_t M, N, K, a_stride, b_stride, c_stride;
    int64_t a_transposed, b_transposed, has_bias, add;
} ech_product;

/* The memory of a product. */
typedef struct ech_operands {
    void *a, *b, *bias, *add, *c; /* bias and add NULL where the product has none */
} ech_operands;

/* c by oneDNN's matmul primitive. It takes all of the context's threads. */
void ech_cpu_primitive(ech_kernel_context *context, const ech_product *product,
                       const ech_operands *operands);
size_t ech_cpu_primitive_scratch(int threads, const ech_product *product);

void ech_cpu_library_destroy(void *library); /* accepts NULL */

#endif

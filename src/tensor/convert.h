/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the floating-point types, element by element. Widening loses no bit; narrowing rounds to
 * the nearest, ties to even, and what is too large becomes an infinity (IEEE 754).
 */
#ifndef ECH_TENSOR_CONVERT_H
#define ECH_TENSOR_CONVERT_H

#include "tensor/tensor.h"

/* Whether it is fp32, fp64, bf16 or fp16: each converts into each other. */
bool ech_dtype_is_real(ech_dtype dtype);

/* n elements of floating-point types; memory as aligned as its type, and apart unless the types are
 * the same. */
void ech_convert(const void *from, ech_dtype from_dtype, void *to, ech_dtype to_dtype, int64_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion between floating-point types, element by element. Widening is exact; narrowing rounds to
 * nearest, ties to even, and overflows to infinity (IEEE 754).
 */
#ifndef ECH_TENSOR_CONVERT_H
#define ECH_TENSOR_CONVERT_H

#include "tensor/tensor.h"

/* Whether it is a floating-point type: fp32, fp64, bf16 or fp16. */
bool ech_dtype_is_real(ech_dtype dtype);

/* Converts n elements between floating-point types. Both arrays are aligned for their types; they must not
 * overlap unless the types are the same. */
void ech_convert(const void *from, ech_dtype from_dtype, void *to, ech_dtype to_dtype, int64_t n);

#endif

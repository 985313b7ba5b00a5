/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding NaN and infinities in unaligned bytes.
 */
#ifndef ECH_CHECKPOINT_FINITE_H
#define ECH_CHECKPOINT_FINITE_H

#include <stdint.h>

#include "tensor/tensor.h"

/* The index of the first NaN or infinity of n elements, which need not be aligned. -1: none, or
 * `dtype` is not a floating-point type. */
int64_t ech_find_nonfinite(ech_dtype dtype, const void *bytes, int64_t n);
/* "nan", "inf" or "-inf", for an element that is one of these. */
const char *ech_nonfinite_name(ech_dtype dtype, const void *element);

#endif

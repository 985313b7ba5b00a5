/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements that are NaN or infinite, in bytes as files have them.
 */
#ifndef ECH_CHECKPOINT_FINITE_H
#define ECH_CHECKPOINT_FINITE_H

#include <stdint.h>

#include "tensor/tensor.h"

/* The first such of n elements, which may lie anywhere; -1: all are finite, or of no floating-point type. */
int64_t ech_find_nonfinite(ech_dtype dtype, const void *bytes, int64_t n);
/* "nan", "inf" or "-inf": what such an element is. */
const char *ech_nonfinite_name(ech_dtype dtype, const void *element);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways of summing a tensor over a group, as far as plans must know them: names, scratch, bytes.
 * Pure.
 */
#ifndef ECH_COMM_REDUCTION_H
#define ECH_COMM_REDUCTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/tensor.h"

/* Rows of reduction.def. */
typedef enum ech_reduction {
#define X(name, text, help) ECH_REDUCTION_##name,
#include "comm/reduction.def"
#undef X
    ECH_REDUCTIONS
} ech_reduction;

const char *ech_reduction_name(ech_reduction reduction);
const char *ech_reduction_names(void); /* blank-separated, in the order of the enumerators */

/* Bytes of scratch that ech_group_reduce needs for n elements, and bytes that member `index` of
 * `size` sends. */
size_t ech_reduction_scratch(ech_reduction reduction, ech_dtype dtype, int64_t n, int size);
int64_t ech_reduction_bytes(ech_reduction reduction, ech_dtype dtype, int64_t n, int size,
                            int index);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The algorithms that all-reduce gradients over a group, as plans need them: names, scratch, and the bytes
 * that a member sends. Pure: nothing is sent here.
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

/* For an ech_group_reduce of n elements over `size` members: bytes of scratch that it needs, and payload
 * bytes that member `index` sends (of LIBRARY: the bytes of the tensor; what it sends is not known). */
size_t ech_reduction_scratch(ech_reduction reduction, ech_dtype dtype, int64_t n, int size);
int64_t ech_reduction_bytes(ech_reduction reduction, ech_dtype dtype, int64_t n, int size,
                            int index);

#endif

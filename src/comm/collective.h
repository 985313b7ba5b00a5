/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as plans need them: names, shards, scratch, and how many messages and bytes a member sends.
 * First those of tensor, sequence and context parallelism, then the algorithms that all-reduce gradients.
 * Pure: nothing is sent here.
 */
#ifndef ECH_COMM_COLLECTIVE_H
#define ECH_COMM_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/tensor.h"

/* Rows of collective.def. */
typedef enum ech_collective {
#define X(name, text, help) ECH_COLLECTIVE_##name,
#include "comm/collective.def"
#undef X
    ECH_COLLECTIVES
} ech_collective;

const char *ech_collective_name(ech_collective collective);

/* First element and element count of a member's shard of n elements over N members: contiguous, in member
 * order; the first n mod N shards are one element longer. With n < N the last ones are empty. */
int64_t ech_collective_shard_first(int64_t n, int N, int member);
int64_t ech_collective_shard_count(int64_t n, int N, int member);

/* In the next two, n counts elements: of the unsharded tensor that is summed or gathered; for ALL_TO_ALL
 * of the member's send buffer, a multiple of `size`; for SHIFT of the buffer, whose distance is taken not
 * to be a multiple of `size` (such a shift sends nothing). */

/* Bytes of scratch that the collective needs; 0 for those that sum nothing. */
size_t ech_collective_scratch(ech_collective collective, ech_dtype dtype, int64_t n, int size);
/* What member `index` of `size` sends; ech_group_count counts the same. */
typedef struct ech_collective_sends {
    int64_t messages, bytes; /* of payload */
} ech_collective_sends;
ech_collective_sends ech_collective_traffic(ech_collective collective, ech_dtype dtype, int64_t n,
                                            int size, int index);

/* ---- all-reduce of gradients ---- */

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

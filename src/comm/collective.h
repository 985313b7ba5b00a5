/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of tensor, sequence and context parallelism, as far as plans must know them:
 * names, pieces, scratch, messages and bytes. Pure.
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

/* Piece `piece` of n elements cut for N members: contiguous, in member order, the first n mod N of
 * them one longer than the others. Empty where n < N leaves nothing. */
int64_t ech_piece_first(int64_t n, int N, int piece);
int64_t ech_piece_count(int64_t n, int N, int piece);

/* n: elements of the WHOLE tensor (summed or gathered); for ALL_TO_ALL of the member's own whole
 * buffer, a multiple of size; for SHIFT of its buffer. Of a SHIFT it is taken that the distance is no
 * multiple of `size`, which would send nothing. */

/* Bytes of scratch that the call needs; 0 for those that add nothing. */
size_t ech_collective_scratch(ech_collective collective, ech_dtype dtype, int64_t n, int size);
/* Payload bytes that member `index` of `size` sends, and in how many messages: what
 * ech_group_collective_count counts. */
int64_t ech_collective_bytes(ech_collective collective, ech_dtype dtype, int64_t n, int size,
                             int index);
int64_t ech_collective_messages(ech_collective collective, ech_dtype dtype, int64_t n, int size,
                                int index);

#endif

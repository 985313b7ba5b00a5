/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as plans need them: names, shards, scratch, and how many messages and bytes a member
 * sends. First the collectives of tensor, sequence, context and expert parallelism, each with one
 * algorithm; then the algorithms that the all-reduce of gradients can be done with
 * (parallel.reduction). These functions send nothing, cannot fail, and depend on their arguments
 * alone.
 */
#ifndef ECH_COMM_COLLECTIVE_H
#define ECH_COMM_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/tensor.h"

/* Rows of collective.def: NONE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SHIFT,
 * EXCHANGE_ROWS. */
typedef enum __attribute__((packed)) ech_collective {
#define X(name, text, help) ECH_COLLECTIVE_##name,
#include "comm/collective.def"
#undef X
    ECH_COLLECTIVES
} ech_collective;

const char *ech_collective_name(ech_collective collective);

/* First element, and number of elements, of a member's shard of n elements over N members. Shards
 * are contiguous, in member order; the first n mod N are one element longer. With n < N the last
 * ones are empty. */
int64_t ech_collective_shard_first(int64_t n, int N, int member);
int64_t ech_collective_shard_count(int64_t n, int N, int member);

/* In ech_collective_scratch and ech_collective_traffic `size` is the number of members, and n is a
 * number of elements:
 *   ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER   of the unsharded tensor
 *   ALL_TO_ALL                               of a member's send buffer: a multiple of `size`
 *   SHIFT                                    of a member's send buffer
 *   EXCHANGE_ROWS                            of the packed buffer, which has room for all that a
 *   member sends, to itself
 *                                            included: of how many, tables say in each call */

/* Bytes of scratch that the collective needs; 0 for those that sum nothing. */
size_t ech_collective_scratch(ech_collective collective, ech_dtype dtype, int64_t n, int size);
/* What member `index` sends in one call: as much as ech_group_count counts. A SHIFT by a multiple
 * of `size` sends nothing; here SHIFT is by another distance. Of EXCHANGE_ROWS what is expected,
 * where all members get equally many. */
typedef struct ech_collective_sends {
    int64_t messages;
    int64_t bytes; /* of payload */
} ech_collective_sends;
ech_collective_sends ech_collective_traffic(ech_collective collective, ech_dtype dtype, int64_t n,
                                            int size, int index);

/* The largest number of bytes that a member may send: of EXCHANGE_ROWS all of its n elements, or
 * `back` from windows, where it has got all of the others', as many of each of these; of other
 * collectives ech_collective_traffic's. */
int64_t ech_collective_most(ech_collective collective, ech_dtype dtype, int64_t n, int size,
                            int index, bool back);

/* ---- all-reduce of gradients ---- */

/* Rows of reduction.def: DIRECT, RING, NAIVE, TORUS, HIERARCHICAL, LIBRARY. */
typedef enum ech_reduction {
#define X(name, text, help) ECH_REDUCTION_##name,
#include "comm/reduction.def"
#undef X
    ECH_REDUCTIONS
} ech_reduction;

const char *ech_reduction_name(ech_reduction reduction);
const char *ech_reduction_names(void); /* blank-separated, in the order of the enumerators */

/* Whether sums of elements that travel in that type can be done in this way; `narrowed`: they are
 * kept in a wider type. DIRECT does all, the others fp32 and fp64 that are not narrowed. */
bool ech_reduction_takes(ech_reduction reduction, ech_dtype wire, bool narrowed);

/* A group as reductions see it: its members, and the machines that these are on. The members of a
 * machine are neighbours in member order. */
typedef struct ech_lineup {
    int size;
    int machines; /* 0: not divided, all are on one */
    /* the last members have all shards, and nothing to add; 0: each has one, and adds */
    int stores;
    /* [machines + 1]: machine m has members first[m] .. first[m + 1] - 1; NULL where there are
     * none */
    const int *first;
} ech_lineup;
/* Members that have shards, and the first of them; shards are those of ech_collective_shard_first
 * over these. */
int ech_lineup_owners(const ech_lineup *of);
int ech_lineup_first_owner(const ech_lineup *of);
/* First element, and number of elements, of a member's shard of n elements; none: 0. */
int64_t ech_lineup_shard_first(const ech_lineup *of, int64_t n, int member);
int64_t ech_lineup_shard_count(const ech_lineup *of, int64_t n, int member);
/* Whether the member has addends. */
bool ech_lineup_adds(const ech_lineup *of, int member);
/* The machines of members with these ranks, ascending, where each has `each` ranks: fills first[n +
 * 1], and returns how many. */
int ech_lineup_divide(const int *ranks, int n, int each, int *first);

/* Columns of TORUS: the least divisor of N that is no less than its root, so rows are no shorter
 * than columns. A number that has no other divisors is one row: a ring. */
int ech_torus_columns(int N);

/* Bytes of scratch that an ech_group_reduce needs, of n elements that travel in that type. */
size_t ech_reduction_scratch(ech_reduction reduction, ech_dtype wire, int64_t n, ech_lineup of);
/* What of a sum is done: all, or one of its halves. After the scatter each member has the sum of
 * its own shard (ech_lineup_shard_first), after the gather each member that adds has the shards of
 * all. NAIVE and LIBRARY have no halves. Where some members are stores there are the halves of
 * DIRECT alone. */
typedef enum ech_reduction_part {
    ECH_REDUCTION_WHOLE,
    ECH_REDUCTION_SCATTER,
    ECH_REDUCTION_GATHER,
    ECH_REDUCTION_PARTS
} ech_reduction_part;

bool ech_reduction_has_halves(ech_reduction reduction);
/* ech_reduction_scratch of a part, which must exist; a gather needs none. */
size_t ech_reduction_part_scratch(ech_reduction reduction, ech_reduction_part part, ech_dtype wire,
                                  int64_t n, ech_lineup of);
/* Elements that member `index` sends in a part, which must exist. With equal shards each half sends
 * n (size - 1) / size; in general all members together n (size - 1). HIERARCHICAL's send what
 * reduce_hierarchical.c says. DIRECT's halves send the messages of REDUCE_SCATTER and
 * ALL_GATHER. */
int64_t ech_reduction_part_elements(ech_reduction reduction, ech_reduction_part part, int64_t n,
                                    ech_lineup of, int index);
/* Messages likewise, of DIRECT's halves. */
int64_t ech_reduction_part_messages(ech_reduction_part part, ech_dtype wire, int64_t n,
                                    ech_lineup of, int index);
/* Payload bytes that member `index` sends in ech_group_reduce. LIBRARY: the bytes of the tensor, as
 * what it sends is not known. */
int64_t ech_reduction_bytes(ech_reduction reduction, ech_dtype wire, int64_t n, ech_lineup of,
                            int index);

#endif

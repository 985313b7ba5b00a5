/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as plans need them: names, shards, scratch, and how many messages and bytes a member
 * sends. First the collectives of tensor, sequence, context and expert parallelism, each with one
 * algorithm; then the algorithms for the all-reduce of gradients (parallel.reduction). These
 * functions send nothing, cannot fail, and depend only on their arguments.
 */
#ifndef ECH_COMM_COLLECTIVE_H
#define ECH_COMM_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/tensor.h"

/* Rows of collective.def: NONE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SHIFT,
 * SLIDE, EXCHANGE_ROWS. */
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

/* A group as collectives see it: its members, and their machines. The members of a machine are
 * adjacent in member order. */
typedef struct ech_lineup {
    int size;
    int machines;    /* 0: not divided, all are on one */
    int64_t segment; /* bytes of a message of a sum (device.def); 0: the processor's */
    /* number of last members that have all shards, and nothing to add; 0: each member has a shard,
     * and adds */
    int stores;
    /* [machines + 1]: machine m has members first[m] .. first[m + 1] - 1; NULL if machines is 0 */
    const int *first;
} ech_lineup;

/* In ech_collective_scratch and ech_collective_traffic n is a number of elements:
 *
 *     ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER   of the unsharded tensor
 *     ALL_TO_ALL                               of a member's send buffer: a multiple of of.size
 *     SHIFT                                    of a member's send buffer
 *     SLIDE                                    likewise; 0 of a member that sends nothing
 *     EXCHANGE_ROWS                            capacity of the packed buffer, for all rows that a
 *                                              member sends, also to itself; tables give the actual
 *                                              number in each call */

/* Whether a SLIDE's member sends: there is a member at that distance. With the opposite distance:
 * whether it receives. */
bool ech_collective_slides(int distance, int size, int index);
/* Bytes of scratch that the collective needs; 0 for collectives without sums. */
size_t ech_collective_scratch(ech_collective collective, ech_dtype dtype, int64_t n, ech_lineup of);
/* The amount that member `index` sends in one call, counted like ech_group_count. A SHIFT by a
 * multiple of of.size sends nothing; here SHIFT is by another distance. EXCHANGE_ROWS: the expected
 * amount, with equally many rows for each member. */
typedef struct ech_collective_sends {
    int64_t messages;
    int64_t bytes; /* of payload */
} ech_collective_sends;
ech_collective_sends ech_collective_traffic(ech_collective collective, ech_dtype dtype, int64_t n,
                                            ech_lineup of, int index);

/* The most bytes that a member may send. EXCHANGE_ROWS: all of its n elements; with `back`, from
 * slices, where it may hold the n elements of each other member. Other collectives: as
 * ech_collective_traffic. */
int64_t ech_collective_most(ech_collective collective, ech_dtype dtype, int64_t n, ech_lineup of,
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

/* True if this algorithm can sum elements that are sent in that type; `narrowed`: they are stored
 * in a wider type. DIRECT supports all, the others only fp32 and fp64 that are not narrowed. */
bool ech_reduction_takes(ech_reduction reduction, ech_dtype wire, bool narrowed);

/* Number of members with shards, and the first of them. ech_collective_shard_first over these
 * members gives the shards. */
int ech_lineup_owners(const ech_lineup *of);
int ech_lineup_first_owner(const ech_lineup *of);
/* First element, and number of elements, of a member's shard of n elements; none: 0. */
int64_t ech_lineup_shard_first(const ech_lineup *of, int64_t n, int member);
int64_t ech_lineup_shard_count(const ech_lineup *of, int64_t n, int member);
/* True if the member has addends. */
bool ech_lineup_adds(const ech_lineup *of, int member);
/* Divides members with these ranks, ascending, into machines of `each` ranks: sets first[n + 1],
 * and returns the number of machines. */
int ech_lineup_divide(const int *ranks, int n, int each, int *first);

/* Columns of TORUS: the least divisor of N that is at least its square root, so rows are no shorter
 * than columns. A prime number is one row: a ring. */
int ech_torus_columns(int N);

/* Bytes of scratch that an ech_group_reduce needs for n elements sent in that type. */
size_t ech_reduction_scratch(ech_reduction reduction, ech_dtype wire, int64_t n, ech_lineup of);
/* A whole all-reduce, or one of its halves. After the scatter each member has the sum of its own
 * shard (ech_lineup_shard_first); after the gather each member that adds has the shards of all.
 * NAIVE has no halves, and LIBRARY's take equal shards of all members. If some members are stores,
 * only DIRECT's halves exist. */
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
 * n (size - 1) / size; in general all members together n (size - 1). For HIERARCHICAL see
 * reduce_hierarchical.c. DIRECT's halves send the messages of REDUCE_SCATTER and ALL_GATHER. */
int64_t ech_reduction_part_elements(ech_reduction reduction, ech_reduction_part part, int64_t n,
                                    ech_lineup of, int index);
/* The messages of DIRECT's halves. */
int64_t ech_reduction_part_messages(ech_reduction_part part, ech_dtype wire, int64_t n,
                                    ech_lineup of, int index);
/* Payload bytes that member `index` sends in ech_group_reduce. LIBRARY: the bytes of the tensor,
 * since the library's traffic is unknown. */
int64_t ech_reduction_bytes(ech_reduction reduction, ech_dtype wire, int64_t n, ech_lineup of,
                            int index);

#endif

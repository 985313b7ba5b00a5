/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: the algorithms of ech_group_reduce and of the collectives that sum or
 * gather. To add a reduction: a file with one ech_reduction_row, and a row of reduction.def.
 *
 * N members, n elements, of `item` bytes in x and of `wire_item` in messages and scratch. Where the
 * two differ, a segment's elements lie narrowed at the beginning of its own memory in x while they
 * travel. Each member owns a shard (ech_collective_shard_first). Shards move in segments, one
 * message each, so that scratch is bounded and stays in caches. Functions of an ech_group or
 * ech_sum that return a status are collective over the group.
 */
#ifndef ECH_COMM_REDUCE_H
#define ECH_COMM_REDUCE_H

#include "comm/collective.h"
#include "comm/group.h"

/* One part of a sum, for N > 1, n > 0. */
typedef struct ech_reduction_way {
    /* Elements of scratch. NULL: it needs none. */
    int64_t (*scratch)(size_t item, int64_t n, const ech_lineup *of);
    /* Elements that member `index` sends. */
    int64_t (*sent)(int64_t n, const ech_lineup *of, int index);
    /* ech_sum_begin, _run and _end; begin and end may be NULL. begin does not wait; another sum may
     * begin between run and end. */
    ech_status (*begin)(const ech_sum *sum);
    ech_status (*run)(const ech_sum *sum);
    ech_status (*end)(const ech_sum *sum);
} ech_reduction_way;

struct ech_reduction_row {
    bool narrows; /* sums halves, and what travels narrowed; otherwise fp32 and fp64 as they are */
    ech_reduction_way part[ECH_REDUCTION_PARTS]; /* run NULL: it has no such part */
    ech_status (*prepare)(ech_group *group);     /* optional; ech_group_prepare for N > 1 */
};

#define X(name, text, help) extern const ech_reduction_row ech_reduce_##name;
#include "comm/reduction.def"
#undef X

/* Begins collective `call` and fills *out, except its row. Errors: ECH_EUNSUPPORTED for dtypes that
 * are not real. */
ech_status ech_sum_make(ech_group *group, ech_comm_call call, const ech_tensor *x, ech_dtype wire,
                        void *scratch, ech_sum *out);

/* ech_reduction_way.sent of most scatters: all shards of n elements but the member's own. */
int64_t ech_sum_scattered(int64_t n, const ech_lineup *of, int index);

/* Elements of a segment, >= 1; item: bytes of one in messages. */
int64_t ech_segment_elements(size_t item, int N);
/* Elements of the segment that starts `at` elements into `count` contiguous ones: min(segment,
 * count - at), or 0 past the end. */
int64_t ech_segment_count(int64_t count, int64_t at, int64_t segment);

/* Segment k of a member's shard in sum->x. It starts k * sum->segment elements into the shard; the
 * last ones of shorter shards may be empty. */
typedef struct ech_segment {
    char *x;
    int64_t n;    /* elements */
    size_t bytes; /* of its message */
} ech_segment;
ech_segment ech_sum_segment(const ech_sum *sum, int member, int64_t k);
/* Segments of the longest shard. */
int64_t ech_sum_segments(const ech_sum *sum);
/* The batch of its segment k in one of the channel's two sets, sum->scatters or sum->gathers. */
ech_comm_batch *ech_sum_batch(const ech_sum *sum, int set, int64_t k);
/* Enters n elements of the sum, to be sent to a member. */
void ech_sum_send(const ech_sum *sum, ech_comm_batch *batch, int member, const void *data,
                  int64_t n);
/* Where ech_scatter_end is to write the sum of segment k of this member's shard: sum->shard, or, if
 * that is added to or stays as it is, scratch, which stays in caches where x would be written back
 * to memory; x where the sum is to be widened. */
char *ech_sum_place(const ech_sum *sum, int64_t k);
/* That sum, as it travels, goes from there to sum->shard; ech_sum_deliver_all: all segments, summed
 * in x. */
void ech_sum_deliver(const ech_sum *sum, char *from, int64_t k);
void ech_sum_deliver_all(const ech_sum *sum);
/* From how many members an owner receives addends. */
int ech_sum_parts(const ech_lineup *of);
/* The part of the scratch where `parts` addends of segment k arrive. Segments k and k +
 * ECH_UNDER_WAY share it. */
char *ech_sum_slot(const ech_sum *sum, int64_t k, int parts);

/* Elements of scratch that ech_scatter_begin and ech_scatter_end need. */
int64_t ech_scatter_scratch(size_t item, int64_t n, const ech_lineup *of);
/* Reduce-scatter of segment k of every shard, N > 1. begin narrows the segments, if they travel so,
 * and starts their messages; end waits for them and writes the sum of this member's segment,
 * narrowed, to `mine`, which may be that segment in sum->x or its slot. Segments end in order; at
 * most ECH_UNDER_WAY may have begun and not ended. */
ech_status ech_scatter_begin(const ech_sum *sum, int64_t k);
ech_status ech_scatter_end(const ech_sum *sum, char *mine, int64_t k);
/* All-gather of segment k of every shard. begin starts to send `mine`, this member's, and to
 * receive the others' into sum->x; end waits for it, and widens the segments that travelled
 * narrowed. At most ECH_UNDER_WAY may have begun and not ended. */
ech_status ech_gather_begin(const ech_sum *sum, const char *mine, int64_t k);
ech_status ech_gather_end(const ech_sum *sum, int64_t k);

/* ---- rings of some of the members (ring.c) ---- */

/* Contiguous elements of x. */
typedef struct ech_range {
    int64_t first, n;
} ech_range;

/* A ring, each member of which gets the sum of its ring chunk: of some runs of elements, as many in
 * each. */
typedef struct ech_ring {
    int size, place; /* members, and which one this is; of one there is nothing to do */
    int runs;
    int64_t longest;                                          /* elements of the longest run */
    int (*member)(const ech_sum *sum, int i);                 /* its member i in the group */
    ech_range (*elements)(const ech_sum *sum, int i, int run); /* of member i's chunk */
} ech_ring;
/* Elements of scratch that ech_ring_add needs. */
int64_t ech_ring_scratch(size_t item, int64_t longest, int runs, int N);
/* size - 1 rounds, in which each chunk travels around the ring to its member and collects the
 * others' addends, in place. Other chunks are used up: they have partial sums. */
ech_status ech_ring_add(const ech_sum *sum, const ech_ring *ring);
/* As many rounds, in which each member's chunk travels around to all. */
ech_status ech_ring_gather(const ech_sum *sum, const ech_ring *ring);

/* n elements of x, of a sum that narrows, become those that travel, at x's beginning; and back.
 * Otherwise nothing. */
void ech_narrow(const ech_sum *sum, char *x, int64_t n);
void ech_widen(const ech_sum *sum, char *x, int64_t n);
/* to[i] += from[i] for i < n elements; fp32 or fp64; no overlap. */
void ech_add(const ech_sum *sum, char *to, char *from, int64_t n);
/* to[n] = the sum of own[n], at place `index`, and of parts[others][n] around it, in order, in the
 * type that travels. */
void ech_add_parts(const ech_sum *sum, char *to, char *own, char *parts, int others, int index,
                   int64_t n);
/* to[n] = ((p0 + p1) + p2) + ..., the members' addends in member order, all in the type that
 * travels (the row add_parts of kernel.def). This member's addend is own[n], the others' are in
 * parts[N-1][n]; `to` may be own or the first part. */
void ech_add_in_order(const ech_sum *sum, char *to, char *own, char *parts, int64_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: the algorithms of ech_group_reduce and of the collectives that sum or
 * gather. To add a reduction: a file with one ech_reduction_row, and a row of reduction.def.
 *
 * N members, n elements, of `item` bytes in x and of `wire_item` bytes in messages and scratch. If
 * the two differ, a segment's elements are stored narrowed at the beginning of the segment's memory
 * in x while they are sent. Each member owns a shard (ech_collective_shard_first). Shards are sent
 * in segments, one message each, so that scratch is bounded and stays in caches. Functions of an
 * ech_group or ech_sum that return a status are collective over the group.
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
    /* supports 16-bit types and narrowed messages; otherwise only fp32 and fp64 as they are */
    bool narrows;
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
/* Likewise of most gathers: the member's shard to each other member that adds. */
int64_t ech_sum_gathered(int64_t n, const ech_lineup *of, int index);

/* Elements of a segment, >= 1; item: bytes of one in messages. */
int64_t ech_segment_elements(size_t item, const ech_lineup *of);
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
/* The address to which ech_scatter_end writes the sum of segment k of this member's shard. It is in
 * sum->shard; or in scratch if the sum is added to that or discarded (scratch stays in caches,
 * while x would be written back to memory); or in x if the sum is to be widened. */
char *ech_sum_address(const ech_sum *sum, int64_t k);
/* Copies that sum from there to sum->shard, from the type in which it was sent;
 * ech_sum_deliver_all: all segments, summed in x. */
void ech_sum_deliver(const ech_sum *sum, char *from, int64_t k);
void ech_sum_deliver_all(const ech_sum *sum);
/* Number of members from which an owner receives addends. */
int ech_sum_parts(const ech_lineup *of);
/* The part of the scratch that receives `parts` addends of segment k. Segments k and k +
 * ECH_UNDER_WAY share it. */
char *ech_sum_slot(const ech_sum *sum, int64_t k, int parts);

/* Under nccl: the library connects the members of a channel at its first collective of a kind, so
 * this does one of each kind that the channel is prepared for, and waits. Collective. */
ech_status ech_library_connect(ech_group *group);
/* Puts the library's gather of whole shards into the batch instead of messages, with the same
 * counts. False: the channel or the shards are not made for it. */
bool ech_library_gather(const ech_sum *sum, const char *mine, ech_comm_batch *batch,
                        ech_status *status);

/* Elements of scratch that ech_scatter_begin and ech_scatter_end need. */
int64_t ech_scatter_scratch(size_t item, int64_t n, const ech_lineup *of);
/* Reduce-scatter of segment k of every shard, N > 1. begin narrows the segments if they are sent
 * narrowed, and starts their messages. end waits for them and writes the narrowed sum of this
 * member's segment to `mine`. That may be the segment in sum->x, or its slot. Segments end in
 * order; at most ECH_UNDER_WAY may have begun and not ended. */
ech_status ech_scatter_begin(const ech_sum *sum, int64_t k);
ech_status ech_scatter_end(const ech_sum *sum, char *mine, int64_t k);
/* All-gather of segment k of every shard. begin starts to send `mine`, this member's, and to
 * receive the others' into sum->x. end waits for it, and widens segments that were sent narrowed.
 * At most ECH_UNDER_WAY may have begun and not ended. */
ech_status ech_gather_begin(const ech_sum *sum, const char *mine, int64_t k);
ech_status ech_gather_end(const ech_sum *sum, int64_t k);

/* ---- rings of a subset of the members (ring.c) ---- */

/* Contiguous elements of x. */
typedef struct ech_range {
    int64_t first, n;
} ech_range;

/* A ring in which each member gets the sum of its ring chunk, which consists of `runs` ranges of
 * elements. */
typedef struct ech_ring {
    int size, index; /* number of members, and this member's index; nothing to do for size 1 */
    int runs;
    int64_t longest;                                          /* elements of the longest run */
    int (*member)(const ech_sum *sum, int i);                 /* its member i in the group */
    ech_range (*elements)(const ech_sum *sum, int i, int run); /* of member i's chunk */
} ech_ring;
/* Elements of scratch that ech_ring_add needs. */
int64_t ech_ring_scratch(size_t item, int64_t longest, int runs, const ech_lineup *of);
/* size - 1 rounds, in which each chunk travels around the ring to its member and accumulates the
 * others' addends, in place. Other chunks are consumed: they hold partial sums. */
ech_status ech_ring_add(const ech_sum *sum, const ech_ring *ring);
/* size - 1 rounds, in which each member's chunk travels around the ring to all. */
ech_status ech_ring_gather(const ech_sum *sum, const ech_ring *ring);

/* If the sum narrows, converts n elements at x to the type in which they are sent, in place; and
 * back. Otherwise does nothing. */
void ech_narrow(const ech_sum *sum, char *x, int64_t n);
void ech_widen(const ech_sum *sum, char *x, int64_t n);
/* to[i] += from[i] for i < n elements; fp32 or fp64; no overlap. */
void ech_add(const ech_sum *sum, char *to, char *from, int64_t n);
/* to[n] = the sum in order of own[n], as addend `index`, and of parts[others][n], in the type in
 * which they are sent. */
void ech_add_parts(const ech_sum *sum, char *to, char *own, char *parts, int others, int index,
                   int64_t n);
/* to[n] = ((p0 + p1) + p2) + ..., the members' addends in member order, all in the type in which
 * they are sent (the row add_parts of kernel.def). This member's addend is own[n], the others' are
 * in parts[N-1][n]; `to` may be own or the first part. */
void ech_add_in_order(const ech_sum *sum, char *to, char *own, char *parts, int64_t n);

#endif

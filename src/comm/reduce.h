/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: what a way to reduce is made of. To add one: a file with a row, and a line
 * in reduction.def.
 *
 * N members, n elements. Pieces: ech_piece_first. Segments: what moves at once, so that scratch
 * is bounded and stays in caches.
 */
#ifndef ECH_COMM_REDUCE_H
#define ECH_COMM_REDUCE_H

#include "comm/collective.h"
#include "comm/group.h"

struct ech_reduction_row {
    /* Elements of scratch for N > 1 and n > 0. */
    int64_t (*scratch)(size_t item, int64_t n, int N);
    /* Elements that member `index` sends, N > 1. */
    int64_t (*sent)(int64_t n, int N, int index);
    /* The parts of a sum, N > 1, n > 0; begin and end are optional. begin waits for nobody, and another
     * sum may begin between run and end. */
    ech_status (*begin)(const ech_sum *sum);
    ech_status (*run)(const ech_sum *sum);
    ech_status (*end)(const ech_sum *sum);
    ech_status (*prepare)(ech_group *group); /* optional: collective, N > 1 */
};

extern const ech_reduction_row ech_reduce_DIRECT, ech_reduce_RING, ech_reduce_NAIVE,
    ech_reduce_LIBRARY;

/* Checks x, which is summed by `call`, counts the call and fills *out but for its row. */
ech_status ech_sum_make(ech_group *group, ech_comm_call call, const ech_tensor *x, void *scratch,
                        ech_sum *out);

/* Elements of a segment, >= 1. */
int64_t ech_segment(size_t item, int N);
/* Elements of the segment that starts `at` elements into `count`: at most `segment`, or 0. */
int64_t ech_segment_count(int64_t count, int64_t at, int64_t segment);

/* A tensor as its members' pieces, which move segment by segment: segment k of a piece lies
 * k * segment elements into it, and may be empty. */
typedef struct ech_pieces {
    ech_group *group;
    char *x;
    int64_t n;
    size_t item;
    int64_t segment; /* elements, >= 1 */
} ech_pieces;

/* A segment of a member's piece. */
typedef struct ech_part {
    char *x;
    size_t bytes;
} ech_part;

ech_pieces ech_pieces_of_sum(const ech_sum *sum);
ech_part ech_pieces_part(const ech_pieces *p, int member, int64_t k);
/* Segments of the longest piece. */
int64_t ech_pieces_segments(const ech_pieces *p);

/* Elements of scratch of the two below. */
int64_t ech_scatter_scratch(size_t item, int64_t n, int N);
/* Reduce-scatter of all members' segments k, N > 1: begins; then ends, with the sum of this member's
 * in `mine`, which may be its place in sum->x. Segments end in order, and up to ECH_UNDER_WAY may have
 * begun and not ended. */
ech_status ech_scatter_begin(const ech_sum *sum, const ech_pieces *pieces, int64_t k);
ech_status ech_scatter_end(const ech_sum *sum, const ech_pieces *pieces, char *mine, int64_t k);
/* Begins the all-gather of segments k: receives the others' in place, sends `mine`; as many may be
 * under way, and end with their batch. */
ech_status ech_gather_begin(const ech_pieces *pieces, const char *mine, int64_t k);
ech_status ech_gather_end(ech_group *group, int64_t k);

/* to[i] += from[i]; fp32 or fp64; no overlap. */
void ech_add(ech_dtype dtype, void *to, const void *from, int64_t n);
/* to[n] becomes the sum in member order: ((p0 + p1) + ...), where p_index is own, which may be `to`,
 * and the others lie in parts[N-1][n], which is overwritten. */
void ech_add_in_order(const ech_sum *sum, char *to, const char *own, char *parts, int64_t n);

#endif

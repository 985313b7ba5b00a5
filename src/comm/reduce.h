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

/* A reduction under way. */
typedef struct ech_sum {
    ech_group *group;
    char *x, *scratch;
    int64_t n;
    size_t item; /* bytes of an element */
    ech_dtype dtype;
} ech_sum;

typedef struct ech_reduction_row {
    /* Elements of scratch for N > 1 and n > 0. */
    int64_t (*scratch)(size_t item, int64_t n, int N);
    /* Elements that member `index` sends, N > 1. */
    int64_t (*sent)(int64_t n, int N, int index);
    ech_status (*run)(const ech_sum *sum);   /* N > 1, n > 0 */
    ech_status (*prepare)(ech_group *group); /* optional: collective, N > 1 */
} ech_reduction_row;

extern const ech_reduction_row ech_reduce_DIRECT, ech_reduce_RING, ech_reduce_NAIVE,
    ech_reduce_LIBRARY;

/* Checks x, which is summed by `call`, counts the call and fills *out. */
ech_status ech_sum_begin(ech_group *group, ech_call call, const ech_tensor *x, void *scratch,
                         ech_sum *out);

/* Elements of a segment, >= 1. */
int64_t ech_segment(size_t item, int N);
/* Elements of the segment that starts `at` elements into `count`: at most `segment`, or 0. */
int64_t ech_segment_count(int64_t count, int64_t at, int64_t segment);

/* A tensor as its members' pieces, which move segment by segment. */
typedef struct ech_pieces {
    ech_group *group;
    char *x;
    int64_t n;
    size_t item;
    int64_t segment; /* elements, >= 1 */
} ech_pieces;

/* The segment `at` elements into a member's piece; may be empty. */
typedef struct ech_part {
    char *x;
    size_t bytes;
} ech_part;

ech_pieces ech_pieces_of_sum(const ech_sum *sum);
ech_part ech_pieces_part(const ech_pieces *p, int member, int64_t at);

/* Reduce-scatter of the segments at `at`: the sum of this member's lies in `mine` after it, which may
 * be its place in sum->x. N > 1. */
ech_status ech_scatter_segment(const ech_sum *sum, ech_batch *batch, const ech_pieces *pieces,
                               char *mine, int64_t at);
/* Starts the all-gather of the segments at `at`: receives the others' in place, sends `mine`. */
ech_status ech_gather_segment(const ech_pieces *pieces, ech_batch *batch, const char *mine,
                              int64_t at);

/* to[i] += from[i]; fp32 or fp64; no overlap. */
void ech_add(ech_dtype dtype, void *to, const void *from, int64_t n);
/* to[n] becomes the sum in member order: ((p0 + p1) + ...), where p_index is own, which may be `to`,
 * and the others lie in parts[N-1][n], which is overwritten. */
void ech_add_in_order(const ech_sum *sum, char *to, const char *own, char *parts, int64_t n);

#endif

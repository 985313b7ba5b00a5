/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: what a way to reduce is made of. To add one: a file with a row, and a line
 * in reduction.def.
 *
 * N members, n elements. Pieces: the elements cut in N contiguous parts, the first n mod N of them
 * one longer. Segments: what moves at once, so that scratch is bounded and stays in caches.
 */
#ifndef ECH_COMM_REDUCE_H
#define ECH_COMM_REDUCE_H

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

int64_t ech_piece_first(int64_t n, int N, int piece);
int64_t ech_piece_count(int64_t n, int N, int piece);
/* Elements of a segment, >= 1. */
int64_t ech_segment(size_t item, int N);
/* Elements of the segment that starts `at` elements into `count`: at most `segment`, or 0. */
int64_t ech_segment_count(int64_t count, int64_t at, int64_t segment);

/* to[i] += from[i]; fp32 or fp64; no overlap. */
void ech_add(ech_dtype dtype, void *to, const void *from, int64_t n);
/* own[n] becomes the sum in member order: ((p0 + p1) + ...), where p_index is own and the others
 * lie in parts[N-1][n], which is overwritten. */
void ech_add_in_order(const ech_sum *sum, char *own, char *parts, int64_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A box of a tensor as runs of equal length that are contiguous both in the whole tensor's bytes
 * and in the box's own memory: trailing dimensions that are whole and lie together, and one cut
 * one. Each index of the dimensions before those begins another run.
 */
#ifndef ECH_CHECKPOINT_BOX_H
#define ECH_CHECKPOINT_BOX_H

#include "checkpoint/checkpoint.h"

typedef struct ech_box_runs {
    int64_t count;  /* of runs; 0 for an empty box */
    int64_t length; /* elements in each */
    int64_t first;  /* element of the whole tensor where run 0 begins */
    int outer;      /* dimensions that step from run to run; theirs: */
    int64_t size[ECH_MAX_DIMS];
    int64_t in_whole[ECH_MAX_DIMS], in_memory[ECH_MAX_DIMS]; /* elements of a step */
} ech_box_runs;

/* Where a run begins: which element of the whole tensor, and behind how many of the memory. */
typedef struct ech_box_offset {
    int64_t in_whole, in_memory;
} ech_box_offset;

/* False if the elements of the shape cannot be counted. */
bool ech_box_elements(int dims, const int64_t *shape, int64_t *out);
/* Elements of a box that is inside of its tensor. */
int64_t ech_box_count(int dims, const int64_t *size);
/* Whether the box lies inside the shape, and the shape's elements can be counted. */
bool ech_box_is_inside(int dims, const int64_t *shape, const ech_saved_box *box);
/* Whether no two elements share a place in memory, and the last dimension's follow each other. Of a
 * box that has elements. */
bool ech_box_is_apart(int dims, const ech_saved_box *box);

/* The runs of a box that is inside; they ascend in the whole tensor. */
ech_box_runs ech_box_split(int dims, const int64_t *shape, const ech_saved_box *box);
ech_box_offset ech_box_run_at(const ech_box_runs *runs, int64_t i);

/* Appends "[3, 4]". */
void ech_shape_print(int dims, const int64_t *shape, ech_text *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides a box of a tensor into runs of equal length that are contiguous both in the whole tensor and in the box's
 * memory. A run consists of trailing dimensions that are whole and contiguous, and a range of the dimension before
 * them. Each index of the other (outer) dimensions is a run of its own.
 */
#ifndef ECH_CHECKPOINT_BOX_H
#define ECH_CHECKPOINT_BOX_H

#include "checkpoint/checkpoint.h"

typedef struct ech_box_runs {
    int64_t count;  /* of runs; 0 for an empty box */
    int64_t length; /* elements in each */
    int64_t first;  /* element of the whole tensor where run 0 begins */
    int outer;      /* number of outer dimensions; their sizes, and strides in elements: */
    int64_t size[ECH_MAX_DIMS];
    int64_t in_whole[ECH_MAX_DIMS], in_memory[ECH_MAX_DIMS];
} ech_box_runs;

/* Where a run begins, in elements: in the whole tensor, and in memory from the box's first element. */
typedef struct ech_box_offset {
    int64_t in_whole, in_memory;
} ech_box_offset;

/* *out: elements of a shape. False: a size is negative, or a product of leading sizes is 2^63 or more. */
bool ech_box_elements(int dims, const int64_t *shape, int64_t *out);
/* Elements of a box that is inside its tensor. */
int64_t ech_box_count(int dims, const int64_t *size);
/* Whether the box is inside the shape, whose elements ech_box_elements can count. */
bool ech_box_is_inside(int dims, const int64_t *shape, const ech_saved_box *box);
/* Whether the memory of a box, which is not empty, is row-major without overlap: the last stride is 1, any other at
 * least the extent of the dimensions after it. Other orders of dimensions are not accepted. */
bool ech_box_is_apart(int dims, const ech_saved_box *box);

/* The runs of a box that is inside `shape`, ascending in the whole tensor. */
ech_box_runs ech_box_split(int dims, const int64_t *shape, const ech_saved_box *box);
/* Where run i begins. */
ech_box_offset ech_box_run_at(const ech_box_runs *runs, int64_t i);

/* Compares the shapes of a tensor of `where` and of the one that is wanted. Error: "WHERE: tensor 'NAME' has shape
 * [3, 4]BEFORE[3, 5]AFTER". */
ech_status ech_shape_check(const char *where, const ech_saved_tensor *have,
                           const ech_saved_tensor *want, const char *before, const char *after);

#endif

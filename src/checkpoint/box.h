/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides a box of a tensor into runs: stretches of elements, equally long, that are contiguous both in the whole
 * tensor and in the box's memory. A run covers the last dimensions, as far as the box has all of their indices, and the
 * box's range of the dimension before those. The dimensions before that one are the outer ones: each combination of
 * their indices is a run. All offsets, strides and lengths count elements. Nothing allocates memory.
 */
#ifndef ECH_CHECKPOINT_BOX_H
#define ECH_CHECKPOINT_BOX_H

#include "checkpoint/checkpoint.h"

typedef struct ech_box_runs {
    int64_t count;                       /* of runs; 0 for an empty box */
    int64_t length;                      /* of a run; 0 for an empty box */
    int64_t first;                       /* offset of run 0 in the whole tensor */
    int outer;                           /* number of outer dimensions */
    int64_t size[ECH_MAX_DIMS];          /* [outer] of the box */
    int64_t whole_stride[ECH_MAX_DIMS];  /* [outer] in the whole tensor */
    int64_t memory_stride[ECH_MAX_DIMS]; /* [outer] in the box's memory */
} ech_box_runs;

/* Where a run begins. */
typedef struct ech_box_offset {
    int64_t in_whole;  /* from the tensor's first element */
    int64_t in_memory; /* from the box's first element */
} ech_box_offset;

/* *out: elements of a shape. False: a size is negative, or a product of leading sizes is 2^63 or more. */
bool ech_box_elements(int dims, const int64_t *shape, int64_t *out);
/* Elements of a box that is inside its tensor. */
int64_t ech_box_count(int dims, const int64_t *size);
/* Whether the box is inside the shape. False also if ech_box_elements cannot count the shape's elements. */
bool ech_box_is_inside(int dims, const int64_t *shape, const ech_saved_box *box);
/* Whether the memory of a box that is not empty is row-major without overlap: the last stride is 1, and each other one
 * is at least the stretch of memory, in elements, of the dimensions after it. Dimensions of size 1 have any stride. */
bool ech_box_is_apart(int dims, const ech_saved_box *box);

/* The runs of a box that is inside `shape`, ascending in the whole tensor. */
ech_box_runs ech_box_split(int dims, const int64_t *shape, const ech_saved_box *box);
/* Where run i begins, 0 <= i < count. */
ech_box_offset ech_box_run_at(const ech_box_runs *runs, int64_t i);

/* ECH_EINPUT unless `have`, a tensor of the file or folder `where`, has the shape of `want`: "WHERE: tensor 'NAME' has
 * shape [3, 4]BEFORE[3, 5]AFTER", first the shape of `have`, then that of `want`. `before` and `after` are texts. */
ech_status ech_shape_check(const char *where, const ech_saved_tensor *have,
                           const ech_saved_tensor *want, const char *before, const char *after);

#endif

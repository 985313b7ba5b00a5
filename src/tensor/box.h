/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes: what somebody has of a tensor, a range of indices along each dimension, and where these
 * elements lie in memory. Boxes follow from how dimensions are cut; a box is divided into runs:
 * stretches of elements, equally long, that are contiguous both in the whole tensor and in memory.
 * A run covers the last dimensions, as far as the box has all of their indices, and the box's range
 * of the dimension before those. The dimensions before that one are the outer ones: each
 * combination of their indices is a run. Offsets, strides and lengths count elements. Nothing
 * allocates memory.
 */
#ifndef ECH_TENSOR_BOX_H
#define ECH_TENSOR_BOX_H

#include "tensor/tensor.h"

typedef struct ech_box {
    int64_t begin[ECH_MAX_DIMS];  /* its first index in the whole tensor, per dimension */
    int64_t size[ECH_MAX_DIMS];   /* 0: the box is empty */
    int64_t at;                   /* where its first element is, from the first in memory */
    int64_t stride[ECH_MAX_DIMS]; /* in memory; the last is 1 */
} ech_box;

/* Of an interval of a shard with three dimensions, one of them in three parts. */
enum { ECH_MOST_BOXES = 15 };

/* ---- cutting ---- */

/* How a dimension of a whole tensor is cut: into `parts` equal parts, such as queries, keys and
 * values, and each of them into `shards` shards of one length; the last ones may be partly or all
 * padding. Shard number `shard` has that of each part, one after the other. */
typedef struct ech_cut {
    int64_t size;
    int parts, shards, shard;
} ech_cut;

/* The shard's size, with padding. */
int64_t ech_cut_local(const ech_cut *cut);
/* The boxes of n consecutive elements, row-major, from element `first` of the shard of a tensor
 * that is cut like that along its dimensions. Padding is in no box, and no box is empty. Memory
 * begins with element `first`. Returns how many; they do not overlap. */
int ech_box_cut(int dims, const ech_cut *cut, int64_t first, int64_t n,
                ech_box out[ECH_MOST_BOXES]);

/* ---- as tensors ---- */

/* The box in memory that begins at `data`, and in the whole tensor that begins there and has that
 * shape: as (B, T, 1, D), which the kernel `copy` takes. Boxes of at most three dimensions. */
ech_tensor ech_box_in_memory(int dims, const ech_box *box, void *data, ech_dtype dtype);
ech_tensor ech_box_in_whole(int dims, const int64_t *shape, const ech_box *box, void *data,
                            ech_dtype dtype);

/* ---- runs ---- */

typedef struct ech_box_runs {
    int64_t count;                       /* of runs; 0 for an empty box */
    int64_t length;                      /* of a run; 0 for an empty box */
    int64_t in_whole, in_memory;         /* where run 0 begins */
    int outer;                           /* number of outer dimensions */
    int64_t size[ECH_MAX_DIMS];          /* [outer] of the box */
    int64_t whole_stride[ECH_MAX_DIMS];  /* [outer] in the whole tensor */
    int64_t memory_stride[ECH_MAX_DIMS]; /* [outer] in memory */
} ech_box_runs;

/* Where a run begins, from the first element of the whole tensor and from the first in memory. */
typedef struct ech_box_offset {
    int64_t in_whole, in_memory;
} ech_box_offset;

/* The runs of a box that is inside `shape`, ascending in the whole tensor. */
ech_box_runs ech_box_split(int dims, const int64_t *shape, const ech_box *box);
/* Where run i begins, 0 <= i < count. */
ech_box_offset ech_box_run_at(const ech_box_runs *runs, int64_t i);

/* ---- checks ---- */

/* *out: elements of a shape. False: a size is negative, or a product of leading sizes is 2^63 or
 * more. */
bool ech_box_elements(int dims, const int64_t *shape, int64_t *out);
/* Elements of a box that is inside its tensor. */
int64_t ech_box_count(int dims, const int64_t *size);
/* Whether the box is inside the shape. False also if ech_box_elements cannot count the shape's
 * elements. */
bool ech_box_is_inside(int dims, const int64_t *shape, const ech_box *box);
/* Whether the memory of a box that is not empty is row-major without overlap: the last stride is 1,
 * and each other one is at least the stretch of memory, in elements, of the dimensions after it.
 * Dimensions of size 1 have any stride. */
bool ech_box_is_apart(int dims, const ech_box *box);

#endif

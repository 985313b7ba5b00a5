/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes: the part of a tensor that a rank holds or a file stores, as a range of indices along each
 * dimension, and where these elements are in memory. Resharding copies the intersections of boxes.
 *
 * A box follows from how dimensions are cut. It is divided into runs: equally long stretches of
 * elements that are contiguous both in the whole tensor and in memory. A run covers the last
 * dimensions, as far as the box has all of their indices, and the box's range of the dimension
 * before those. The dimensions before that one are the outer ones: each combination of their
 * indices is a run. Offsets, strides and lengths count elements. Nothing allocates memory.
 */
#ifndef ECH_TENSOR_BOX_H
#define ECH_TENSOR_BOX_H

#include "tensor/tensor.h"

typedef struct ech_box {
    int64_t begin[ECH_MAX_DIMS];  /* its first index in the whole tensor, per dimension */
    int64_t size[ECH_MAX_DIMS];   /* 0: the box is empty */
    int64_t at;                   /* offset in memory of its first element */
    int64_t stride[ECH_MAX_DIMS]; /* in memory; the last is 1 */
} ech_box;

/* For an interval of a shard with three dimensions, one of them in three parts. */
enum { ECH_MOST_BOXES = 15 };

/* ---- cutting ---- */

/* How a dimension of a whole tensor is cut: into `parts` equal parts, such as queries, keys and
 * values, and each part into `shards` shards of equal length; the last may be partly or all
 * padding. Shard number `shard` has its shard of each part, one after the other. */
typedef struct ech_cut {
    int64_t size;
    int parts, shards, shard;
} ech_cut;

/* The shard's size, with padding. */
int64_t ech_cut_local(const ech_cut *cut);
/* The boxes of n consecutive elements, row-major, from element `first` of the shard of a tensor cut
 * that way along its dimensions. Padding is in no box, and no box is empty. Memory begins with
 * element `first`. Returns their number; they do not overlap. */
int ech_box_cut(int dims, const ech_cut *cut, int64_t first, int64_t n,
                ech_box out[ECH_MOST_BOXES]);

/* ---- as tensors ---- */

/* The box in memory at `data`, and in the whole tensor of that shape at `data`, both with shape (B,
 * T, 1, D), which the kernel `copy` accepts. Boxes of at most three dimensions. */
ech_tensor ech_box_in_memory(int dims, const ech_box *box, void *data, ech_dtype dtype);
ech_tensor ech_box_in_whole(int dims, const int64_t *shape, const ech_box *box, void *data,
                            ech_dtype dtype);

/* ---- in larger tensors ---- */

/* The place of a tensor in a larger one that it shares with others, as the queries in a fused
 * matrix of queries, keys and values. The larger one repeats groups of `period` indices along
 * dimension `dim`. The tensor has `width` indices of each group, from `offset` on: its index i is
 * index i / width * period + offset + i % width there. `transposed`: the last two dimensions are
 * then swapped. period 0: the tensor is in no larger one. */
typedef struct ech_box_place {
    int dim; /* of the tensor */
    bool transposed;
    int64_t width, period, offset;
} ech_box_place;

/* The larger tensor's shape, which has as many dimensions. */
void ech_box_place_shape(const ech_box_place *place, int dims, const int64_t *shape,
                         int64_t out[ECH_MAX_DIMS]);

enum { ECH_MOST_PLACED = 3 }; /* part of a group, whole groups, part of a group */

/* A box's elements in the larger tensor. Where it has several groups, they are a dimension of
 * their own here, in front of the one that is in groups. */
typedef struct ech_box_placed {
    int dims;
    int64_t shape[ECH_MAX_DIMS]; /* of the larger tensor */
    int boxes;
    ech_box box[ECH_MOST_PLACED];
} ech_box_placed;

/* Places a box of a tensor of that shape. A tensor in several groups has at most three
 * dimensions. The last stride of a result is not 1 where `transposed`. */
ech_box_placed ech_box_place_in(const ech_box_place *place, int dims, const int64_t *shape,
                                const ech_box *box);

/* ---- runs ---- */

typedef struct ech_box_runs {
    int64_t count;                       /* number of runs; 0 for an empty box */
    int64_t length;                      /* of a run; 0 for an empty box */
    int64_t in_whole, in_memory;         /* where run 0 begins */
    int outer;                           /* number of outer dimensions */
    int64_t size[ECH_MAX_DIMS];          /* [outer] of the box */
    int64_t whole_stride[ECH_MAX_DIMS];  /* [outer] in the whole tensor */
    int64_t memory_stride[ECH_MAX_DIMS]; /* [outer] in memory */
} ech_box_runs;

/* The offsets of a run from the first element of the whole tensor and from the first in memory. */
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
/* True if the box is inside the shape. False also if ech_box_elements cannot count the shape's
 * elements. */
bool ech_box_is_inside(int dims, const int64_t *shape, const ech_box *box);
/* True if the memory of a non-empty box is row-major without overlap: the last stride is 1, and
 * each other stride is at least the extent, in elements, of the dimensions after it. Dimensions of
 * size 1 have any stride. */
bool ech_box_is_apart(int dims, const ech_box *box);

#endif

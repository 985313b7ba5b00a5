/* SPDX-License-Identifier: Apache-2.0
 *
 * A box is a hyper-rectangle of a row-major tensor. In the whole tensor's bytes it is a number of
 * runs of equal length: its trailing whole dimensions and one cut one lie together, and each index
 * of the dimensions before those begins another run. In the box's own memory the runs follow each
 * other.
 */
#ifndef ECH_CHECKPOINT_BOX_H
#define ECH_CHECKPOINT_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/tensor.h"

typedef struct ech_box_runs {
    int64_t count;  /* of runs; 0 for an empty box */
    int64_t length; /* elements in each */
    int64_t first;  /* element of the whole tensor where run 0 begins */
    int outer;      /* dimensions that step from run to run */
    int64_t size[ECH_MAX_DIMS], stride[ECH_MAX_DIMS]; /* of those, in elements */
} ech_box_runs;

/* Whether the box lies inside the shape, and the shape's elements can be counted. A box with
 * size[0] = 0 is empty and always inside; a scalar (dims 0) that is not empty has size[0] = 1. */
bool ech_box_is_inside(int dims, const int64_t *shape, const int64_t *begin, const int64_t *size);
/* Elements of a box or, with size = shape, of a whole tensor of at least one dimension. */
int64_t ech_box_count(int dims, const int64_t *size);
/* The runs of a box that is inside. */
ech_box_runs ech_box_split(int dims, const int64_t *shape, const int64_t *begin,
                           const int64_t *size);
/* The element of the whole tensor where run i begins. */
int64_t ech_box_run_at(const ech_box_runs *runs, int64_t i);

/* The product of the sizes; false on a negative size or overflow. 1 for dims = 0. */
bool ech_box_elements(int dims, const int64_t *shape, int64_t *out);

#endif

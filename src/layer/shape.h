/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes whose axes have names. BATCH and TOKENS have no size of their own until a list of steps
 * says how many samples and tokens its micro-batches hold.
 */
#ifndef ECH_LAYER_SHAPE_H
#define ECH_LAYER_SHAPE_H

#include <stdint.h>

#include "tensor/tensor.h"

typedef enum ech_axis {
#define X(name, meaning) ECH_AXIS_##name,
#include "layer/axes.def"
#undef X
    ECH_AXES
} ech_axis;

typedef struct ech_shape {
    int dims;
    ech_axis axis[ECH_MAX_DIMS];
    int64_t size[ECH_MAX_DIMS]; /* 0 where the axis is BATCH or TOKENS */
} ech_shape;

/* How many samples and tokens a micro-batch holds. */
typedef struct ech_extent {
    int64_t batch, tokens;
} ech_extent;

ech_shape ech_shape_1d(ech_axis axis, int64_t size);
ech_shape ech_shape_2d(ech_axis a, int64_t rows, ech_axis b, int64_t columns);
/* (B, T, columns) and (B, T, heads, width): one row of activations a token. */
ech_shape ech_shape_rows(ech_axis axis, int64_t columns);
ech_shape ech_shape_heads(ech_axis axis, int64_t heads, int64_t width);
/* (B, T): ids, targets, weights. */
ech_shape ech_shape_tokens(void);

/* The sizes under an extent, into out[dims]. */
void ech_shape_resolve(const ech_shape *shape, ech_extent extent, int64_t *out);
int64_t ech_shape_count(const ech_shape *shape, ech_extent extent);
#endif

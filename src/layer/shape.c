/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes with named axes.
 */
#include "layer/shape.h"

ech_shape ech_shape_1d(ech_axis axis, int64_t size)
{
    return (ech_shape){.dims = 1, .axis = {axis}, .size = {size}};
}

ech_shape ech_shape_2d(ech_axis a, int64_t rows, ech_axis b, int64_t columns)
{
    return (ech_shape){.dims = 2, .axis = {a, b}, .size = {rows, columns}};
}

ech_shape ech_shape_rows(ech_axis axis, int64_t columns)
{
    return (ech_shape){
        .dims = 3, .axis = {ECH_AXIS_BATCH, ECH_AXIS_TOKENS, axis}, .size = {0, 0, columns}};
}

ech_shape ech_shape_heads(ech_axis axis, int64_t heads, int64_t width)
{
    return (ech_shape){.dims = 4,
                       .axis = {ECH_AXIS_BATCH, ECH_AXIS_TOKENS, axis, ECH_AXIS_HEAD_DIM},
                       .size = {0, 0, heads, width}};
}

ech_shape ech_shape_tokens(void)
{
    return (ech_shape){.dims = 2, .axis = {ECH_AXIS_BATCH, ECH_AXIS_TOKENS}};
}

void ech_shape_resolve(const ech_shape *shape, ech_extent extent, int64_t *out)
{
    for (int i = 0; i < shape->dims; i++) {
        if (shape->axis[i] == ECH_AXIS_BATCH)
            out[i] = extent.batch;
        else if (shape->axis[i] == ECH_AXIS_TOKENS)
            out[i] = extent.tokens;
        else
            out[i] = shape->size[i];
    }
}

int64_t ech_shape_count(const ech_shape *shape, ech_extent extent)
{
    int64_t sizes[ECH_MAX_DIMS], count = 1;
    ech_shape_resolve(shape, extent, sizes);
    for (int i = 0; i < shape->dims; i++) count *= sizes[i];
    return count;
}

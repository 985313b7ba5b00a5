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

ech_shape ech_shape_of_rows(const ech_shape *x)
{
    ech_shape shape = *x;
    shape.dims--;
    return shape;
}

ech_shape ech_shape_without(const ech_shape *shape, unsigned dims)
{
    ech_shape rest = {0};
    for (int d = 0; d < shape->dims; d++) {
        if (dims & 1u << d) continue;
        rest.axis[rest.dims] = shape->axis[d];
        rest.size[rest.dims++] = shape->size[d];
    }
    return rest;
}

static const struct {
    ech_mesh mesh;
    int parts;
} rules[ECH_AXES] = {
#define X(name, mesh, parts, meaning) [ECH_AXIS_##name] = {ECH_MESH_##mesh, parts},
#include "layer/axes.def"
#undef X
};

static int at_least_one(int n)
{
    return n > 1 ? n : 1;
}

ech_mesh ech_axis_mesh(ech_axis axis)
{
    return rules[axis].mesh;
}

bool ech_shape_has(const ech_shape *shape, ech_axis axis)
{
    for (int d = 0; d < shape->dims; d++)
        if (shape->axis[d] == axis) return true;
    return false;
}

int ech_axis_shards(ech_axis axis, ech_sharding sharding)
{
    ech_mesh mesh = rules[axis].mesh;
    if (mesh == ECH_MESH_TENSOR) return at_least_one(sharding.tensor);
    if (mesh == ECH_MESH_KEY_VALUE) return at_least_one(sharding.key_value);
    if (mesh == ECH_MESH_TENSOR_CONTEXT)
        return at_least_one(sharding.tensor) * at_least_one(sharding.context);
    return 1;
}

int64_t ech_axis_local(ech_axis axis, int64_t size, ech_sharding sharding)
{
    int64_t shards = ech_axis_shards(axis, sharding), parts = rules[axis].parts;
    return parts * ((size / parts + shards - 1) / shards);
}

/* The shard of a parameter's axis that tensor rank `index` has. */
static int shard_of(ech_axis axis, ech_sharding sharding, int index)
{
    int shards = ech_axis_shards(axis, sharding);
    /* With fewer shards than ranks, neighbours have the same one. */
    return shards == 1 ? 0 : index / (at_least_one(sharding.tensor) / shards);
}

static int64_t resolve_axis(ech_axis axis, int64_t size, ech_extent extent)
{
    int shards = extent.sharding.sequence ? at_least_one(extent.sharding.tensor) : 1;
    if (axis == ECH_AXIS_BATCH) return extent.batch;
    if (axis == ECH_AXIS_TOKENS) return extent.tokens;
    if (axis == ECH_AXIS_SEQUENCE) return extent.sequence;
    if (axis == ECH_AXIS_SHARD) {
        int64_t members = at_least_one(extent.sharding.tensor);
        return (extent.batch * extent.tokens * size + members - 1) / members;
    }
    if (axis == ECH_AXIS_ROWS) return extent.batch * extent.tokens / shards;
    return ech_axis_local(axis, size, extent.sharding);
}

void ech_shape_resolve(const ech_shape *shape, ech_extent extent, int64_t *out)
{
    for (int i = 0; i < shape->dims; i++)
        out[i] = resolve_axis(shape->axis[i], shape->size[i], extent);
}

int64_t ech_shape_count(const ech_shape *shape, ech_extent extent)
{
    int64_t sizes[ECH_MAX_DIMS], count = 1;
    ech_shape_resolve(shape, extent, sizes);
    for (int i = 0; i < shape->dims; i++)
        ECH_ASSERT(!__builtin_mul_overflow(count, sizes[i], &count));
    return count;
}

int64_t ech_shape_whole(const ech_shape *shape)
{
    return ech_shape_count(shape, ech_extent_of_params((ech_sharding){0}));
}

static int sharded_dimension(const ech_shape *shape, ech_sharding sharding)
{
    for (int d = 0; d < shape->dims; d++)
        if (ech_axis_shards(shape->axis[d], sharding) > 1) return d;
    return -1;
}

bool ech_shape_is_sharded(const ech_shape *shape, ech_sharding sharding, int *shards)
{
    int dim = sharded_dimension(shape, sharding);
    *shards = dim < 0 ? 1 : ech_axis_shards(shape->axis[dim], sharding);
    return dim >= 0;
}

int ech_shape_slices(const ech_shape *shape, ech_sharding sharding, int index,
                     ech_slice out[ECH_MOST_SLICES])
{
    int dim = sharded_dimension(shape, sharding);
    if (dim < 0) {
        out[0] = (ech_slice){.count = shape->dims ? shape->size[0] : 1};
        return 1;
    }
    ech_axis axis = shape->axis[dim];
    int64_t parts = rules[axis].parts, whole = shape->size[dim] / parts;
    int64_t local = ech_axis_local(axis, shape->size[dim], sharding) / parts;
    int64_t first = local * shard_of(axis, sharding, index);
    int64_t count = first >= whole ? 0 : whole - first < local ? whole - first : local;
    for (int64_t part = 0; part < parts; part++)
        out[part] = (ech_slice){
            .dim = dim, .whole = part * whole + first, .local = part * local, .count = count};
    return (int)parts;
}

ech_slice_runs ech_slice_split(const ech_shape *shape, ech_sharding sharding,
                               const ech_slice *slice)
{
    int64_t sizes[ECH_MAX_DIMS], width = 1, runs = slice->count > 0;
    ech_shape_resolve(shape, ech_extent_of_params(sharding), sizes);
    for (int d = 0; d < slice->dim; d++) runs *= sizes[d];
    for (int d = slice->dim + 1; d < shape->dims; d++) width *= sizes[d];
    return (ech_slice_runs){.runs = runs,
                            .length = slice->count * width,
                            .whole = slice->whole * width,
                            .whole_step = shape->dims ? shape->size[slice->dim] * width : 1,
                            .local = slice->local * width,
                            .local_step = shape->dims ? sizes[slice->dim] * width : 1};
}

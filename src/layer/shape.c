/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes with named axes.
 */
#include "layer/shape.h"

const char *ech_axis_name(ech_axis axis)
{
    static const char *const names[] = {
#define X(name, ...) #name,
#include "layer/axes.def"
#undef X
    };
    return names[axis];
}

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

ech_shape ech_shape_samples(void)
{
    return (ech_shape){.dims = 1, .axis = {ECH_AXIS_BATCH}};
}

ech_shape ech_shape_images(int64_t height, int64_t width, int64_t channels)
{
    return (ech_shape){.dims = 4,
                       .axis = {ECH_AXIS_BATCH, ECH_AXIS_HEIGHT, ECH_AXIS_WIDTH, ECH_AXIS_CHANNELS},
                       .size = {0, height, width, channels}};
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

bool ech_shape_is_stack(const ech_shape *shape)
{
    return shape->dims > 0 && shape->axis[0] == ECH_AXIS_EXPERTS;
}

static bool is_filters(const ech_shape *shape)
{
    return shape->dims == 4 && shape->axis[2] == ECH_AXIS_HEIGHT &&
           shape->axis[3] == ECH_AXIS_WIDTH;
}

ech_shape ech_shape_seen(const ech_shape *shape)
{
    if (!is_filters(shape)) return *shape;
    return ech_shape_2d(shape->axis[0], shape->size[0], ECH_AXIS_PATCH,
                        shape->size[1] * shape->size[2] * shape->size[3]);
}

ech_shape ech_shape_of_one(const ech_shape *shape)
{
    return ech_shape_is_stack(shape) ? ech_shape_without(shape, 1) : ech_shape_seen(shape);
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

int ech_shape_replicas(const ech_shape *shape)
{
    for (int d = 0; d < shape->dims; d++)
        if (shape->axis[d] == ECH_AXIS_REPLICAS || shape->axis[d] == ECH_AXIS_EXPERT_REPLICAS)
            return d;
    return -1;
}

int ech_axis_shards(ech_axis axis, ech_sharding sharding)
{
    ech_mesh mesh = rules[axis].mesh;
    if (mesh == ECH_MESH_TENSOR) return at_least_one(sharding.tensor);
    if (mesh == ECH_MESH_KEY_VALUE) return at_least_one(sharding.key_value);
    if (mesh == ECH_MESH_EXPERT) return at_least_one(sharding.expert);
    if (mesh == ECH_MESH_REPLICAS) return at_least_one(sharding.replicas);
    if (axis == ECH_AXIS_EXPERT_REPLICAS)
        return at_least_one(sharding.replicas / at_least_one(sharding.expert));
    if (mesh == ECH_MESH_TENSOR_CONTEXT)
        return at_least_one(sharding.tensor) * at_least_one(sharding.context);
    return 1;
}

int64_t ech_axis_local(ech_axis axis, int64_t size, ech_sharding sharding)
{
    ech_cut cut = ech_axis_cut(axis, size, sharding, (ech_shard_at){0});
    return ech_cut_local(&cut);
}

ech_cut ech_axis_cut(ech_axis axis, int64_t size, ech_sharding sharding, ech_shard_at at)
{
    int shards = ech_axis_shards(axis, sharding);
    /* With fewer shards than ranks, adjacent ranks have the same one. */
    ech_mesh mesh = rules[axis].mesh;
    int shard = at.tensor * shards / at_least_one(sharding.tensor);
    if (mesh == ECH_MESH_EXPERT) shard = at.expert;
    if (mesh == ECH_MESH_REPLICAS) shard = at.replica;
    if (axis == ECH_AXIS_EXPERT_REPLICAS) shard = at.expert_replica;
    if (shards == 1) shard = 0;
    return (ech_cut){.size = size, .parts = rules[axis].parts, .shards = shards, .shard = shard};
}

static int64_t resolve_axis(ech_axis axis, int64_t size, ech_extent extent)
{
    int shards = at_least_one(extent.sharding.tensor);
    if (axis == ECH_AXIS_BATCH) return extent.batch;
    if (axis == ECH_AXIS_TOKENS) return extent.tokens;
    if (axis == ECH_AXIS_SEQUENCE) return extent.sequence;
    if (axis == ECH_AXIS_SHARD) return (extent.batch * extent.tokens * size + shards - 1) / shards;
    if (axis == ECH_AXIS_RECEIVED) return extent.batch * extent.tokens * size;
    if (axis == ECH_AXIS_ROWS) return extent.batch * extent.tokens / shards;
    if (axis == ECH_AXIS_SLOTS) return extent.batch * extent.tokens / shards * size;
    if (axis == ECH_AXIS_SLICE)
        return (extent.batch * extent.tokens / shards * size + ECH_SLICE_UNIT - 1) / ECH_SLICE_UNIT;
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

int ech_shape_copies(const ech_shape *shape, ech_sharding sharding)
{
    int shards = 1;
    for (int d = 0; d < shape->dims; d++) {
        bool tensor = rules[shape->axis[d]].mesh & ECH_MESH_TENSOR;
        int of_axis = tensor ? ech_axis_shards(shape->axis[d], sharding) : 1;
        if (of_axis > shards) shards = of_axis;
    }
    return at_least_one(sharding.tensor) / shards;
}

int ech_shape_interval_boxes(const ech_shape *shape, ech_sharding sharding, ech_shard_at at,
                             int64_t first, int64_t n, ech_box out[ECH_MOST_BOXES])
{
    ech_cut cut[ECH_MAX_DIMS];
    for (int d = 0; d < shape->dims; d++)
        cut[d] = ech_axis_cut(shape->axis[d], shape->size[d], sharding, at);
    return ech_box_cut(shape->dims, cut, first, n, out);
}

int ech_shape_boxes(const ech_shape *shape, ech_sharding sharding, ech_shard_at at,
                    ech_box out[ECH_MOST_BOXES])
{
    int64_t all = ech_shape_count(shape, ech_extent_of_params(sharding));
    return ech_shape_interval_boxes(shape, sharding, at, 0, all, out);
}

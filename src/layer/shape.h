/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes with named axes. Sizes are the unsharded tensor's; a rank's shard follows from the axes'
 * names and the extent (axes.def is the one table of rules). BATCH, TOKENS, SEQUENCE and ROWS have
 * no size of their own: a list of steps decides how many samples and tokens its micro-batches hold.
 */
#ifndef ECH_LAYER_SHAPE_H
#define ECH_LAYER_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/box.h"

typedef enum ech_axis {
#define X(name, mesh, parts, meaning) ECH_AXIS_##name,
#include "layer/axes.def"
#undef X
    ECH_AXES
} ech_axis;

/* ECH_AXIS_SLICE sizes are in units of 1/2^20 row. */
enum { ECH_SLICE_UNIT = 1 << 20 };

/* Sets of axes of the device mesh; a rank has a coordinate along each. If there are fewer key/value
 * heads than tensor ranks, the tensor axis is split in two: ranks along KEY_VALUE have different
 * key/value heads; ranks along QUERY have the same key/value heads, and different queries. Data and
 * context axes are split in two as well: ranks along the INNER ones have different experts (an
 * expert group), ranks along the OUTER ones the same experts. */
typedef enum ech_mesh {
    ECH_MESH_NONE = 0,
    ECH_MESH_STAGE = 1 << 0, /* stages of the pipeline */
    ECH_MESH_TIED = 1 << 1,  /* the stages that hold a tied parameter */
    ECH_MESH_DATA_OUTER = 1 << 2,
    ECH_MESH_DATA_INNER = 1 << 3,
    ECH_MESH_DATA = ECH_MESH_DATA_OUTER | ECH_MESH_DATA_INNER, /* replicas: each has some samples */
    ECH_MESH_CONTEXT_OUTER = 1 << 4,
    ECH_MESH_CONTEXT_INNER = 1 << 5,
    /* context ranks: each has some of the tokens of each sample */
    ECH_MESH_CONTEXT = ECH_MESH_CONTEXT_OUTER | ECH_MESH_CONTEXT_INNER,
    ECH_MESH_REPLICAS = ECH_MESH_DATA | ECH_MESH_CONTEXT,
    ECH_MESH_EXPERT = ECH_MESH_DATA_INNER | ECH_MESH_CONTEXT_INNER,
    ECH_MESH_EXPERT_DATA = ECH_MESH_DATA_OUTER | ECH_MESH_CONTEXT_OUTER,
    ECH_MESH_KEY_VALUE = 1 << 6,
    ECH_MESH_QUERY = 1 << 7,
    ECH_MESH_TENSOR = ECH_MESH_KEY_VALUE | ECH_MESH_QUERY,
    ECH_MESH_TENSOR_CONTEXT = ECH_MESH_TENSOR | ECH_MESH_CONTEXT,
    ECH_MESH_ROWS = ECH_MESH_DATA | ECH_MESH_CONTEXT | ECH_MESH_TENSOR,
    ECH_MESH_SERVER = 1 << 8 /* servers, in addition to the ranks that compute */
} ech_mesh;

typedef struct ech_shape {
    int dims;
    ech_axis axis[ECH_MAX_DIMS];
    int64_t size[ECH_MAX_DIMS]; /* unsharded; 0: decided by the extent */
} ech_shape;

/* Numbers of ranks over which layers are sharded. All 0 or 1: unsharded. */
typedef struct ech_sharding {
    int tensor;    /* t */
    int key_value; /* shards of the key/value heads: min(t, G) */
    int context;   /* c */
    int expert;    /* e: of the experts, over ranks of data x context */
    int replicas;  /* data x context */
    bool sequence; /* sequence parallelism: norms, dropout and residual sums have a row shard */
} ech_sharding;

/* A rank's shards: over tensor ranks, over an expert group, and over data x context (the replica
 * whose states it has). */
typedef struct ech_shard_at {
    int tensor, expert, replica;
    int expert_replica; /* index among the ranks with the same experts */
} ech_shard_at;

/* The sizes that one call of a list of steps works on, on this rank. */
typedef struct ech_extent {
    int64_t batch;    /* B: samples of a micro-batch */
    int64_t tokens;   /* T': tokens of each sample, for this rank and one sequence chunk */
    int64_t sequence; /* T: tokens of each sample, over all ranks and sequence chunks */
    ech_sharding sharding;
} ech_extent;

/* The extent for parameters, which have neither samples nor tokens. */
static inline ech_extent ech_extent_of_params(ech_sharding sharding)
{
    return (ech_extent){.batch = 1, .tokens = 1, .sequence = 1, .sharding = sharding};
}

ech_shape ech_shape_1d(ech_axis axis, int64_t size);
ech_shape ech_shape_2d(ech_axis a, int64_t rows, ech_axis b, int64_t columns);
/* (B, T, columns) and (B, T, heads, width): one row of activations per token. */
ech_shape ech_shape_rows(ech_axis axis, int64_t columns);
ech_shape ech_shape_heads(ech_axis axis, int64_t heads, int64_t width);
/* (B, T): ids, targets, weights. */
ech_shape ech_shape_tokens(void);
/* (B): one number per sample. */
ech_shape ech_shape_samples(void);
/* (B, H, W, C), channels last: each pixel is a row of `channels` columns. An image is one position
 * of its sample. */
ech_shape ech_shape_images(int64_t height, int64_t width, int64_t channels);

/* One number per row of x: its shape without the last axis. */
ech_shape ech_shape_of_rows(const ech_shape *x);
/* The shape without the dimensions whose bits are set: bit d, dimension d. */
ech_shape ech_shape_without(const ech_shape *shape, unsigned dims);

const char *ech_axis_name(ech_axis axis); /* as in axes.def: "MODEL" */
/* The axes of the mesh over which the axis is sharded. */
ech_mesh ech_axis_mesh(ech_axis axis);
/* The number of shards of a parameter's axis. */
int ech_axis_shards(ech_axis axis, ech_sharding sharding);
/* How a rank's shard of a parameter's axis of `size` is cut. */
ech_cut ech_axis_cut(ech_axis axis, int64_t size, ech_sharding sharding, ech_shard_at at);
/* The axis' size on a rank, of `size` in all. Uneven shards are padded to one size. */
int64_t ech_axis_local(ech_axis axis, int64_t size, ech_sharding sharding);

/* Writes a rank's sizes under an extent into out[dims]. */
void ech_shape_resolve(const ech_shape *shape, ech_extent extent, int64_t *out);
/* Elements of a rank's tensor under an extent. */
int64_t ech_shape_count(const ech_shape *shape, ech_extent extent);
/* Elements of the unsharded tensor. Only for shapes without axes of the extent: parameters. */
int64_t ech_shape_whole(const ech_shape *shape);

/* The boxes, without padding, that a rank has of a parameter, or of a tensor with its axes. */
int ech_shape_boxes(const ech_shape *shape, ech_sharding sharding, ech_shard_at at,
                    ech_box out[ECH_MOST_BOXES]);
/* The same for n of its elements, from `first` on; memory begins with that one. */
int ech_shape_interval_boxes(const ech_shape *shape, ech_sharding sharding, ech_shard_at at,
                             int64_t first, int64_t n, ech_box out[ECH_MOST_BOXES]);
/* The number of tensor ranks with the same boxes; they are adjacent. */
int ech_shape_copies(const ech_shape *shape, ech_sharding sharding);
bool ech_shape_has(const ech_shape *shape, ech_axis axis);
/* The dimension that counts replicas with separate numbers; -1: none. */
int ech_shape_replicas(const ech_shape *shape);
/* True for a stack of experts' parameters: its first dimension counts experts. */
bool ech_shape_is_stack(const ech_shape *shape);
/* A parameter's shape as optimizers and compression see it: filters (O,C,KH,KW) of a convolution
 * are the matrix (O, C KH KW), as in Muon and PowerSGD; others are unchanged. Elements keep their
 * places. */
ech_shape ech_shape_seen(const ech_shape *shape);
/* The same of one matrix of a stack. */
ech_shape ech_shape_of_one(const ech_shape *shape);

#endif

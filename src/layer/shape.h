/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes whose axes have names. Sizes are those of the unsharded tensor; a rank's shard follows
 * from the axes' names and the extent (axes.def is the one table of rules). BATCH, TOKENS, SEQUENCE
 * and ROWS have no size of their own: a list of steps says how many samples and tokens its
 * micro-batches hold.
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

/* Parts of a place, in which sizes of ECH_AXIS_WINDOW are. */
enum { ECH_WINDOW_PART = 1 << 20 };

/* Sets of axes of the device mesh; a rank has a coordinate along each. Where there are fewer
 * key/value heads than tensor ranks, the tensor axis is two: ranks along KEY_VALUE have different
 * key/value heads; ranks along QUERY have the same, and different queries that read them. Data and
 * context axes are two each: along the INNER ones ranks have different experts (an expert group),
 * along the OUTER ones the same. */
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
    ECH_MESH_SERVER = 1 << 8 /* servers, besides those who compute */
} ech_mesh;

typedef struct ech_shape {
    int dims;
    ech_axis axis[ECH_MAX_DIMS];
    int64_t size[ECH_MAX_DIMS]; /* unsharded; 0: the extent says it */
} ech_shape;

/* Over how many ranks layers are sharded. All 0 or 1: unsharded. */
typedef struct ech_sharding {
    int tensor;    /* t */
    int key_value; /* shards of the key/value heads: min(t, G) */
    int context;   /* c */
    int expert;    /* e: of the experts, over ranks of data x context */
    int replicas;  /* data x context */
    bool sequence; /* sequence parallelism: norms, dropout and residual sums have a row shard */
} ech_sharding;

/* Which shard a rank has of what is sharded over tensor ranks, over an expert group, and over data
 * x context (which replicas it has numbers of). */
typedef struct ech_shard_at {
    int tensor, expert, replica;
    int expert_replica; /* among those with the same experts */
} ech_shard_at;

/* How much one call of a list of steps works on, on this rank. */
typedef struct ech_extent {
    int64_t batch;    /* B: samples of a micro-batch */
    int64_t tokens;   /* T': of each sample: this rank's, of one sequence chunk */
    int64_t sequence; /* T: of each sample, over all ranks and sequence chunks */
    ech_sharding sharding;
} ech_extent;

/* The extent for parameters, which have neither samples nor tokens. */
static inline ech_extent ech_extent_of_params(ech_sharding sharding)
{
    return (ech_extent){.batch = 1, .tokens = 1, .sequence = 1, .sharding = sharding};
}

ech_shape ech_shape_1d(ech_axis axis, int64_t size);
ech_shape ech_shape_2d(ech_axis a, int64_t rows, ech_axis b, int64_t columns);
/* (B, T, columns) and (B, T, heads, width): one row of activations a token. */
ech_shape ech_shape_rows(ech_axis axis, int64_t columns);
ech_shape ech_shape_heads(ech_axis axis, int64_t heads, int64_t width);
/* (B, T): ids, targets, weights. */
ech_shape ech_shape_tokens(void);

/* One number a row of x: its shape without the last axis. */
ech_shape ech_shape_of_rows(const ech_shape *x);
/* The shape without the dimensions whose bits are set: bit d, dimension d. */
ech_shape ech_shape_without(const ech_shape *shape, unsigned dims);

/* The axes of the mesh over which the axis is sharded. */
ech_mesh ech_axis_mesh(ech_axis axis);
/* The number of shards of a parameter's axis. */
int ech_axis_shards(ech_axis axis, ech_sharding sharding);
/* How a rank has a parameter's axis cut, of `size` in all. */
ech_cut ech_axis_cut(ech_axis axis, int64_t size, ech_sharding sharding, ech_shard_at at);
/* The axis' size on a rank, with `size` in all. Uneven shards are padded to one size. */
int64_t ech_axis_local(ech_axis axis, int64_t size, ech_sharding sharding);

/* Writes a rank's sizes under an extent into out[dims]. */
void ech_shape_resolve(const ech_shape *shape, ech_extent extent, int64_t *out);
/* Elements of a rank's tensor under an extent. */
int64_t ech_shape_count(const ech_shape *shape, ech_extent extent);
/* Elements of the unsharded tensor. For shapes without axes of the extent: parameters. */
int64_t ech_shape_whole(const ech_shape *shape);

/* The boxes of a parameter, or of a tensor with its axes, that a rank has, without padding. */
int ech_shape_boxes(const ech_shape *shape, ech_sharding sharding, ech_shard_at at,
                    ech_box out[ECH_MOST_BOXES]);
/* The same of n of its elements, from `first` on; memory begins with that one. */
int ech_shape_interval_boxes(const ech_shape *shape, ech_sharding sharding, ech_shard_at at,
                             int64_t first, int64_t n, ech_box out[ECH_MOST_BOXES]);
/* How many tensor ranks have the same boxes of it; they are neighbours. */
int ech_shape_copies(const ech_shape *shape, ech_sharding sharding);
bool ech_shape_has(const ech_shape *shape, ech_axis axis);
/* The dimension that counts replicas, each with numbers of its own; -1: none. */
int ech_shape_replicas(const ech_shape *shape);
/* Whether it is stacked of experts: then its first dimension counts them. */
bool ech_shape_is_stack(const ech_shape *shape);
/* The shape of one of the stack; of what is none, the shape itself. */
ech_shape ech_shape_of_one(const ech_shape *shape);

#endif

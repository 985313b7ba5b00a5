/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes whose axes have names. Sizes are those of the uncut tensor; what a rank has of it follows from
 * the axes' names and the extent it works with (axes.def is the one table of rules). BATCH, TOKENS,
 * SEQUENCE and ROWS have no size of their own until a list of steps says how many samples and tokens
 * its micro-batches hold.
 */
#ifndef ECH_LAYER_SHAPE_H
#define ECH_LAYER_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/tensor.h"

typedef enum ech_axis {
#define X(name, mesh, parts, meaning) ECH_AXIS_##name,
#include "layer/axes.def"
#undef X
    ECH_AXES
} ech_axis;

/* Sets of axes of the device mesh; a rank has a coordinate along each. Where there are fewer key/value heads
 * than tensor ranks, these are two axes: KEY_VALUE, whose ranks have different key/value heads, and QUERY,
 * whose ranks have the same and share out the queries that read them. */
typedef enum ech_mesh {
    ECH_MESH_NONE = 0,
    ECH_MESH_STAGE = 1 << 0,   /* stages of the pipeline */
    ECH_MESH_TIED = 1 << 1,    /* those of them that hold a parameter which several share */
    ECH_MESH_DATA = 1 << 2,    /* replicas, which share out the samples */
    ECH_MESH_CONTEXT = 1 << 3, /* context ranks, which share out the tokens of each sample */
    ECH_MESH_KEY_VALUE = 1 << 4,
    ECH_MESH_QUERY = 1 << 5,
    ECH_MESH_TENSOR = ECH_MESH_KEY_VALUE | ECH_MESH_QUERY,
    ECH_MESH_TENSOR_CONTEXT = ECH_MESH_TENSOR | ECH_MESH_CONTEXT,
    ECH_MESH_ROWS = ECH_MESH_DATA | ECH_MESH_CONTEXT | ECH_MESH_TENSOR
} ech_mesh;

typedef struct ech_shape {
    int dims;
    ech_axis axis[ECH_MAX_DIMS];
    int64_t size[ECH_MAX_DIMS]; /* whole; 0 where the extent says it */
} ech_shape;

/* In how many ways layers are cut. All 0 or 1: not at all. */
typedef struct ech_cut {
    int tensor;    /* t */
    int key_value; /* into how many shards key/value heads go: min(t, G) */
    int context;   /* c */
    bool sequence; /* norms, dropout and residual sums see a share of the rows only */
} ech_cut;

/* How much a list of steps works on at a time, on this rank. */
typedef struct ech_extent {
    int64_t batch;    /* B: samples of a micro-batch */
    int64_t tokens;   /* T': of each sample, this rank's at a time */
    int64_t sequence; /* T: of each sample, of all ranks and pieces together */
    ech_cut cut;
} ech_extent;

/* The extent of what has neither samples nor tokens: parameters, cut as said. */
static inline ech_extent ech_extent_of_params(ech_cut cut)
{
    return (ech_extent){.batch = 1, .tokens = 1, .sequence = 1, .cut = cut};
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

/* Along which axes of the mesh ranks share the axis out. */
ech_mesh ech_axis_mesh(ech_axis axis);
/* How many shares of a parameter's axis there are. */
int ech_axis_shards(ech_axis axis, ech_cut cut);
/* The axis' size on a rank: of `size` in all. Shares that do not come out even are padded. */
int64_t ech_axis_local(ech_axis axis, int64_t size, ech_cut cut);

/* The sizes under an extent, into out[dims]. */
void ech_shape_resolve(const ech_shape *shape, ech_extent extent, int64_t *out);
/* Elements under an extent: on this rank. */
int64_t ech_shape_count(const ech_shape *shape, ech_extent extent);
/* Elements of the uncut tensor; of shapes that the extent does not touch. */
int64_t ech_shape_whole(const ech_shape *shape);

/* A rank's tensor in the uncut one: along dimension `dim`, `count` indices from `local` on are those from
 * `whole` on; all other dimensions are whole. */
typedef struct ech_slice {
    int dim;
    int64_t whole, local, count;
} ech_slice;
enum { ECH_MOST_SLICES = 3 };
/* The slices of a parameter that tensor rank `index` has, without its padding. Returns how many; of an
 * uncut parameter one, all of it. */
int ech_shape_slices(const ech_shape *shape, ech_cut cut, int index,
                     ech_slice out[ECH_MOST_SLICES]);
/* A slice as runs of elements that lie together in both tensors: run i is `length` elements from whole + i
 * whole_step on, of the uncut tensor, and from local + i local_step on, of the rank's. */
typedef struct ech_slice_runs {
    int64_t runs, length, whole, whole_step, local, local_step;
} ech_slice_runs;
ech_slice_runs ech_slice_split(const ech_shape *shape, ech_cut cut, const ech_slice *slice);
/* Whether some of the parameter's axes is cut; into how many shares: *shards, which may be fewer than there
 * are tensor ranks. */
bool ech_shape_is_cut(const ech_shape *shape, ech_cut cut, int *shards);
/* Whether it has the axis. */
bool ech_shape_has(const ech_shape *shape, ech_axis axis);

#endif

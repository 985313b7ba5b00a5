/* SPDX-License-Identifier: Apache-2.0
 *
 * One block as a grid of ranks has it, in fp64, all ranks in one thread: each has its share of the
 * parameters, values of its own, and nothing that it does not have under this grid. With a grid of
 * one rank it is the uncut block, to compare with. Which share a rank has is found element by
 * element, from the axes' names.
 */
#ifndef ECH_TESTS_LAYER_CUT_SIDE_H
#define ECH_TESTS_LAYER_CUT_SIDE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layer/layers.h"

enum { CUT_MOST_RANKS = 16, CUT_FIRST_SAMPLE = 4 };

/* One rank's memory: parameters, and the block's values by sequence chunk and base value. */
typedef struct cut_rank {
    double **param, **dparam, **value;
    bool *written; /* dparam holds a sum */
    double sums[ECH_LOSS_SUMS];
} cut_rank;

typedef struct cut_side {
    const ech_block *block;
    const ech_param *param;
    int params, ranks, tensor, context;
    int chunks, chunk; /* sequence chunks of a micro-batch, and the one that is computed now */
    bool *used;        /* [params] by this block */
    ech_extent extent;
    ech_purpose purpose;
    double scale;
    const ech_kernels *kernels;
    ech_kernel_context *compute;
    cut_rank rank[CUT_MOST_RANKS]; /* context rank by context rank; tensor ranks are neighbours */
    int collectives[ECH_PHASES];
} cut_side;

static inline int cut_at_least_one(int n)
{
    return n > 1 ? n : 1;
}

static inline double cut_draw(uint32_t stream, int64_t i)
{
    double n[4];
    ech_random_normals((ech_random_key){.seed = 9, .stream = stream}, (uint64_t)i / 4, n);
    return n[i % 4];
}

/* The memory of a base value; what is cached is one for all sequence chunks. */
static inline double **cut_value(const cut_side *s, int rank, int value)
{
    int chunk = s->block->value.at[value].cached ? 0 : s->chunk;
    return &s->rank[rank].value[chunk * (int)s->block->value.n + value];
}

/* ---- where a rank's elements lie in the uncut tensor ---- */

/* The rank's B x T' rows of this sequence chunk, or its shard of these. */
static inline ech_rows cut_rows(const cut_side *s, int rank, bool shard)
{
    ech_rows rows =
        ech_context_rows(&s->block->options, s->extent, CUT_FIRST_SAMPLE, rank / s->tensor);
    if (s->chunks > 1) rows.start[0] = s->chunk * s->extent.tokens;
    if (shard) rows.first = rank % s->tensor * (s->extent.batch * s->extent.tokens / s->tensor);
    return rows;
}

/* How many of the first dimensions are rows. */
static inline int cut_row_dims(const ech_shape *shape)
{
    if (shape->axis[0] == ECH_AXIS_ROWS) return 1;
    return shape->axis[0] == ECH_AXIS_BATCH ? 2 : 0;
}

/* Expert groups are of neighbouring context ranks. */
static inline ech_shard_at cut_shard_at(const cut_side *s, int rank)
{
    int e = cut_at_least_one(s->extent.sharding.expert);
    return (ech_shard_at){.tensor = rank % s->tensor, .expert = rank / s->tensor % e};
}

/* Index i of the rank's along a dimension, in the uncut tensor; -1: it is padding. */
static inline int64_t cut_whole_index(const ech_cut *cut, int64_t i)
{
    int64_t local = ech_cut_local(cut) / cut->parts, whole = cut->size / cut->parts;
    int64_t at = cut->shard * local + i % local;
    if (cut->shards == 1) return i;
    return at < whole ? i / local * whole + at : -1;
}

/* Of each of the rank's elements its place in the uncut tensor, or -1 for padding; free() it. */
static inline int64_t *cut_places(const cut_side *s, int rank, const ech_shape *shape, int64_t *n)
{
    bool held = cut_row_dims(shape) > 0;
    ech_extent extent = held ? s->extent : ech_extent_of_params(s->extent.sharding);
    int64_t local[ECH_MAX_DIMS], inner = 1;
    ech_rows rows = cut_rows(s, rank, shape->axis[0] == ECH_AXIS_ROWS);
    int first = cut_row_dims(shape);
    ech_shape_resolve(shape, extent, local);
    *n = ech_shape_count(shape, extent);
    for (int d = first; d < shape->dims; d++) inner *= local[d];
    int64_t *place = ech_calloc((size_t)*n + 1, sizeof *place);
    for (int64_t i = 0; i < *n; i++) {
        int64_t left = i % inner, width = inner, at = 0;
        if (held) at = ech_row_whole(&rows, i / inner) - CUT_FIRST_SAMPLE * s->extent.sequence;
        for (int d = first; d < shape->dims && at >= 0; d++) {
            width /= local[d];
            ech_cut cut = ech_axis_cut(shape->axis[d], shape->size[d], s->extent.sharding,
                                       cut_shard_at(s, rank));
            int64_t whole = cut_whole_index(&cut, left / width);
            at = whole < 0 ? -1 : at * shape->size[d] + whole;
            left %= width;
        }
        place[i] = at;
    }
    return place;
}

/* ---- memory ---- */

static inline double *cut_unwritten(int64_t n)
{
    double *x = ech_calloc((size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = NAN;
    return x;
}

static inline int64_t cut_param_count(const cut_side *s, int p)
{
    return ech_shape_count(&s->param[p].shape, ech_extent_of_params(s->extent.sharding));
}

static inline bool cut_exists(const ech_block_value *value)
{
    return value->base < 0 && value->purposes & (1u << ECH_TRAIN | 1u << ECH_EVALUATE);
}

/* Element i of the uncut value or parameter, in `to` as element k. */
static inline void cut_fill(const ech_block_value *value, uint32_t stream, int64_t i, int64_t ids,
                            void *to, int64_t k)
{
    if (value->type != ECH_TYPE_FIXED)
        ((double *)to)[k] = cut_draw(stream, i);
    else if (value->dtype == ECH_I32)
        ((int32_t *)to)[k] = (int32_t)((7 * i + 3 * (int)value->slot) % ids);
    else
        ((float *)to)[k] = i % 3 == 2 ? 0 : i % 2 ? 0.5f : 1.0f;
}

/* Documents of five tokens, whose borders lie elsewhere in each sample; all ranks have those of
 * whole samples. */
static inline void cut_fill_starts(const cut_side *s, void *to)
{
    int64_t T = s->extent.sequence;
    for (int64_t i = 0; i < s->extent.batch * T; i++) {
        int64_t sample = i / T, start = (i % T + 2 * sample) / 5 * 5 - 2 * sample;
        ((int32_t *)to)[i] = (int32_t)(start > 0 ? start : 0);
    }
}

/* Tokens after a sample's length are padding. All ranks know the lengths. */
static inline void cut_fill_lengths(const cut_side *s, void *to)
{
    for (int64_t i = 0; i < s->extent.batch; i++)
        ((int32_t *)to)[i] = (int32_t)(s->extent.sequence - 5 * i);
}

/* Streams of values that come from outside: inputs, gradients of outputs, and by slot the batch. */
static inline uint32_t cut_stream(const ech_block *block, int value)
{
    for (size_t i = 0; i < block->input.n; i++)
        if (block->input.at[i] == value) return 100 + (uint32_t)i;
    for (size_t i = 0; i < block->doutput.n; i++)
        if (block->doutput.at[i] == value) return 200 + (uint32_t)i;
    return 0;
}

static inline void cut_make_values(cut_side *s, int rank, int64_t ids)
{
    const ech_block *block = s->block;
    for (int v = 0; v < (int)block->value.n; v++) {
        const ech_block_value *value = &block->value.at[v];
        double **x = cut_value(s, rank, v);
        int64_t n;
        if (!cut_exists(value) || *x) continue;
        *x = cut_unwritten(ech_shape_count(&value->shape, s->extent));
        if (value->source == ECH_FROM_NODE) continue;
        if (value->source == ECH_FROM_BATCH && value->slot == ECH_STARTS) {
            cut_fill_starts(s, *x);
            continue;
        }
        if (value->source == ECH_FROM_BATCH && value->slot == ECH_LENGTHS) {
            cut_fill_lengths(s, *x);
            continue;
        }
        int64_t *place = cut_places(s, rank, &value->shape, &n);
        for (int64_t i = 0; i < n; i++) cut_fill(value, cut_stream(block, v), place[i], ids, *x, i);
        free(place);
    }
}

/* Padding is 0, as the program keeps it. */
static inline void cut_make_params(cut_side *s, int rank)
{
    cut_rank *r = &s->rank[rank];
    r->param = ech_calloc((size_t)s->params + 1, sizeof *r->param);
    r->dparam = ech_calloc((size_t)s->params + 1, sizeof *r->dparam);
    r->written = ech_calloc((size_t)s->params + 1, sizeof *r->written);
    for (int p = 0; p < s->params; p++) {
        int64_t n;
        if (!s->used[p]) continue;
        int64_t *place = cut_places(s, rank, &s->param[p].shape, &n);
        r->param[p] = cut_unwritten(n);
        r->dparam[p] = cut_unwritten(n);
        for (int64_t i = 0; i < n; i++)
            r->param[p][i] = place[i] < 0 ? 0 : 0.4 * cut_draw(300 + (uint32_t)p, place[i]);
        free(place);
    }
}

/* batch samples of T tokens; ids: the vocabulary. The block and its model's parameters are
 * borrowed. */
static inline cut_side cut_open(const ech_block *block, const ech_param *param, int params,
                                int64_t batch, int64_t T, int64_t ids)
{
    const ech_sharding *sharding = &block->options.sharding;
    cut_side s = {.block = block,
                  .param = param,
                  .params = params,
                  .tensor = cut_at_least_one(sharding->tensor),
                  .context = cut_at_least_one(sharding->context),
                  .chunks = cut_at_least_one(block->options.sequence_chunks),
                  .purpose = ECH_TRAIN,
                  .scale = 0.25,
                  .kernels = ech_kernels_ref(ECH_F64)};
    s.ranks = s.tensor * s.context;
    s.extent = (ech_extent){.batch = batch,
                            .tokens = T / s.context / s.chunks,
                            .sequence = T,
                            .sharding = block->options.sharding};
    ECH_ASSERT(s.ranks <= CUT_MOST_RANKS && T % (s.context * s.chunks) == 0);
    ECH_ASSERT(ech_kernel_context_create(1, &s.compute) == ECH_OK);
    s.used = ech_calloc((size_t)params + 1, sizeof *s.used);
    for (size_t i = 0; i < block->node.n; i++)
        for (int k = 0; k < block->node.at[i].params; k++)
            s.used[block->node.at[i].param[k]] = true;
    for (int rank = 0; rank < s.ranks; rank++) {
        size_t values = (size_t)s.chunks * block->value.n;
        s.rank[rank].value = ech_calloc(values + 1, sizeof *s.rank[rank].value);
        cut_make_params(&s, rank);
        for (s.chunk = 0; s.chunk < s.chunks; s.chunk++) cut_make_values(&s, rank, ids);
        s.chunk = 0;
    }
    return s;
}

static inline void cut_close(cut_side *s)
{
    for (int rank = 0; rank < s->ranks; rank++) {
        cut_rank *r = &s->rank[rank];
        for (size_t v = 0; v < (size_t)s->chunks * s->block->value.n; v++) free(r->value[v]);
        for (int p = 0; p < s->params; p++) {
            free(r->param[p]);
            free(r->dparam[p]);
        }
        free(r->param);
        free(r->dparam);
        free(r->value);
        free(r->written);
    }
    free(s->used);
    ech_kernel_context_destroy(s->compute);
}

#endif

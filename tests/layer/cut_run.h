/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a block on all ranks of a grid in lockstep: call by call, each on every rank before the next
 * one begins. What groups do together is done here by plain loops over the ranks' values, so that
 * neither schedules nor messages take part.
 */
#ifndef ECH_TESTS_LAYER_CUT_RUN_H
#define ECH_TESTS_LAYER_CUT_RUN_H

#include "layer/cut_side.h"

/* `value`: whose memory; `like`: whose geometry. */
static inline ech_tensor cut_tensor(const cut_side *s, int rank, int value, int like)
{
    return ech_block_tensor(s->block, like, s->extent, ech_types_of(ECH_F64),
                            *cut_value(s, rank, value));
}

/* ---- one call of one layer on one rank ---- */

static inline void cut_param(const cut_side *s, int rank, const ech_operand *o, ech_call *call)
{
    const cut_rank *r = &s->rank[rank];
    const ech_shape *shape = &s->param[o->value].shape;
    bool gradient = o->port == ECH_PORT_DPARAM;
    int64_t sizes[ECH_MAX_DIMS];
    ech_shape_resolve(shape, ech_extent_of_params(s->extent.sharding), sizes);
    call->port[o->port][o->index] = ech_tensor_view(
        gradient ? r->dparam[o->value] : r->param[o->value], ECH_F64, shape->dims, sizes);
    if (gradient) call->accumulate[o->index] = r->written[o->value];
}

static inline void cut_operands(const cut_side *s, int rank, const ech_block_call *c,
                                ech_call *call)
{
    for (const ech_operand *o = NULL; (o = ech_call_next(s->block, c, s->purpose, o));) {
        if (ech_operand_is_value(o))
            call->port[o->port][o->index] = cut_tensor(s, rank, o->value, o->like);
        else if (o->port != ECH_PORT_SCRATCH)
            cut_param(s, rank, o, call);
    }
}

static inline void cut_dispatch(cut_side *s, ech_phase phase, const ech_block_call *c,
                                ech_call *call)
{
    const ech_layer *layer = call->node->layer;
    bool forward = phase == ECH_FORWARD || c->recompute;
    ech_scratch_query query = {.block = s->block,
                               .node = call->node,
                               .kernels = s->kernels,
                               .threads = 1,
                               .extent = s->extent,
                               .phase = forward ? ECH_FORWARD : phase,
                               .purpose = s->purpose};
    size_t bytes = layer->scratch ? layer->scratch(&query) : 0, held = (bytes + 127) / 64 * 64;
    s->compute->scratch_bytes = bytes;
    s->compute->scratch = aligned_alloc(64, held);
    memset(s->compute->scratch, 0xff, held); /* not numbers */
    if (forward)
        layer->forward(call);
    else if (phase == ECH_BACKWARD_INPUT)
        layer->backward_input(call);
    else
        layer->backward_weight(call);
    free(s->compute->scratch);
}

static inline void cut_layer(cut_side *s, int rank, ech_phase phase, const ech_block_call *c)
{
    const ech_node *node = &s->block->node.at[c->node];
    cut_rank *r = &s->rank[rank];
    ech_call call = {.node = node,
                     .kernels = s->kernels,
                     .context = s->compute,
                     .extent = s->extent,
                     .purpose = s->purpose,
                     .seed = 11,
                     .step = &(const int64_t){2},
                     .layer = 3,
                     .options = &s->block->options,
                     .rows = cut_rows(s, rank, false),
                     .shard = cut_rows(s, rank, true),
                     .tensor_index = rank % s->tensor,
                     .tensor_size = s->tensor,
                     .context_index = rank / s->tensor,
                     .context_size = s->context,
                     .loss_sums = r->sums,
                     .loss_factor = &s->scale,
                     .state_share = 1,
                     .group_factor = &s->scale};
    cut_operands(s, rank, c, &call);
    cut_dispatch(s, phase, c, &call);
    for (int i = 0; i < node->params; i++)
        r->written[node->param[i]] |= call.dparam[i].data != NULL;
}

/* Where two gradients of one value meet. */
static inline void cut_meet(cut_side *s, int rank, const ech_block_call *c)
{
    ech_call call = {0};
    cut_operands(s, rank, c, &call);
    s->kernels->add(s->compute, &call.add[0], &call.dout[0], &call.din[0]);
}

/* ---- what groups do ---- */

/* From and to of the members of one group. */
typedef struct cut_group {
    int n;
    ech_tensor from[CUT_MOST_RANKS], to[CUT_MOST_RANKS];
    ech_tensor table[2][CUT_MOST_RANKS]; /* of rows by counts: second and third input */
} cut_group;

static inline void cut_all_reduce(const cut_group *g)
{
    int64_t count = ech_tensor_count(&g->from[0]);
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int m = 0; m < g->n; m++) sum += ((double *)g->from[m].data)[i];
        for (int m = 0; m < g->n; m++) ((double *)g->to[m].data)[i] = sum;
    }
}

static inline void cut_all_gather(const cut_group *g)
{
    size_t own = ech_tensor_bytes(&g->from[0]);
    ECH_ASSERT(ech_tensor_bytes(&g->to[0]) == own * (size_t)g->n);
    for (int m = 0; m < g->n; m++)
        for (int k = 0; k < g->n; k++)
            memcpy((char *)g->to[m].data + own * (size_t)k, g->from[k].data, own);
}

static inline void cut_reduce_scatter(const cut_group *g)
{
    int64_t own = ech_tensor_count(&g->to[0]);
    ECH_ASSERT(ech_tensor_count(&g->from[0]) == own * g->n);
    for (int64_t i = 0; i < own * g->n; i++) {
        double sum = 0;
        for (int m = 0; m < g->n; m++) sum += ((double *)g->from[m].data)[i];
        ((double *)g->to[i / own].data)[i % own] = sum;
    }
}

static inline void cut_shift(const cut_group *g, int distance)
{
    for (int m = 0; m < g->n; m++) {
        int next = ((m + distance) % g->n + g->n) % g->n;
        ECH_ASSERT(ech_tensor_is_contiguous(&g->from[m]) && g->from[m].data != g->to[next].data);
        memcpy(g->to[next].data, g->from[m].data, ech_tensor_bytes(&g->from[m]));
    }
}

static inline void cut_slide(const cut_group *g, int distance)
{
    for (int m = 0; m < g->n; m++)
        if (ech_collective_slides(-distance, g->n, m))
            memcpy(g->to[m].data, g->from[m - distance].data, ech_tensor_bytes(&g->to[m]));
        else
            memset(g->to[m].data, 0, ech_tensor_bytes(&g->to[m]));
}

static inline double *cut_element(const ech_tensor *x, int64_t b, int64_t t, int64_t h, int64_t d)
{
    return (double *)x->data + b * x->stride[0] + t * x->stride[1] + h * x->stride[2] + d;
}

/* Some tokens of all heads on one side, all tokens of some heads on the other: member m has the
 * m-th run of either. */
static inline void cut_all_to_all(const cut_group *g, bool to_heads)
{
    const ech_tensor *tokens = to_heads ? g->from : g->to, *heads = to_heads ? g->to : g->from;
    int64_t T = tokens->shape[1], H = heads->shape[2];
    ECH_ASSERT(heads->shape[1] == T * g->n && tokens->shape[2] == H * g->n);
    for (int64_t b = 0; b < tokens->shape[0]; b++)
        for (int64_t t = 0; t < T * g->n; t++)
            for (int64_t h = 0; h < H * g->n; h++)
                for (int64_t d = 0; d < tokens->shape[3]; d++) {
                    double *x = cut_element(&tokens[t / T], b, t % T, h, d);
                    double *y = cut_element(&heads[h / H], b, t, h % H, d);
                    if (to_heads)
                        *y = *x;
                    else
                        *x = *y;
                }
}

/* Block k of each member's goes to member k, as it lies in memory. */
static inline void cut_exchange_blocks(const cut_group *g)
{
    size_t all = ech_tensor_bytes(&g->from[0]), block = all / (size_t)g->n;
    ECH_ASSERT(all == ech_tensor_bytes(&g->to[0]) && all % (size_t)g->n == 0);
    for (int m = 0; m < g->n; m++)
        for (int k = 0; k < g->n; k++)
            memcpy((char *)g->to[k].data + block * (size_t)m,
                   (char *)g->from[m].data + block * (size_t)k, block);
}

/* The sum of a table's split for member k. */
static inline int64_t cut_count(const cut_group *g, const ech_tensor *table, int k)
{
    int64_t sum = 0, split = ech_tensor_count(table) / g->n;
    for (int64_t i = 0; i < split; i++) sum += ((const int32_t *)table->data)[k * split + i];
    return sum;
}

/* From a packed buffer, whose table is the first, to slices (forth), or back. */
static inline void cut_exchange_rows(const cut_group *g, bool forth)
{
    const ech_tensor *packed = forth ? g->from : g->to, *slices = forth ? g->to : g->from;
    size_t row = ech_tensor_bytes(&packed[0]) / (size_t)packed[0].shape[0];
    int64_t room = slices[0].shape[1];
    for (int m = 0; m < g->n; m++) memset(g->to[m].data, 0xff, ech_tensor_bytes(&g->to[m]));
    for (int m = 0; m < g->n; m++) {
        char *at = packed[m].data;
        for (int k = 0; k < g->n; k++) {
            int64_t n = cut_count(g, &g->table[0][m], k);
            char *slice = (char *)slices[k].data + row * (size_t)(m * room);
            ECH_ASSERT(n >= 0 && n <= room && n == cut_count(g, &g->table[1][k], m));
            memcpy(forth ? slice : at, forth ? at : slice, row * (size_t)n);
            at += row * (size_t)n;
        }
    }
}

/* Slices of all members, of which one table says how many rows are in use: to all of them, or the
 * sum of theirs to the owner. */
static inline void cut_move_slices(const cut_group *g, bool gathers)
{
    const ech_tensor *whole = gathers ? g->to : g->from, *own = gathers ? g->from : g->to;
    int64_t slices = own[0].shape[0], room = own[0].shape[1];
    int64_t row = ech_tensor_count(&own[0]) / (slices * room), all = slices * g->n;
    size_t bytes = (size_t)row * ech_dtype_bytes(own[0].dtype), n = bytes * (size_t)room;
    ECH_ASSERT(whole[0].shape[0] == all && g->table[0][0].shape[0] == all);
    for (int m = 0; m < g->n; m++) memset(g->to[m].data, 0xff, ech_tensor_bytes(&g->to[m]));
    for (int64_t w = 0; w < all; w++) {
        int64_t used = 0, X = ech_tensor_count(&g->table[0][0]) / all;
        char *split = (char *)own[w / slices].data + n * (size_t)(w % slices);
        double *mine = (double *)(void *)split;
        for (int64_t i = 0; i < X; i++) used += ((int32_t *)g->table[0][0].data)[w * X + i];
        ECH_ASSERT(used >= 0 && used <= room);
        for (int m = 0; gathers && m < g->n; m++)
            memcpy((char *)whole[m].data + n * (size_t)w, split, bytes * (size_t)used);
        for (int64_t i = 0; !gathers && i < used * row; i++) {
            mine[i] = 0;
            for (int m = 0; m < g->n; m++) mine[i] += ((double *)whole[m].data)[w * room * row + i];
        }
    }
}

static inline void cut_group_does(const cut_group *g, const ech_exchange *does)
{
    bool has_table = g->table[0][0].data != NULL;
    switch (does->kind) {
    case ECH_COLLECTIVE_ALL_REDUCE:
        for (int m = 0; m < g->n; m++) ECH_ASSERT(g->from[m].data == g->to[m].data);
        cut_all_reduce(g);
        break;
    case ECH_COLLECTIVE_ALL_GATHER:
        if (has_table)
            cut_move_slices(g, true);
        else
            cut_all_gather(g);
        break;
    case ECH_COLLECTIVE_REDUCE_SCATTER:
        if (has_table)
            cut_move_slices(g, false);
        else
            cut_reduce_scatter(g);
        break;
    case ECH_COLLECTIVE_ALL_TO_ALL:
        if (does->distance)
            cut_all_to_all(g, does->distance > 0);
        else
            cut_exchange_blocks(g);
        break;
    case ECH_COLLECTIVE_EXCHANGE_ROWS:
        cut_exchange_rows(g, does->distance > 0);
        break;
    case ECH_COLLECTIVE_SHIFT:
        cut_shift(g, does->distance);
        break;
    case ECH_COLLECTIVE_SLIDE:
        cut_slide(g, does->distance);
        break;
    case ECH_COLLECTIVE_NONE:
    case ECH_COLLECTIVES:
        ECH_ASSERT(false);
    }
}

static inline void cut_collective(cut_side *s, ech_phase phase, const ech_block_call *c,
                                  const ech_exchange *does)
{
    bool tensor = does->over == ECH_MESH_TENSOR, experts = does->over == ECH_MESH_EXPERT;
    int t = s->tensor, n = tensor ? t : experts ? s->extent.sharding.expert : s->context;
    for (int k = 0; k < s->ranks / n; k++) {
        cut_group g = {.n = n};
        for (int m = 0; m < n; m++) {
            int rank = tensor ? k * t + m : (k / t * n + m) * t + k % t;
            for (const ech_operand *o = NULL; (o = ech_call_next(s->block, c, s->purpose, o));) {
                ech_tensor *is = o->mode == ECH_READ ? &g.from[m] : &g.to[m];
                if (o->port == ECH_PORT_IN && o->index > 0) is = &g.table[o->index - 1][m];
                *is = cut_tensor(s, rank, o->value, o->like);
            }
        }
        cut_group_does(&g, does);
    }
    s->collectives[phase]++;
}

/* ---- programs ---- */

static inline void cut_call(cut_side *s, ech_phase phase, const ech_block_call *c)
{
    const ech_exchange *does = ech_call_exchange(s->block, c, phase, s->purpose);
    if (!(c->purposes & 1u << s->purpose)) return;
    if (does) {
        cut_collective(s, phase, c, does);
        return;
    }
    for (int rank = 0; rank < s->ranks; rank++) {
        if (c->node >= 0)
            cut_layer(s, rank, phase, c);
        else
            cut_meet(s, rank, c);
    }
}

/* All sequence chunks: forwards from the first on, backwards from the last on. */
static inline void cut_run(cut_side *s, ech_phase phase)
{
    for (int k = 0; k < s->chunks; k++) {
        s->chunk = phase == ECH_FORWARD ? k : s->chunks - 1 - k;
        for (size_t i = 0; i < s->block->program[phase].n; i++)
            cut_call(s, phase, &s->block->program[phase].at[i]);
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention, backward: for each tile of keys, tiles of queries, the probabilities computed
 * again from the rows' log sum exp (Dao et al. 2022, algorithm 4). A unit of work owns the
 * gradients of its keys and values; where few heads exist, a head's tiles of keys are dealt to
 * several units, and their shares of dq are added up in a fixed order. How many units there are
 * depends on the shapes alone, so the result is the same for any number of threads.
 */
#include <omp.h>

#include "kernel/cpu/attention.h"
#include "kernel/cpu/rows.h"

enum { UNITS_WANTED = 16 };

typedef struct gradients {
    const ech_tensor *dout, *out, *lse, *dq, *dk, *dv;
    float *dq_parts; /* (parts, B, H, tokens, width) where there is more than one part */
} gradients;

/* One thread's memory; "tokens" is T in full tiles. */
typedef struct workspace {
    float *query, *dout;          /* (tokens, width): a head's, packed; query times scale */
    float *dq, *dk, *dv;          /* (tokens, width): sums; dk, dv over the heads of a group */
    float *lse, *delta;           /* (tokens) */
    float *key, *key_t, *value_t; /* a tile of keys: (ECH_TILE, width), (D, ECH_TILE) twice */
    float *p, *ds;                /* (ECH_TILE, ECH_TILE) */
} workspace;

static int64_t parts_of(int64_t heads, int64_t tiles)
{
    int64_t parts = heads > 0 ? (UNITS_WANTED + heads - 1) / heads : 1;
    return parts < tiles ? parts : tiles;
}

static int64_t workspace_floats(int64_t T, int64_t D)
{
    int64_t width = ech_tile_width(D), tokens = ech_tile_count(T) * ECH_TILE;
    return tokens * (5 * width + 2) + ECH_TILE * (3 * width + 2 * ECH_TILE);
}

static workspace cut_workspace(const ech_attention *at, float *memory)
{
    int64_t tokens = at->tiles * ECH_TILE, whole = tokens * at->width, tile = ECH_TILE * at->width;
    workspace w = {.query = memory};
    w.dout = w.query + whole;
    w.dq = w.dout + whole;
    w.dk = w.dq + whole;
    w.dv = w.dk + whole;
    w.lse = w.dv + whole;
    w.delta = w.lse + tokens;
    w.key = w.delta + tokens;
    w.key_t = w.key + tile;
    w.value_t = w.key_t + tile;
    w.p = w.value_t + tile;
    w.ds = w.p + ECH_TILE * ECH_TILE;
    return w;
}

ECH_INLINE void clear(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = 0;
}

/* Packs a head's queries and output gradients; delta = dout · out. */
ECH_INLINE void begin_head(const ech_attention *at, const gradients *from, const workspace *w,
                           int64_t b, int64_t h)
{
    for (int64_t tile = 0; tile < at->tiles; tile++) {
        int64_t first = tile * ECH_TILE * at->width;
        ech_tile_pack(at->q, b, h, tile * ECH_TILE, at->scale, at->width, w->query + first);
        ech_tile_pack(from->dout, b, h, tile * ECH_TILE, 1.0F, at->width, w->dout + first);
    }
    const float *lse = (const float *)from->lse->data + (b * at->H + h) * at->T;
    for (int64_t t = 0; t < at->T; t++) {
        const float *out = (const float *)from->out->data + ((b * at->T + t) * at->H + h) * at->D;
        const float *dout = w->dout + t * at->width;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < at->D; d++) sum += dout[d] * out[d];
        w->delta[t] = sum;
        w->lse[t] = lse[t];
    }
}

/* From scores p and dout·v in ds: p becomes the (dropped) probability, ds the score's gradient
 * probability (m dout·v - delta), m what dropout multiplies by. */
ECH_INLINE void softmax_row(float *p, float *ds, const float *kept, float lse, float delta)
{
    if (kept) {
#pragma omp simd
        for (int j = 0; j < ECH_TILE; j++) {
            float probability = ech_exp(p[j] - lse);
            p[j] = probability * kept[j];
            ds[j] = probability * (ds[j] * kept[j] - delta);
        }
    } else {
#pragma omp simd
        for (int j = 0; j < ECH_TILE; j++) {
            p[j] = ech_exp(p[j] - lse);
            ds[j] = p[j] * (ds[j] - delta);
        }
    }
}

ECH_INLINE void meet_queries(const ech_attention *at, const workspace *w, float *dq, int64_t b,
                             int64_t h, int64_t queries, int64_t keys)
{
    int64_t width = at->width, first = queries * ECH_TILE * width, own = keys * ECH_TILE * width;
    const float *query = w->query + first, *dout = w->dout + first;
    ech_tile_multiply(ECH_TILE, at->D, query, width, 1, w->key_t, ECH_TILE, w->p, ECH_TILE, false);
    ech_tile_multiply(ECH_TILE, at->D, dout, width, 1, w->value_t, ECH_TILE, w->ds, ECH_TILE,
                      false);
    for (int64_t i = 0; i < ECH_TILE; i++) {
        int64_t t = queries * ECH_TILE + i, masked = keys == queries ? i + 1 : ECH_TILE;
        float *p = w->p + i * ECH_TILE, *ds = w->ds + i * ECH_TILE, kept[ECH_TILE];
        if (t < at->T) {
            if (at->threshold) ech_attention_kept(at, b, h, t, keys * ECH_TILE, kept);
            softmax_row(p, ds, at->threshold ? kept : NULL, w->lse[t], w->delta[t]);
        } else {
            masked = 0;
        }
        clear(p + masked, ECH_TILE - masked);
        clear(ds + masked, ECH_TILE - masked);
    }
    ech_tile_multiply(width, ECH_TILE, w->p, 1, ECH_TILE, dout, width, w->dv + own, width, true);
    ech_tile_multiply(width, ECH_TILE, w->ds, 1, ECH_TILE, query, width, w->dk + own, width, true);
    ech_tile_multiply(width, ECH_TILE, w->ds, ECH_TILE, 1, w->key, width, dq + first, width, true);
}

/* x [b, t, h] = factor times row t of `from`, for the tokens of one tile. */
ECH_INLINE void write_tile(const ech_attention *at, const ech_tensor *x, int64_t b, int64_t h,
                           int64_t tile, float factor, const float *from)
{
    for (int64_t t = tile * ECH_TILE; t < (tile + 1) * ECH_TILE && t < at->T; t++) {
        float *to = (float *)x->data + b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
        for (int64_t d = 0; d < at->D; d++) to[d] = factor * from[t * at->width + d];
    }
}

/* Every parts-th tile of keys of key/value head g, with all queries of its heads. */
ECH_CLONES static void backward_unit(const ech_attention *at, const gradients *from,
                                     const workspace *w, int64_t unit)
{
    int64_t part = unit % at->parts, g = unit / at->parts % at->G, b = unit / at->parts / at->G;
    int64_t whole = at->tiles * ECH_TILE * at->width;
    clear(w->dk, whole);
    clear(w->dv, whole);
    for (int64_t h = g * at->group; h < (g + 1) * at->group; h++) {
        float *dq = w->dq;
        if (at->parts > 1) dq = from->dq_parts + ((part * at->B + b) * at->H + h) * whole;
        begin_head(at, from, w, b, h);
        clear(dq, whole);
        for (int64_t keys = part; keys < at->tiles; keys += at->parts) {
            ech_tile_pack(at->k, b, g, keys * ECH_TILE, 1.0F, at->width, w->key);
            ech_tile_pack_transposed(at->k, b, g, keys * ECH_TILE, w->key_t);
            ech_tile_pack_transposed(at->v, b, g, keys * ECH_TILE, w->value_t);
            for (int64_t queries = keys; queries < at->tiles; queries++)
                meet_queries(at, w, dq, b, h, queries, keys);
        }
        for (int64_t tile = 0; at->parts == 1 && tile < at->tiles; tile++)
            write_tile(at, from->dq, b, h, tile, at->scale, dq);
    }
    for (int64_t tile = part; tile < at->tiles; tile += at->parts) {
        write_tile(at, from->dk, b, g, tile, 1.0F, w->dk);
        write_tile(at, from->dv, b, g, tile, 1.0F, w->dv);
    }
}

/* dq of one tile of queries: the parts' shares added in ascending order. */
ECH_CLONES static void add_parts(const ech_attention *at, const gradients *from, int64_t unit)
{
    int64_t tile = unit % at->tiles, h = unit / at->tiles % at->H, b = unit / at->tiles / at->H;
    int64_t whole = at->tiles * ECH_TILE * at->width, n = ECH_TILE * at->width;
    float *sum = from->dq_parts + (b * at->H + h) * whole;
    for (int64_t part = 1; part < at->parts; part++) {
        const float *more = sum + part * at->B * at->H * whole;
#pragma omp simd
        for (int64_t i = tile * n; i < (tile + 1) * n; i++) sum[i] += more[i];
    }
    write_tile(at, from->dq, b, h, tile, at->scale, sum);
}

void ech_cpu_attention_backward(ech_kernel_context *context, const ech_tensor *dout,
                                const ech_tensor *q, const ech_tensor *k, const ech_tensor *v,
                                const ech_tensor *out, const ech_tensor *lse, double scale,
                                const ech_dropout *dropout, const ech_tensor *dq,
                                const ech_tensor *dk, const ech_tensor *dv)
{
    ech_attention at = ech_attention_check(q, k, v, scale, dropout);
    ECH_SHAPE(dout, ECH_F32, at.B, at.T, at.H, at.D);
    ECH_SHAPE(out, ECH_F32, at.B, at.T, at.H, at.D);
    ECH_SHAPE(lse, ECH_F32, at.B, at.H, at.T);
    ECH_SHAPE_STRIDED(dq, ECH_F32, at.B, at.T, at.H, at.D);
    ECH_SHAPE_STRIDED(dk, ECH_F32, at.B, at.T, at.G, at.D);
    ECH_SHAPE_STRIDED(dv, ECH_F32, at.B, at.T, at.G, at.D);
    int threads = context->threads;
    int64_t dims[] = {at.B, at.T, at.H, at.G, at.D}, room = workspace_floats(at.T, at.D);
    float *memory =
        ech_scratch(context, ech_cpu_scratch_attention_backward(ECH_F32, threads, dims));
    at.parts = parts_of(at.B * at.G, at.tiles);
    gradients from = {dout, out, lse, dq, dk, dv, memory + threads * room};
#pragma omp parallel num_threads(threads)
    {
        workspace w = cut_workspace(&at, memory + omp_get_thread_num() * room);
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < at.B * at.G * at.parts; unit++)
            backward_unit(&at, &from, &w, unit);
        if (at.parts > 1) {
#pragma omp for
            for (int64_t unit = 0; unit < at.B * at.H * at.tiles; unit++)
                add_parts(&at, &from, unit);
        }
    }
}

/* dims: B, T, H, G, D. */
size_t ech_cpu_scratch_attention_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype;
    int64_t B = dims[0], T = dims[1], H = dims[2], G = dims[3], D = dims[4];
    int64_t parts = parts_of(B * G, ech_tile_count(T));
    int64_t head = ech_tile_count(T) * ECH_TILE * ech_tile_width(D);
    int64_t shares = parts > 1 ? parts * B * H * head : 0;
    return (size_t)(threads * workspace_floats(T, D) + shares) * sizeof(float);
}

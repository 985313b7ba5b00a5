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
    bool add_q, add_kv;
    float *dq_parts; /* (parts, B, H, queries, width) where there is more than one part */
} gradients;

/* One thread's memory; "queries" and "keys" are rows of all tiles, ECH_TILE each. */
typedef struct workspace {
    float *query, *dout;          /* (queries, width): a head's, packed; query times scale */
    float *dq;                    /* (queries, width): sums */
    float *dk, *dv;               /* (keys, width): sums over the heads of a group */
    float *lse, *delta;           /* (queries) */
    float *key, *key_t, *value_t; /* a tile of keys: (ECH_TILE, width), (D, ECH_TILE) twice */
    float *p, *ds;                /* (ECH_TILE, ECH_TILE) */
} workspace;

static int64_t parts_of(int64_t heads, int64_t Tk)
{
    int64_t parts = heads > 0 ? (UNITS_WANTED + heads - 1) / heads : 1;
    return ech_clamp(parts, 1, Tk > 0 ? ech_tile_count(Tk) : 1);
}

static int64_t workspace_floats(int64_t Tq, int64_t Tk, int64_t D)
{
    int64_t width = ech_tile_width(D);
    int64_t queries = ech_attention_most_tiles(Tq) * ECH_TILE;
    int64_t keys = ech_attention_most_tiles(Tk) * ECH_TILE;
    return queries * (3 * width + 2) + keys * 2 * width + ECH_TILE * (3 * width + 2 * ECH_TILE);
}

static workspace cut_workspace(const ech_attention *at, float *memory)
{
    int64_t queries = at->query_tiles * ECH_TILE, keys = at->key_tiles * ECH_TILE;
    int64_t tile = ECH_TILE * at->width;
    workspace w = {.query = memory};
    w.dout = w.query + queries * at->width;
    w.dq = w.dout + queries * at->width;
    w.dk = w.dq + queries * at->width;
    w.dv = w.dk + keys * at->width;
    w.lse = w.dv + keys * at->width;
    w.delta = w.lse + queries;
    w.key = w.delta + queries;
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

ECH_INLINE void clear_outside(float row[ECH_TILE], ech_seen seen)
{
    clear(row, seen.first);
    clear(row + seen.end, ECH_TILE - seen.end);
}

/* Packs a head's queries and output gradients; delta = dout · out. */
ECH_INLINE void begin_head(const ech_attention *at, const gradients *from, const workspace *w,
                           int64_t b, int64_t h)
{
    const float *lse = (const float *)from->lse->data + (b * at->H + h) * at->Tq;
    for (int64_t tile = 0; tile < at->query_tiles; tile++) {
        const ech_span queries = ech_attention_queries(at, tile);
        int64_t row = tile * ECH_TILE;
        float *packed = w->dout + row * at->width;
        ech_tile_pack(at->q, b, h, queries.first, queries.count, at->scale, at->width,
                      w->query + row * at->width);
        ech_tile_pack(from->dout, b, h, queries.first, queries.count, 1.0F, at->width, packed);
        for (int64_t i = 0; i < queries.count; i++) {
            int64_t t = queries.first + i;
            const float *dout = packed + i * at->width;
            const float *out =
                (const float *)from->out->data + ((b * at->Tq + t) * at->H + h) * at->D;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t d = 0; d < at->D; d++) sum += dout[d] * out[d];
            w->delta[row + i] = sum;
            w->lse[row + i] = lse[t];
        }
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

/* A tile of queries with one of keys, which are at these numbers. */
ECH_INLINE void meet_queries(const ech_attention *at, const workspace *w, float *dq, int64_t b,
                             int64_t h, int64_t query_tile, const ech_span *keys, int64_t key_tile)
{
    const ech_span queries = ech_attention_queries(at, query_tile);
    if (!ech_span_meets(at, b, &queries, keys)) return;
    int64_t width = at->width, row = query_tile * ECH_TILE, first = row * width;
    int64_t own = key_tile * ECH_TILE * width, rows = ech_tile_rows(queries.count);
    int64_t columns = ech_tile_width(keys->count), key_rows = ech_tile_rows(keys->count);
    const float *query = w->query + first, *dout = w->dout + first;
    bool masked = queries.count < ECH_TILE || !ech_span_sees_all(at, b, &queries, keys);
    ech_tile_multiply(rows, columns, at->D, query, width, 1, w->key_t, ECH_TILE, w->p, ECH_TILE,
                      false);
    ech_tile_multiply(rows, columns, at->D, dout, width, 1, w->value_t, ECH_TILE, w->ds, ECH_TILE,
                      false);
    for (int64_t i = 0; i < rows; i++) {
        int64_t position = queries.position + i;
        ech_seen seen = {0, i < queries.count ? ECH_TILE : 0};
        float *p = w->p + i * ECH_TILE, *ds = w->ds + i * ECH_TILE, kept[ECH_TILE];
        if (masked && i < queries.count) seen = ech_span_seen(at, b, keys, position);
        if (seen.first < seen.end) {
            if (at->threshold) ech_attention_kept(at, b, h, position, keys->position, kept);
            softmax_row(p, ds, at->threshold ? kept : NULL, w->lse[row + i], w->delta[row + i]);
        }
        clear_outside(p, seen);
        clear_outside(ds, seen);
    }
    ech_tile_multiply(key_rows, width, rows, w->p, 1, ECH_TILE, dout, width, w->dv + own, width,
                      true);
    ech_tile_multiply(key_rows, width, rows, w->ds, 1, ECH_TILE, query, width, w->dk + own, width,
                      true);
    ech_tile_multiply(rows, width, keys->count, w->ds, ECH_TILE, 1, w->key, width, dq + first,
                      width, true);
}

/* x [b, t, h] = (add ? itself : 0) + factor times a row of `from`, for the tokens of one tile. */
ECH_INLINE void write_tile(const ech_tensor *x, int64_t b, int64_t h, const ech_span *tokens,
                           float factor, int64_t width, const float *from, bool add)
{
    int64_t D = x->shape[3];
    for (int64_t i = 0; i < tokens->count; i++) {
        float *to = (float *)x->data + b * x->stride[0] + (tokens->first + i) * x->stride[1] +
                    h * x->stride[2];
        if (add)
            for (int64_t d = 0; d < D; d++) to[d] += factor * from[i * width + d];
        else
            for (int64_t d = 0; d < D; d++) to[d] = factor * from[i * width + d];
    }
}

ECH_INLINE void write_queries(const ech_attention *at, const gradients *from, int64_t b, int64_t h,
                              int64_t tile, const float *dq)
{
    const ech_span queries = ech_attention_queries(at, tile);
    write_tile(from->dq, b, h, &queries, at->scale, at->width, dq + tile * ECH_TILE * at->width,
               from->add_q);
}

/* Every parts-th tile of keys of key/value head g, with all queries of its heads. */
ECH_CLONES static void backward_unit(const ech_attention *at, const gradients *from,
                                     const workspace *w, int64_t unit)
{
    int64_t part = unit % at->parts, g = unit / at->parts % at->G, b = unit / at->parts / at->G;
    int64_t whole = at->query_tiles * ECH_TILE * at->width, tile = ECH_TILE * at->width;
    clear(w->dk, at->key_tiles * tile);
    clear(w->dv, at->key_tiles * tile);
    for (int64_t h = g * at->group; h < (g + 1) * at->group; h++) {
        float *dq = w->dq;
        if (at->parts > 1) dq = from->dq_parts + ((part * at->B + b) * at->H + h) * whole;
        begin_head(at, from, w, b, h);
        clear(dq, whole);
        for (int64_t j = part; j < at->key_tiles; j += at->parts) {
            const ech_span keys = ech_attention_keys(at, j);
            ech_tile_pack(at->k, b, g, keys.first, keys.count, 1.0F, at->width, w->key);
            ech_tile_pack_transposed(at->k, b, g, keys.first, keys.count, w->key_t);
            ech_tile_pack_transposed(at->v, b, g, keys.first, keys.count, w->value_t);
            for (int64_t i = 0; i < at->query_tiles; i++)
                meet_queries(at, w, dq, b, h, i, &keys, j);
        }
        for (int64_t i = 0; at->parts == 1 && i < at->query_tiles; i++)
            write_queries(at, from, b, h, i, dq);
    }
    for (int64_t j = part; j < at->key_tiles; j += at->parts) {
        const ech_span keys = ech_attention_keys(at, j);
        write_tile(from->dk, b, g, &keys, 1.0F, at->width, w->dk + j * tile, from->add_kv);
        write_tile(from->dv, b, g, &keys, 1.0F, at->width, w->dv + j * tile, from->add_kv);
    }
}

/* dq of one tile of queries: the parts' shares added in ascending order. */
ECH_CLONES static void add_parts(const ech_attention *at, const gradients *from, int64_t unit)
{
    int64_t tiles = at->query_tiles, tile = unit % tiles, h = unit / tiles % at->H;
    int64_t b = unit / tiles / at->H, whole = tiles * ECH_TILE * at->width;
    int64_t n = ECH_TILE * at->width;
    float *sum = from->dq_parts + (b * at->H + h) * whole;
    for (int64_t part = 1; part < at->parts; part++) {
        const float *more = sum + part * at->B * at->H * whole;
#pragma omp simd
        for (int64_t i = tile * n; i < (tile + 1) * n; i++) sum[i] += more[i];
    }
    write_queries(at, from, b, h, tile, sum);
}

void ECH_CPU(attention_backward)(ech_kernel_context *context, const ech_tensor *dout,
                                 const ech_tensor *q, const ech_tensor *k, const ech_tensor *v,
                                 const ech_tensor *out, const ech_tensor *lse, double scale,
                                 const ech_attention_place *place, const ech_tensor *starts,
                                 const ech_dropout *dropout, bool add_q, bool add_kv,
                                 const ech_tensor *dq, const ech_tensor *dk, const ech_tensor *dv)
{
    ech_attention at = ech_attention_check(q, k, v, scale, place, starts, dropout);
    ECH_SHAPE(dout, ECH_F32, at.B, at.Tq, at.H, at.D);
    ECH_SHAPE(out, ECH_F32, at.B, at.Tq, at.H, at.D);
    ECH_SHAPE(lse, ECH_F32, at.B, at.H, at.Tq);
    ECH_SHAPE_STRIDED(dq, ECH_F32, at.B, at.Tq, at.H, at.D);
    ECH_SHAPE_STRIDED(dk, ECH_F32, at.B, at.Tk, at.G, at.D);
    ECH_SHAPE_STRIDED(dv, ECH_F32, at.B, at.Tk, at.G, at.D);
    int threads = context->threads;
    int64_t dims[] = {at.B, at.Tq, at.Tk, at.H, at.G, at.D};
    int64_t room = workspace_floats(at.Tq, at.Tk, at.D);
    float *memory =
        ech_scratch(context, ECH_CPU(scratch_attention_backward)(ECH_F32, threads, dims));
    at.parts = parts_of(at.B * at.G, at.Tk);
    gradients from = {dout, out, lse, dq, dk, dv, add_q, add_kv, memory + threads * room};
#pragma omp parallel num_threads(threads)
    {
        workspace w = cut_workspace(&at, memory + omp_get_thread_num() * room);
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < at.B * at.G * at.parts; unit++)
            backward_unit(&at, &from, &w, unit);
        if (at.parts > 1) {
#pragma omp for
            for (int64_t unit = 0; unit < at.B * at.H * at.query_tiles; unit++)
                add_parts(&at, &from, unit);
        }
    }
}

/* dims: B, Tq, Tk, H, G, D. */
size_t ECH_CPU(scratch_attention_backward)(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype;
    int64_t B = dims[0], Tq = dims[1], Tk = dims[2], H = dims[3], G = dims[4], D = dims[5];
    int64_t parts = parts_of(B * G, Tk);
    int64_t head = ech_attention_most_tiles(Tq) * ECH_TILE * ech_tile_width(D);
    int64_t shares = parts > 1 ? parts * B * H * head : 0;
    return (size_t)(threads * workspace_floats(Tq, Tk, D) + shares) * sizeof(float);
}

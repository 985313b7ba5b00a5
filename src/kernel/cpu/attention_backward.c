/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention, backward: for each tile of keys, tiles of queries; probabilities are recomputed
 * from the rows' log sum exp (Dao et al. 2022, algorithm 4). A unit of work owns the gradients of
 * its keys and values. With few heads, a head's tiles of keys are distributed over several units,
 * whose partial sums of dq are added in a fixed order. The number of units depends on the shapes
 * alone, so the result is the same for any number of threads.
 */
#include <math.h>
#include <omp.h>

#include "kernel/cpu/attention.h"
#include "kernel/cpu/rows.h"

/* The number of tiles of keys that a tile of queries is multiplied with before the next one is
 * loaded from memory: with their gradients they fit in a core's L2 cache. */
enum { CHUNK = 4 };

enum { UNITS_WANTED = 16 };

typedef struct gradients {
    const ech_tensor *dout, *out, *lse, *dq, *dk, *dv;
    bool add_q, add_kv;
    float *dq_parts; /* (parts, B, H, queries, width) if there is more than one part */
} gradients;

/* One thread's memory; "queries" and "keys" are rows of all tiles, ECH_TILE each. */
typedef struct workspace {
    ech_unit *query;                  /* (queries, width): a head's, packed, times query_scale */
    ech_unit *dout;                   /* (queries, value_width) */
    ech_unit *query_rows, *dout_rows; /* the same, for sums over rows: of pairs packed anew */
    float *dq;                        /* (queries, width): sums */
    float *dk;                        /* (keys, width): sums over the heads of a group */
    float *dv;                        /* (keys, value_width): the same */
    float *lse, *delta;               /* (queries); lse times log2 e */
    ech_unit *key, *key_t,
        *value_t;               /* CHUNK tiles: (ECH_TILE, width), (D, ECH_TILE), (E, ECH_TILE) */
    float *p, *ds;              /* (ECH_TILE, ECH_TILE) */
    ech_unit *p_rows, *ds_rows; /* in units of queries: the same memory */
    ech_unit *ds_keys;          /* in units of keys */
} workspace;

/* Units of work per key/value head. Each unit packs the queries once more, and its partial dq must
 * be added. So heads are split only if there are few, or a number that does not divide evenly among
 * two threads. */
static int64_t parts_of(int64_t heads, int64_t Tk)
{
    if (heads <= 0 || heads >= UNITS_WANTED || (heads >= UNITS_WANTED / 2 && heads % 2 == 0))
        return 1;
    return ech_clamp((UNITS_WANTED + heads - 1) / heads, 1, Tk > 0 ? ech_tile_count(Tk) : 1);
}

static int64_t workspace_floats(int64_t Tq, int64_t Tk, int64_t D, int64_t E)
{
    int64_t width = ech_tile_width(D), value_width = ech_tile_width(E);
    int64_t queries = ech_attention_most_tiles(Tq) * ECH_TILE;
    int64_t keys = ech_attention_most_tiles(Tk) * ECH_TILE;
    return queries * (2 * width + value_width + 2) + keys * (width + value_width) +
           ECH_TILE * (CHUNK * (2 * width + value_width) + 2 * ECH_TILE);
}

/* The existing buffers of floats are large enough for units of pairs. */
static workspace cut_workspace(const ech_attention *at, float *memory)
{
    int64_t query_rows = at->query_tiles * ECH_TILE, key_rows = at->key_tiles * ECH_TILE;
    int64_t queries = query_rows * at->width, douts = query_rows * at->value_width;
    int64_t chunk = CHUNK * ECH_TILE * at->width / ECH_DEPTH;
    workspace w = {.query = (ech_unit *)memory};
    w.dout = w.query + queries;
    w.query_rows = ECH_DEPTH > 1 ? w.query + queries / ECH_DEPTH : w.query;
    w.dout_rows = ECH_DEPTH > 1 ? w.dout + douts / ECH_DEPTH : w.dout;
    w.dq = (float *)(w.dout + douts);
    w.dk = w.dq + queries;
    w.dv = w.dk + key_rows * at->width;
    w.lse = w.dv + key_rows * at->value_width;
    w.delta = w.lse + at->query_tiles * ECH_TILE;
    w.key = (ech_unit *)(w.delta + at->query_tiles * ECH_TILE);
    w.key_t = w.key + chunk;
    w.value_t = w.key_t + chunk;
    w.p = (float *)(w.value_t + CHUNK * ECH_TILE * at->value_width / ECH_DEPTH);
    w.ds = w.p + ECH_TILE * ECH_TILE;
    w.p_rows = (ech_unit *)w.p;
    w.ds_rows = (ech_unit *)w.ds;
    w.ds_keys = w.ds_rows + (ECH_DEPTH > 1 ? ECH_TILE * ECH_TILE : 0);
    return w;
}

ECH_INLINE void clear(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = 0;
}

/* dout · out of D numbers; `wide`: out is fp32. */
ECH_INLINE float dot(const ech_real *dout, bool wide, const void *out, int64_t D)
{
    ech_wide sum = {0};
    int64_t d = 0;
    for (; d + ECH_WIDE <= D; d += ECH_WIDE)
        sum += ech_wide_value(dout + d) * ech_either_load(wide, out, d);
    if (d < D)
        sum +=
            ech_either_load_some(false, dout, d, D - d) * ech_either_load_some(wide, out, d, D - d);
    return ech_wide_sum(sum);
}

/* Packs a head's queries and output gradients; delta = dout · out. */
ECH_OUTLINE void begin_head(const ech_attention *at, const gradients *from, const workspace *w,
                            int64_t b, int64_t h)
{
    const float *lse = (const float *)from->lse->data + (b * at->H + h) * at->Tq;
    bool wide = ech_is_wide(from->out);
    for (int64_t tile = 0; tile < at->query_tiles; tile++) {
        const ech_attention_tile queries = ech_attention_span(at->queries, tile);
        int64_t row = tile * ECH_TILE, packed = row * at->width / ECH_DEPTH;
        int64_t of_dout = row * at->value_width / ECH_DEPTH;
        ech_tile_pack(at->q, b, h, queries.first, queries.count, at->query_scale, at->width,
                      w->query + packed);
        ech_tile_pack(from->dout, b, h, queries.first, queries.count, 1.0F, at->value_width,
                      w->dout + of_dout);
        if (ECH_DEPTH > 1) {
            ech_tile_pack_rows(at->q, b, h, queries.first, queries.count, at->width,
                               w->query_rows + packed);
            ech_tile_pack_rows(from->dout, b, h, queries.first, queries.count, at->value_width,
                               w->dout_rows + of_dout);
        }
        for (int64_t i = 0; i < queries.count; i++) {
            int64_t t = queries.first + i;
            const ech_real *dout = ech_tile_row(from->dout, b, t, h);
            const void *out = ech_either_at(from->out, ech_tile_place(from->out, b, t, h));
            ech_tile_prefetch(from->out, b, h, queries.first, i, queries.count);
            w->delta[row + i] = dot(dout, wide, out, at->E);
            w->lse[row + i] = lse[t] * (float)ECH_LOG2_E;
        }
    }
}

/* A query's row: from scores p and dout·v in ds, p becomes the (dropped) probability, ds the
 * score's gradient probability (m dout·v - delta), m what dropout multiplies by; both are zero if
 * the query does not see the key. */
ECH_INLINE void softmax_row(float *p, float *ds, const float *factor, const ech_interval *seen,
                            float cap2, float lse, float delta)
{
    ech_wide_int first = (ech_wide_int){0}, at = first, end = first;
    for (int l = 0; seen && l < ECH_WIDE; l++) at[l] = l;
    if (seen) {
        first += (int32_t)seen->first;
        end += (int32_t)seen->end;
    }
#pragma GCC unroll 4
    for (int64_t j = 0; j < ECH_TILE; j += ECH_WIDE, at += ECH_WIDE) {
        ech_wide score = ech_wide_load(p + j), slope = ech_wide_all(1.0F);
        if (cap2 > 0) {
            score = ech_wide_tanh(score);
            slope -= score * score;
            score *= cap2;
        }
        ech_wide exponent = score - lse; /* above 0 by rounding alone */
        ech_wide probability = ech_wide_exp2(ech_wide_min(ech_wide_all(128.0F), exponent));
        ech_wide gradient = ech_wide_load(ds + j), weight = probability;
        if (factor) {
            gradient *= ech_wide_load(factor + j);
            weight *= ech_wide_load(factor + j);
        }
        gradient = probability * (gradient - delta);
        if (cap2 > 0) gradient *= slope;
        if (seen) {
            ech_wide_int within = ech_wide_within(first, at, end);
            weight = ech_wide_select(within, weight, (ech_wide){0});
            gradient = ech_wide_select(within, gradient, (ech_wide){0});
        }
        ech_wide_store(p + j, weight);
        ech_wide_store(ds + j, gradient);
    }
}

/* All rows of a tile of queries; the first is row `row` of the head's. */
ECH_OUTLINE void softmax_rows(const ech_attention *at, const workspace *w, int64_t b, int64_t h,
                              const ech_tile_mask *mask, const ech_attention_tile *queries,
                              const ech_attention_tile *keys, int64_t row)
{
    for (int64_t i = 0; i < ECH_TILE; i++) {
        const ech_interval seen = {mask->first[i], mask->end[i]};
        float *p = w->p + i * ECH_TILE, *ds = w->ds + i * ECH_TILE, factor[ECH_TILE];
        float lse = w->lse[row + i], delta = w->delta[row + i];
        if (seen.first >= seen.end) {
            clear(p, ECH_TILE);
            clear(ds, ECH_TILE);
            continue;
        }
        if (at->threshold) {
            ech_attention_dropout_mask(at, b, h, queries->position + i, keys->position, factor);
            softmax_row(p, ds, factor, &seen, at->cap2, lse, delta);
        } else if (mask->masked) {
            softmax_row(p, ds, NULL, &seen, at->cap2, lse, delta);
        } else {
            softmax_row(p, ds, NULL, NULL, at->cap2, lse, delta);
        }
    }
}

/* Rounds p and ds of a tile to pairs of queries, and ds also to pairs of keys. */
ECH_OUTLINE void pair_rows(const workspace *w)
{
#ifdef ECH_PAIRS
    for (int64_t i = 0; i < ECH_TILE; i += 2)
        for (int64_t j = 0; j < ECH_TILE; j += ECH_WIDE) {
            const float *p = w->p + i * ECH_TILE + j, *ds = w->ds + i * ECH_TILE + j;
            const ech_wide rows[] = {ech_wide_load(ds), ech_wide_load(ds + ECH_TILE)};
            ech_unit *keys = w->ds_keys + (i * ECH_TILE + j) / 2;
            _mm256_storeu_si256((__m256i_u *)keys, (__m256i)_mm512_cvtneps_pbh((__m512)rows[0]));
            keys += ECH_TILE / 2;
            _mm256_storeu_si256((__m256i_u *)keys, (__m256i)_mm512_cvtneps_pbh((__m512)rows[1]));
            ech_tile_round((const ech_wide[]){ech_wide_load(p), ech_wide_load(p + ECH_TILE)},
                           w->p_rows + i / 2 * ECH_TILE + j);
            ech_tile_round(rows, w->ds_rows + i / 2 * ECH_TILE + j);
        }
#endif
}

/* A tile of queries with tile `key_tile` of the keys, packed at `slot` of the chunk. */
ECH_INLINE void meet_queries(const ech_attention *at, const workspace *w, float *dq, int64_t b,
                             int64_t h, int64_t query_tile, int64_t key_tile, int64_t slot)
{
    const ech_attention_tile queries = ech_attention_span(at->queries, query_tile);
    const ech_attention_tile keys = ech_attention_span(at->keys, key_tile);
    if (!ech_span_meets(at, b, &queries, &keys)) return;
    int64_t width = at->width, value_width = at->value_width, row = query_tile * ECH_TILE;
    int64_t first = row * width / ECH_DEPTH, first_dout = row * value_width / ECH_DEPTH;
    int64_t own = key_tile * ECH_TILE, packed = slot * ECH_TILE * width / ECH_DEPTH;
    int64_t packed_value = slot * ECH_TILE * value_width / ECH_DEPTH;
    const ech_factor p_turned = {w->p_rows, 1, ECH_TILE}, ds_turned = {w->ds_rows, 1, ECH_TILE};
    ech_tile_mask mask;
    ech_tile_mask_fill(at, b, &queries, &keys, &mask);
    ech_tile_scores(mask.keys, ech_tile_units(at->D),
                    (ech_factor){w->query + first, width / ECH_DEPTH, 1}, w->key_t + packed,
                    at->scale2, w->p);
    ech_tile_scores(mask.keys, ech_tile_units(at->E),
                    (ech_factor){w->dout + first_dout, value_width / ECH_DEPTH, 1},
                    w->value_t + packed_value, at->sums_scale, w->ds);
    softmax_rows(at, w, b, h, &mask, &queries, &keys, row);
    pair_rows(w);
    ech_tile_sums(mask.queries, value_width, p_turned, w->dout_rows + first_dout, NULL,
                  w->dv + own * value_width);
    ech_tile_sums(mask.queries, width, ds_turned, w->query_rows + first, NULL, w->dk + own * width);
    ech_tile_sums(mask.keys, width, (ech_factor){w->ds_keys, ECH_TILE / ECH_DEPTH, 1},
                  w->key + packed, NULL, dq + row * width);
}

/* x [b, t, h] = (add ? itself : 0) + factor times a row of `from`, for the tokens of one tile. */
ECH_OUTLINE void write_tile(const ech_tensor *x, int64_t b, int64_t h,
                            const ech_attention_tile *tokens, float factor, int64_t width,
                            const float *from, bool add)
{
    int64_t D = x->shape[3];
    bool wide = ech_is_wide(x);
    for (int64_t i = 0; i < tokens->count; i++, from += width) {
        void *to = ech_either_at(x, ech_tile_place(x, b, tokens->first + i, h));
        int64_t d = 0;
        for (; d + ECH_WIDE <= D; d += ECH_WIDE) {
            ech_wide value = ech_wide_load(from + d) * factor;
            if (add) value = ech_either_load(wide, to, d) + factor * ech_wide_load(from + d);
            ech_either_store(wide, to, d, value);
        }
        for (; d < D; d++)
            ech_either_stored(wide, to, d,
                              (add ? ech_either_value(wide, to, d) : 0.0F) + factor * from[d]);
    }
}

ECH_INLINE void write_queries(const ech_attention *at, const gradients *from, int64_t b, int64_t h,
                              int64_t tile, const float *dq)
{
    const ech_attention_tile queries = ech_attention_span(at->queries, tile);
    write_tile(from->dq, b, h, &queries, at->scale, at->width, dq + tile * ECH_TILE * at->width,
               from->add_q);
}

ECH_INLINE void pack_keys(const ech_attention *at, const workspace *w, int64_t b, int64_t g,
                          int64_t key_tile, int64_t slot)
{
    const ech_attention_tile keys = ech_attention_span(at->keys, key_tile);
    int64_t to = slot * ECH_TILE * at->width / ECH_DEPTH;
    ech_tile_pack_rows(at->k, b, g, keys.first, keys.count, at->width, w->key + to);
    ech_tile_pack_transposed(at->k, b, g, keys.first, keys.count, 1.0F, w->key_t + to);
    ech_tile_pack_transposed(at->v, b, g, keys.first, keys.count, 1.0F,
                             w->value_t + slot * ECH_TILE * at->value_width / ECH_DEPTH);
}

/* Every parts-th tile of keys of key/value head g, with all queries of its heads. */
static void backward_unit(const ech_attention *at, const gradients *from, const workspace *w,
                          int64_t unit)
{
    int64_t part = unit % at->parts, g = unit / at->parts % at->G, b = unit / at->parts / at->G;
    int64_t whole = at->query_tiles * ECH_TILE * at->width, tile = ECH_TILE * at->width;
    int64_t value_tile = ECH_TILE * at->value_width;
    for (int64_t j = part; j < at->key_tiles; j += at->parts) {
        clear(w->dk + j * tile, tile);
        clear(w->dv + j * value_tile, value_tile);
    }
    for (int64_t h = g * at->group; h < (g + 1) * at->group; h++) {
        float *dq = w->dq;
        if (at->parts > 1) dq = from->dq_parts + ((part * at->B + b) * at->H + h) * whole;
        begin_head(at, from, w, b, h);
        clear(dq, whole);
        for (int64_t j = part; j < at->key_tiles; j += CHUNK * at->parts) {
            int64_t count = 0;
            for (; count < CHUNK && j + count * at->parts < at->key_tiles; count++)
                pack_keys(at, w, b, g, j + count * at->parts, count);
            for (int64_t i = 0; i < at->query_tiles; i++)
                for (int64_t c = 0; c < count; c++)
                    meet_queries(at, w, dq, b, h, i, j + c * at->parts, c);
        }
        for (int64_t i = 0; at->parts == 1 && i < at->query_tiles; i++)
            write_queries(at, from, b, h, i, dq);
    }
    for (int64_t j = part; j < at->key_tiles; j += at->parts) {
        const ech_attention_tile keys = ech_attention_span(at->keys, j);
        write_tile(from->dk, b, g, &keys, at->key_scale, at->width, w->dk + j * tile, from->add_kv);
        write_tile(from->dv, b, g, &keys, at->sums_scale, at->value_width, w->dv + j * value_tile,
                   from->add_kv);
    }
}

/* dq of one tile of queries: the parts' partial sums added in ascending order. */
static void add_parts(const ech_attention *at, const gradients *from, int64_t unit)
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
                                 const ech_tensor *out, const ech_tensor *lse,
                                 const ech_attention_rule *rule, const ech_attention_shard *shard,
                                 const ech_tensor *starts, const ech_dropout *dropout, bool add_q,
                                 bool add_kv, const ech_tensor *dq, const ech_tensor *dk,
                                 const ech_tensor *dv)
{
    ech_attention at = ech_attention_check(q, k, v, rule, shard, starts, dropout);
    ECH_ASSERT(!shard->query.position);
    ECH_SHAPES(attention_backward, ECH_REAL, dout, q, k, v, out, lse, dq, dk, dv);
    int threads = context->threads;
    int64_t dims[] = {at.B, at.Tq, at.Tk, at.H, at.G, at.D, at.E};
    int64_t room = workspace_floats(at.Tq, at.Tk, at.D, at.E);
    float *memory =
        ech_scratch(context, ECH_CPU(scratch_attention_backward)(ECH_REAL, threads, dims));
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

void ECH_CPU(sinks_backward)(ech_kernel_context *context, const ech_tensor *dout,
                             const ech_tensor *out, const ech_tensor *lse, const ech_tensor *sinks,
                             bool accumulate, const ech_tensor *dsinks)
{
    ECH_SHAPES(sinks_backward, ECH_REAL, dout, out, lse, sinks, dsinks);
    int64_t B = out->shape[0], T = out->shape[1], H = out->shape[2], D = out->shape[3];
    bool wide = ech_is_wide(out), sums_wide = ech_is_wide(dsinks);
#pragma omp parallel for num_threads(context->threads)
    for (int64_t h = 0; h < H; h++) {
        double sum = 0;
        float sink = ((const float *)sinks->data)[h];
        for (int64_t row = 0; row < B * T; row++) {
            const void *x = ech_either_at(out, ech_tile_place(out, row / T, row % T, h));
            const ech_real *dx = ech_tile_row(dout, row / T, row % T, h);
            float p = expf(sink - ((const float *)lse->data)[(row / T * H + h) * T + row % T]);
            sum -= (double)(p * dot(dx, wide, x, D));
        }
        if (accumulate) sum += (double)ech_either_value(sums_wide, dsinks->data, h);
        ech_either_stored(sums_wide, dsinks->data, h, (float)sum);
    }
}

/* dims: B, Tq, Tk, H, G, D, E. */
size_t ECH_CPU(scratch_attention_backward)(ech_dtype dtype, int threads, const int64_t *dims)
{
    int64_t B = dims[0], Tq = dims[1], Tk = dims[2], H = dims[3], G = dims[4], D = dims[5];
    int64_t parts = parts_of(B * G, Tk);
    int64_t head = ech_attention_most_tiles(Tq) * ECH_TILE * ech_tile_width(D);
    int64_t partials = parts > 1 ? parts * B * H * head : 0;
    return (size_t)(threads * workspace_floats(Tq, Tk, D, dims[6]) + partials) * sizeof(float);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention, forward: for each tile of queries, tiles of keys with the online softmax (Dao
 * et al. 2022, algorithm 1). A row's result does not depend on the distribution of rows over
 * threads.
 */
#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernel/cpu/attention.h"
#include "kernel/cpu/rows.h"
#include "kernel/seen.h"

/* One thread's memory. Keys and values of a whole head, the rest for one tile of queries. Scores
 * have a row for each key, so that maxima and sums of many queries are computed together. */
typedef struct workspace {
    ech_unit *keys;                /* (key tiles, ECH_TILE, width) */
    ech_unit *values;              /* (key tiles, ECH_TILE, value_width) */
    ech_unit *query;               /* (D, ECH_TILE) */
    float *out;                    /* (ECH_TILE, value_width) */
    float *scores;                 /* (keys: ECH_TILE, queries: ECH_TILE) */
    ech_unit *probabilities;       /* in units of keys; the same memory */
    float *max, *sum, *correction; /* of each query so far; what the last tile of keys changed */
} workspace;

static int64_t workspace_floats(int64_t Tk, int64_t D, int64_t E)
{
    int64_t width = ech_tile_width(D) + ech_tile_width(E), tile = ECH_TILE;
    return (ech_attention_most_tiles(Tk) + 1) * tile * width + tile * tile + 3 * tile;
}

/* The existing buffers of floats are large enough for units of pairs. */
static workspace cut_workspace(const ech_attention *at, float *memory)
{
    workspace w = {.keys = (ech_unit *)memory};
    w.values = w.keys + at->key_tiles * ECH_TILE * at->width / ECH_DEPTH;
    w.query = w.values + at->key_tiles * ECH_TILE * at->value_width / ECH_DEPTH;
    w.out = (float *)(w.query + ECH_TILE * at->width / ECH_DEPTH);
    w.scores = w.out + ECH_TILE * at->value_width;
    w.probabilities = (ech_unit *)w.scores;
    w.max = w.scores + ECH_TILE * ECH_TILE;
    w.sum = w.max + ECH_TILE;
    w.correction = w.sum + ECH_TILE;
    return w;
}

/* A vector of queries from `query` on: turns their scores into units of 2^(score - max), and
 * computes the factor that corrects sums made with a smaller max. */
ECH_OUTLINE void softmax_columns(const ech_attention *at, const workspace *w,
                                 const ech_tile_mask *mask, int64_t query)
{
    enum { CHAINS = 4 };
    float *scores = w->scores + query;
    int64_t begin = mask->first[query] / ECH_DEPTH * ECH_DEPTH, j = begin;
    int64_t end = ech_tile_units(mask->end[query + ECH_WIDE - 1]) * ECH_DEPTH;
    ech_wide old = ech_wide_load(w->max + query), max[CHAINS] = {old, old, old, old};
    for (int64_t key = begin; at->cap2 > 0 && key < end; key++)
        ech_wide_store(scores + key * ECH_TILE,
                       at->cap2 * ech_wide_tanh(ech_wide_load(scores + key * ECH_TILE)));
    if (mask->masked) {
        ech_wide_int first = *(const ech_wide_int *)(mask->first + query);
        ech_wide_int last = *(const ech_wide_int *)(mask->end + query);
        for (int64_t key = begin; key < end; key++) {
            ech_wide_int seen = ech_wide_within(first, (ech_wide_int){0} + (int32_t)key, last);
            ech_wide score = ech_wide_load(scores + key * ECH_TILE);
            score = ech_wide_select(seen, score, ech_wide_all(-INFINITY));
            ech_wide_store(scores + key * ECH_TILE, score);
        }
    }
    for (; j + CHAINS <= end; j += CHAINS)
#pragma GCC unroll 4
        for (int c = 0; c < CHAINS; c++)
            max[c] = ech_wide_max(ech_wide_load(scores + (j + c) * ECH_TILE), max[c]);
    for (; j < end; j++) max[0] = ech_wide_max(ech_wide_load(scores + j * ECH_TILE), max[0]);
    max[0] = ech_wide_max(ech_wide_max(max[0], max[1]), ech_wide_max(max[2], max[3]));
    ech_wide correction = ech_wide_exp2(old - max[0]), sum = {0}, p[ECH_DEPTH];
    for (j = begin; j < end; j += ECH_DEPTH) {
        for (int c = 0; c < ECH_DEPTH; c++) {
            p[c] = ech_wide_exp2(ech_wide_load(scores + (j + c) * ECH_TILE) - max[0]);
            sum += p[c];
        }
        ech_tile_round(p, w->probabilities + j / ECH_DEPTH * ECH_TILE + query);
    }
    ech_wide_store(w->max + query, max[0]);
    ech_wide_store(w->sum + query, ech_wide_load(w->sum + query) * correction + sum);
    ech_wide_store(w->correction + query, correction);
}

/* A tile of queries with tile `tile` of the keys. */
ECH_INLINE void meet_keys(const ech_attention *at, const workspace *w, int64_t b, int64_t h,
                          const ech_attention_tile *queries, int64_t tile)
{
    const ech_attention_tile keys = ech_attention_span(at->keys, tile);
    int64_t offset = tile * ECH_TILE * at->width / ECH_DEPTH;
    int64_t value_offset = tile * ECH_TILE * at->value_width / ECH_DEPTH;
    ech_tile_mask mask;
    ech_tile_mask_fill(at, b, queries, &keys, &mask);
    ech_tile_scores(mask.queries, ech_tile_units(at->D),
                    (ech_factor){w->keys + offset, at->width / ECH_DEPTH, 1}, w->query, at->scale2,
                    w->scores);
    for (int64_t i = 0; i < queries->count; i += ECH_WIDE) softmax_columns(at, w, &mask, i);
    for (int64_t i = 0; at->threshold && i < queries->count; i++) {
        float factor[ECH_TILE];
        ech_attention_dropout_mask(at, b, h, queries->position + i, keys.position, factor);
        for (int64_t j = mask.first[i]; j < mask.end[i]; j++)
            ech_tile_drop(w->probabilities + j / ECH_DEPTH * ECH_TILE + i, j % ECH_DEPTH,
                          factor[j]);
    }
    ech_tile_sums(mask.keys, at->value_width, (ech_factor){w->probabilities, 1, ECH_TILE},
                  w->values + value_offset, w->correction, w->out);
}

/* The destination of results, which overwrite it or are merged with it. */
typedef struct results {
    const ech_tensor *out;
    float *lse;
    bool merge;
} results;

/* out = from weight + (add ? out old_weight : 0). */
ECH_INLINE void store_numbers(int64_t D, const float *from, float weight, bool add,
                              float old_weight, bool wide, void *out)
{
    int64_t d = 0;
    for (; d + ECH_WIDE <= D; d += ECH_WIDE) {
        ech_wide x = ech_wide_load(from + d) * weight;
        if (add) x = ech_either_load(wide, out, d) * old_weight + x;
        ech_either_store(wide, out, d, x);
    }
    for (; d < D; d++) {
        float x = from[d] * weight;
        if (add) x = ech_either_value(wide, out, d) * old_weight + x;
        ech_either_stored(wide, out, d, x);
    }
}

/* Writes the row `from` (E) times scale, whose exponentials relative to max add up to `sum`, to out
 * and lse. The softmax over two sets of keys weighs each result by its fraction of the sum of
 * exponentials. A row that saw no key has sum 0; the results of padded products in it are not
 * read. */
ECH_OUTLINE void store_row(int64_t E, const float *from, float max, float sum, float scale,
                           bool merge, bool wide, void *out, float *lse)
{
    bool none = sum == 0.0F, alone = !merge || *lse == -INFINITY;
    float whole = (max + log2f(sum)) * (float)ECH_LN_2, weight = scale / sum;
    if (none) {
        for (int64_t d = 0; d < E && !merge; d++) ech_either_stored(wide, out, d, 0.0F);
        if (!merge) *lse = -INFINITY;
    } else if (alone) {
        store_numbers(E, from, weight, false, 0.0F, wide, out);
        *lse = whole;
    } else {
        float before = *lse, top = before > whole || isnan(before) ? before : whole;
        float both = top + logf(expf(before - top) + expf(whole - top));
        weight *= expf(whole - both);
        store_numbers(E, from, weight, true, expf(before - both), wide, out);
        *lse = both;
    }
}

/* The tiles of keys that a tile of queries is multiplied with: none if first > end. For a later
 * tile of queries they begin and end no earlier. */
ECH_INLINE ech_interval tiles_met(const ech_attention *at, int64_t b,
                                  const ech_attention_tile *queries)
{
    int64_t start = ech_attention_first(at->rule, at->starts, b, queries->position);
    ech_interval met = {0, 0};
    for (int64_t n = 0; n < at->key_tiles; n++) {
        const ech_attention_tile keys = ech_attention_span(at->keys, n);
        met.first += keys.position + keys.count <= start;
        met.end += keys.position < queries->position + queries->count;
    }
    return met;
}

/* True if the query sees some key. */
static bool sees_some(const ech_attention *at, int64_t b, int64_t position)
{
    for (int64_t tile = 0; tile < at->key_tiles; tile++) {
        const ech_attention_tile keys = ech_attention_span(at->keys, tile);
        ech_interval seen = ech_span_seen(at, b, &keys, position);
        if (seen.first < seen.end) return true;
    }
    return false;
}

ECH_OUTLINE void forward_tile(const ech_attention *at, const workspace *w, int64_t b, int64_t h,
                              const ech_attention_tile *queries, const results *to)
{
    ech_tile_pack_transposed(at->q, b, h, queries->first, queries->count, at->query_scale,
                             w->query);
    for (int64_t i = 0; i < ECH_TILE * at->value_width; i++) w->out[i] = 0;
    for (int64_t i = 0; i < ECH_TILE; i++) {
        w->max[i] = -FLT_MAX; /* finite, so that differences to it are */
        w->sum[i] = 0;
        w->correction[i] = 1;
    }
    const ech_interval met = tiles_met(at, b, queries);
    for (int64_t tile = met.first; tile < met.end; tile++) meet_keys(at, w, b, h, queries, tile);
    for (int64_t i = 0; i < queries->count; i++) {
        int64_t t = queries->first + i;
        /* Scores of minus infinity alone have no softmax. */
        if (w->sum[i] == 0.0F && sees_some(at, b, queries->position + i)) w->sum[i] = NAN;
        store_row(at->E, w->out + i * at->value_width, w->max[i], w->sum[i], at->sums_scale,
                  to->merge, ech_is_wide(to->out),
                  ech_either_at(to->out, ech_tile_place(to->out, b, t, h)),
                  to->lse + (b * at->H + h) * at->Tq + t);
    }
}

/* Every parts-th tile of queries of the heads that read key/value head g. */
static void forward_unit(const ech_attention *at, const workspace *w, int64_t unit,
                         const results *to)
{
    int64_t part = unit % at->parts, g = unit / at->parts % at->G, b = unit / at->parts / at->G;
    const ech_attention_tile first = ech_attention_span(at->queries, 0);
    const ech_attention_tile last = ech_attention_span(at->queries, at->query_tiles - 1);
    int64_t end = tiles_met(at, b, &last).end;
    for (int64_t tile = tiles_met(at, b, &first).first; tile < end; tile++) {
        const ech_attention_tile keys = ech_attention_span(at->keys, tile);
        int64_t row = tile * ECH_TILE;
        ech_tile_pack(at->k, b, g, keys.first, keys.count, 1.0F, at->width,
                      w->keys + row * at->width / ECH_DEPTH);
        ech_tile_pack_rows(at->v, b, g, keys.first, keys.count, at->value_width,
                           w->values + row * at->value_width / ECH_DEPTH);
    }
    for (int64_t h = g * at->group; h < (g + 1) * at->group; h++)
        for (int64_t tile = part; tile < at->query_tiles; tile += at->parts) {
            const ech_attention_tile queries = ech_attention_span(at->queries, tile);
            forward_tile(at, w, b, h, &queries, to);
        }
}

void ECH_CPU(attention_forward)(ech_kernel_context *context, const ech_tensor *q,
                                const ech_tensor *k, const ech_tensor *v,
                                const ech_attention_rule *rule, const ech_attention_shard *shard,
                                const ech_tensor *starts, const ech_dropout *dropout, bool merge,
                                const ech_tensor *out, const ech_tensor *lse)
{
    ECH_SEEN(shard, k, v);
    ech_attention at = ech_attention_check(q, k, v, rule, shard, starts, dropout);
    ECH_SHAPES(attention_forward, ECH_REAL, q, k, v, out, lse);
    int threads = context->threads;
    int64_t heads = at.B * at.G, room = workspace_floats(at.Tk, at.D, at.E);
    float *memory = ech_scratch(context, (size_t)(threads * room) * sizeof *memory);
    const results to = {out, lse->data, merge};
    /* Each part packs keys and values once more, which is worth it only if threads would be
     * idle. */
    at.parts = 1;
    if (heads % threads && heads < 8 * threads) at.parts = (8 * threads + heads - 1) / heads;
    if (at.parts > at.query_tiles) at.parts = at.query_tiles;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t unit = 0; unit < heads * at.parts; unit++) {
        workspace w = cut_workspace(&at, memory + omp_get_thread_num() * room);
        forward_unit(&at, &w, unit, &to);
    }
}

void ECH_CPU(sinks_forward)(ech_kernel_context *context, const ech_tensor *sinks,
                            const ech_tensor *out, const ech_tensor *lse)
{
    ECH_SHAPES(sinks_forward, ECH_REAL, sinks, out, lse);
    int64_t T = out->shape[1], H = out->shape[2], heads = out->shape[0] * H;
    const float *sink = sinks->data;
    memset(out->data, 0, ech_tensor_bytes(out));
#pragma omp parallel for num_threads(context->threads) if (heads * T > ECH_CHUNK)
    for (int64_t head = 0; head < heads; head++)
        for (int64_t t = 0; t < T; t++) ((float *)lse->data)[head * T + t] = sink[head % H];
}

/* dims: B, Tq, Tk, H, G, D, E. */
size_t ECH_CPU(scratch_attention_forward)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return (size_t)(threads * workspace_floats(dims[2], dims[5], dims[6])) * sizeof(float);
}

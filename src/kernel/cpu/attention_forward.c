/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention, forward: for each tile of queries, tiles of keys with the online softmax (Dao
 * et al. 2022, algorithm 1). A row's result does not depend on how rows are dealt to threads.
 */
#include <math.h>
#include <omp.h>

#include "kernel/cpu/attention.h"
#include "kernel/cpu/rows.h"

/* One thread's memory. Keys and values of a whole head, the rest for one tile of queries. */
typedef struct workspace {
    float *keys;   /* (key tiles, D, ECH_TILE) */
    float *values; /* (key tiles, ECH_TILE, width) */
    float *query, *out;
    float *scores;    /* (ECH_TILE, ECH_TILE) */
    float *max, *sum; /* of each row so far */
} workspace;

static int64_t workspace_floats(int64_t Tk, int64_t D)
{
    int64_t width = ech_tile_width(D), tile = ECH_TILE;
    return ech_attention_most_tiles(Tk) * tile * 2 * width + 2 * tile * width + tile * tile +
           2 * tile;
}

static workspace cut_workspace(const ech_attention *at, float *memory)
{
    workspace w = {.keys = memory};
    w.values = w.keys + at->key_tiles * ECH_TILE * at->width;
    w.query = w.values + at->key_tiles * ECH_TILE * at->width;
    w.out = w.query + ECH_TILE * at->width;
    w.scores = w.out + ECH_TILE * at->width;
    w.max = w.scores + ECH_TILE * ECH_TILE;
    w.sum = w.max + ECH_TILE;
    return w;
}

/* Turns a row of scores into exp(score - max), corrects what was summed under a smaller max. */
ECH_INLINE void softmax_row(float *score, float *row_max, float *row_sum, int64_t width, float *out)
{
    float max = *row_max, sum = 0;
#pragma omp simd reduction(max : max)
    for (int j = 0; j < ECH_TILE; j++) max = score[j] > max ? score[j] : max;
    float correction = ech_exp(*row_max - max);
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < ECH_TILE; j++) {
        score[j] = ech_exp(score[j] - max);
        sum += score[j];
    }
    *row_sum = *row_sum * correction + sum;
    *row_max = max;
#pragma omp simd
    for (int64_t d = 0; d < width; d++) out[d] *= correction;
}

/* The first `rows` rows of a tile of queries with tile `tile` of the keys. */
ECH_INLINE void meet_keys(const ech_attention *at, const workspace *w, int64_t b, int64_t h,
                          const ech_span *queries, int64_t rows, int64_t tile)
{
    const ech_span keys = ech_attention_keys(at, tile);
    bool masked = !ech_span_sees_all(at, b, queries, &keys);
    ech_tile_multiply(rows, ech_tile_width(keys.count), at->D, w->query, at->width, 1,
                      w->keys + tile * ECH_TILE * at->width, ECH_TILE, w->scores, ECH_TILE, false);
    for (int64_t i = 0; i < rows; i++) {
        float *score = w->scores + i * ECH_TILE;
        if (masked) {
            ech_seen seen = {0, 0}; /* of a padded row nothing */
            if (i < queries->count) seen = ech_span_seen(at, b, &keys, queries->position + i);
            /* A row that sees nothing here has no maximum: it gets weights of zero. */
            bool some = seen.first < seen.end;
            for (int64_t j = 0; j < seen.first; j++) score[j] = some ? -INFINITY : 0;
            for (int64_t j = seen.end; j < ECH_TILE; j++) score[j] = some ? -INFINITY : 0;
            if (!some) continue;
        }
        softmax_row(score, &w->max[i], &w->sum[i], at->width, w->out + i * at->width);
        if (at->threshold) {
            float kept[ECH_TILE];
            ech_attention_kept(at, b, h, queries->position + i, keys.position, kept);
            for (int64_t j = 0; j < ECH_TILE; j++) score[j] *= kept[j];
        }
    }
    ech_tile_multiply(rows, at->width, keys.count, w->scores, ECH_TILE, 1,
                      w->values + tile * ECH_TILE * at->width, at->width, w->out, at->width, true);
}

/* Where results go: alone, or merged with what is there. */
typedef struct results {
    float *out, *lse;
    bool merge;
} results;

/* The row `from` (D), whose exponentials add up to `sum` under max, to out and lse. The softmax over two
 * sets of keys weighs each set's result by its share of the sum of exponentials. A row that saw no key
 * has sum 0; what padded products left in it is not read. */
ECH_INLINE void store_row(int64_t D, const float *from, float max, float sum, bool merge,
                          float *out, float *lse)
{
    bool none = sum == 0.0F, alone = !merge || *lse == -INFINITY;
    float whole = max + logf(sum), share = 1.0F / sum;
    if (none) {
        for (int64_t d = 0; d < D && !merge; d++) out[d] = 0;
        if (!merge) *lse = -INFINITY;
    } else if (alone) {
        for (int64_t d = 0; d < D; d++) out[d] = from[d] * share;
        *lse = whole;
    } else {
        float before = *lse, top = before > whole || isnan(before) ? before : whole;
        float both = top + logf(expf(before - top) + expf(whole - top));
        float old_share = expf(before - both);
        share *= expf(whole - both);
        for (int64_t d = 0; d < D; d++) out[d] = out[d] * old_share + from[d] * share;
        *lse = both;
    }
}

/* The tiles of keys that a tile of queries meets: none where the first is behind the end. Those of a later
 * one begin and end no earlier. */
ECH_INLINE ech_seen tiles_met(const ech_attention *at, int64_t b, const ech_span *queries)
{
    int64_t start = ech_document_start(at->starts, b, queries->position);
    ech_seen met = {0, 0};
    for (int64_t n = 0; n < at->key_tiles; n++) {
        const ech_span keys = ech_attention_keys(at, n);
        met.first += keys.position + keys.count <= start;
        met.end += keys.position < queries->position + queries->count;
    }
    return met;
}

ECH_INLINE void forward_tile(const ech_attention *at, const workspace *w, int64_t b, int64_t h,
                             const ech_span *queries, const results *to)
{
    int64_t rows = ech_tile_rows(queries->count);
    ech_tile_pack(at->q, b, h, queries->first, queries->count, at->scale, at->width, w->query);
    for (int64_t i = 0; i < ECH_TILE * at->width; i++) w->out[i] = 0;
    for (int64_t i = 0; i < ECH_TILE; i++) {
        w->max[i] = -INFINITY;
        w->sum[i] = 0;
    }
    const ech_seen met = tiles_met(at, b, queries);
    for (int64_t tile = met.first; tile < met.end; tile++)
        meet_keys(at, w, b, h, queries, rows, tile);
    for (int64_t i = 0; i < queries->count; i++) {
        int64_t t = queries->first + i;
        store_row(at->D, w->out + i * at->width, w->max[i], w->sum[i], to->merge,
                  to->out + ((b * at->Tq + t) * at->H + h) * at->D,
                  to->lse + (b * at->H + h) * at->Tq + t);
    }
}

/* Every parts-th tile of queries of the heads that read key/value head g. */
ECH_CLONES static void forward_unit(const ech_attention *at, const workspace *w, int64_t unit,
                                    const results *to)
{
    int64_t part = unit % at->parts, g = unit / at->parts % at->G, b = unit / at->parts / at->G;
    const ech_span first = ech_attention_queries(at, 0);
    const ech_span last = ech_attention_queries(at, at->query_tiles - 1);
    int64_t end = tiles_met(at, b, &last).end;
    for (int64_t tile = tiles_met(at, b, &first).first; tile < end; tile++) {
        const ech_span keys = ech_attention_keys(at, tile);
        int64_t place = tile * ECH_TILE * at->width;
        ech_tile_pack_transposed(at->k, b, g, keys.first, keys.count, w->keys + place);
        ech_tile_pack(at->v, b, g, keys.first, keys.count, 1.0F, at->width, w->values + place);
    }
    for (int64_t h = g * at->group; h < (g + 1) * at->group; h++)
        for (int64_t tile = part; tile < at->query_tiles; tile += at->parts) {
            const ech_span queries = ech_attention_queries(at, tile);
            forward_tile(at, w, b, h, &queries, to);
        }
}

void ECH_CPU(attention_forward)(ech_kernel_context *context, const ech_tensor *q,
                                const ech_tensor *k, const ech_tensor *v, double scale,
                                const ech_attention_place *place, const ech_tensor *starts,
                                const ech_dropout *dropout, bool merge, const ech_tensor *out,
                                const ech_tensor *lse)
{
    ech_attention at = ech_attention_check(q, k, v, scale, place, starts, dropout);
    ECH_SHAPE(out, ECH_F32, at.B, at.Tq, at.H, at.D);
    ECH_SHAPE(lse, ECH_F32, at.B, at.H, at.Tq);
    int threads = context->threads;
    int64_t heads = at.B * at.G, room = workspace_floats(at.Tk, at.D);
    float *memory = ech_scratch(context, (size_t)(threads * room) * sizeof *memory);
    const results to = {out->data, lse->data, merge};
    /* Parts pack keys and values again: only where threads would stand idle. */
    at.parts = 1;
    if (heads % threads && heads < 8 * threads) at.parts = (4 * threads + heads - 1) / heads;
    if (at.parts > at.query_tiles) at.parts = at.query_tiles;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t unit = 0; unit < heads * at.parts; unit++) {
        workspace w = cut_workspace(&at, memory + omp_get_thread_num() * room);
        forward_unit(&at, &w, unit, &to);
    }
}

/* dims: B, Tq, Tk, H, G, D. */
size_t ECH_CPU(scratch_attention_forward)(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype;
    return (size_t)(threads * workspace_floats(dims[2], dims[5])) * sizeof(float);
}

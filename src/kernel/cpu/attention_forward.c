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
    float *keys;   /* (tiles, D, ECH_TILE) */
    float *values; /* (tiles, ECH_TILE, width) */
    float *query, *out;
    float *scores;    /* (ECH_TILE, ECH_TILE) */
    float *max, *sum; /* of each row so far */
} workspace;

static int64_t workspace_floats(int64_t T, int64_t D)
{
    int64_t width = ech_tile_width(D), tile = ECH_TILE;
    return ech_tile_count(T) * tile * 2 * width + 2 * tile * width + tile * tile + 2 * tile;
}

static workspace cut_workspace(const ech_attention *at, float *memory)
{
    workspace w = {.keys = memory};
    w.values = w.keys + at->tiles * ECH_TILE * at->width;
    w.query = w.values + at->tiles * ECH_TILE * at->width;
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

ECH_INLINE void meet_keys(const ech_attention *at, const workspace *w, int64_t b, int64_t h,
                          int64_t queries, int64_t keys)
{
    ech_tile_multiply(ECH_TILE, at->D, w->query, at->width, 1,
                      w->keys + keys * ECH_TILE * at->width, ECH_TILE, w->scores, ECH_TILE, false);
    for (int64_t i = 0; i < ECH_TILE; i++) {
        float *score = w->scores + i * ECH_TILE;
        if (keys == queries)
            for (int64_t j = i + 1; j < ECH_TILE; j++) score[j] = -INFINITY;
        softmax_row(score, &w->max[i], &w->sum[i], at->width, w->out + i * at->width);
        if (at->threshold) {
            float kept[ECH_TILE];
            ech_attention_kept(at, b, h, queries * ECH_TILE + i, keys * ECH_TILE, kept);
            for (int64_t j = 0; j < ECH_TILE; j++) score[j] *= kept[j];
        }
    }
    ech_tile_multiply(at->width, ECH_TILE, w->scores, ECH_TILE, 1,
                      w->values + keys * ECH_TILE * at->width, at->width, w->out, at->width, true);
}

ECH_INLINE void forward_tile(const ech_attention *at, const workspace *w, int64_t b, int64_t h,
                             int64_t queries, float *out, float *lse)
{
    ech_tile_pack(at->q, b, h, queries * ECH_TILE, at->scale, at->width, w->query);
    for (int64_t i = 0; i < ECH_TILE * at->width; i++) w->out[i] = 0;
    for (int64_t i = 0; i < ECH_TILE; i++) {
        w->max[i] = -INFINITY;
        w->sum[i] = 0;
    }
    for (int64_t keys = 0; keys <= queries; keys++) meet_keys(at, w, b, h, queries, keys);
    for (int64_t i = 0; i < ECH_TILE && queries * ECH_TILE + i < at->T; i++) {
        int64_t t = queries * ECH_TILE + i;
        float *row = out + ((b * at->T + t) * at->H + h) * at->D;
        float part = 1.0F / w->sum[i];
        for (int64_t d = 0; d < at->D; d++) row[d] = w->out[i * at->width + d] * part;
        lse[(b * at->H + h) * at->T + t] = w->max[i] + logf(w->sum[i]);
    }
}

/* Every parts-th tile of queries of the heads that read key/value head g. */
ECH_CLONES static void forward_unit(const ech_attention *at, const workspace *w, int64_t unit,
                                    float *out, float *lse)
{
    int64_t part = unit % at->parts, g = unit / at->parts % at->G, b = unit / at->parts / at->G;
    for (int64_t tile = 0; tile < at->tiles; tile++) {
        float *values = w->values + tile * ECH_TILE * at->width;
        ech_tile_pack_transposed(at->k, b, g, tile * ECH_TILE,
                                 w->keys + tile * ECH_TILE * at->width);
        ech_tile_pack(at->v, b, g, tile * ECH_TILE, 1.0F, at->width, values);
    }
    for (int64_t h = g * at->group; h < (g + 1) * at->group; h++)
        for (int64_t queries = part; queries < at->tiles; queries += at->parts)
            forward_tile(at, w, b, h, queries, out, lse);
}

void ech_cpu_attention_forward(ech_kernel_context *context, const ech_tensor *q,
                               const ech_tensor *k, const ech_tensor *v, double scale,
                               const ech_dropout *dropout, const ech_tensor *out,
                               const ech_tensor *lse)
{
    ech_attention at = ech_attention_check(q, k, v, scale, dropout);
    ECH_SHAPE(out, ECH_F32, at.B, at.T, at.H, at.D);
    ECH_SHAPE(lse, ECH_F32, at.B, at.H, at.T);
    int threads = context->threads;
    int64_t heads = at.B * at.G, room = workspace_floats(at.T, at.D);
    float *memory = ech_scratch(context, (size_t)(threads * room) * sizeof *memory);
    /* Parts pack keys and values again: only where threads would stand idle. */
    at.parts = 1;
    if (heads % threads && heads < 8 * threads) at.parts = (4 * threads + heads - 1) / heads;
    if (at.parts > at.tiles) at.parts = at.tiles;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t unit = 0; unit < heads * at.parts; unit++) {
        workspace w = cut_workspace(&at, memory + omp_get_thread_num() * room);
        forward_unit(&at, &w, unit, out->data, lse->data);
    }
}

/* dims: B, T, H, G, D. */
size_t ech_cpu_scratch_attention_forward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype;
    return (size_t)(threads * workspace_floats(dims[1], dims[4])) * sizeof(float);
}

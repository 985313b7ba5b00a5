/* SPDX-License-Identifier: Apache-2.0
 *
 * What the forward and backward of the tiled attention share. Queries and keys are cut in tiles of
 * ECH_TILE tokens; tile j of keys meets tiles i >= j of queries.
 */
#ifndef ECH_KERNEL_CPU_ATTENTION_H
#define ECH_KERNEL_CPU_ATTENTION_H

#include "kernel/cpu/dropped.h"
#include "kernel/cpu/tile.h"
#include "kernel/shape.h"

typedef struct ech_attention {
    int64_t B, T, H, G, D, group; /* heads h with h / group = g read key/value head g */
    int64_t width, tiles;         /* D in full lanes, T in tiles */
    int64_t parts;                /* in how many parts a (sample, key/value head) is worked on */
    const ech_tensor *q, *k, *v;
    float scale;
    const ech_dropout *dropout;
    uint32_t threshold; /* random words below it are dropped; 0: no dropout */
    float kept_scale;
} ech_attention;

static inline ech_attention ech_attention_check(const ech_tensor *q, const ech_tensor *k,
                                                const ech_tensor *v, double scale,
                                                const ech_dropout *dropout)
{
    ech_attention at = {.B = q->shape[0], .T = q->shape[1], .H = q->shape[2], .G = k->shape[2]};
    at.D = q->shape[3];
    ECH_SHAPE_STRIDED(q, ECH_F32, at.B, at.T, at.H, at.D);
    ECH_SHAPE_STRIDED(k, ECH_F32, at.B, at.T, at.G, at.D);
    ECH_SHAPE_STRIDED(v, ECH_F32, at.B, at.T, at.G, at.D);
    ECH_ASSERT(at.G > 0 && at.H % at.G == 0 && dropout->p < 1);
    at.group = at.H / at.G;
    at.width = ech_tile_width(at.D);
    at.tiles = ech_tile_count(at.T);
    at.q = q;
    at.k = k;
    at.v = v;
    at.scale = (float)scale;
    at.dropout = dropout;
    at.threshold = dropout->p > 0 ? ech_drop_threshold(dropout->p) : 0;
    at.kept_scale = (float)(1 / (1 - dropout->p));
    return at;
}

/* What dropout multiplies ECH_TILE probabilities by: of one query, from key `key` on. */
ECH_INLINE void ech_attention_kept(const ech_attention *at, int64_t b, int64_t h, int64_t query,
                                   int64_t key, float kept[ECH_TILE])
{
    int64_t row = ((at->dropout->first_sample + b) * at->H + h) * at->T + query;
    ech_draw_kept(at->dropout->key, at->threshold, at->kept_scale, (uint64_t)(row * at->T + key),
                  ECH_TILE, kept);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the forward and backward of the tiled attention share. Queries and keys are cut in tiles of up to
 * ECH_TILE tokens; a tile lies within one of the two runs of positions that a view may have, so what a
 * tile of queries sees of a tile of keys follows from their first positions and from where the documents of
 * its first and last query begin.
 */
#ifndef ECH_KERNEL_CPU_ATTENTION_H
#define ECH_KERNEL_CPU_ATTENTION_H

#include "kernel/cpu/dropped.h"
#include "kernel/cpu/tile.h"
#include "kernel/shape.h"

typedef struct ech_attention {
    int64_t B, Tq, Tk, H, G, D, group; /* heads h with h / group = g read key/value head g */
    int64_t width;                     /* D in full lanes */
    int64_t query_tiles, key_tiles;
    int64_t parts; /* in how many parts a (sample, key/value head) is worked on */
    const ech_tensor *q, *k, *v;
    float scale;
    const ech_attention_place *place;
    const ech_tensor *starts;
    const ech_dropout *dropout;
    uint32_t threshold; /* random words below it are dropped; 0: no dropout */
    float kept_scale;
} ech_attention;

/* Tokens [first, first + count), at positions from `position` on. */
typedef struct ech_span {
    int64_t first, count, position;
} ech_span;

ECH_INLINE int64_t ech_clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static inline int64_t ech_attention_tiles(const ech_rows *rows, int64_t T)
{
    int64_t early = ech_clamp(rows->split, 0, T);
    return ech_tile_count(early) + ech_tile_count(T - early);
}

/* The most tiles that T tokens may make, wherever they are split. */
static inline int64_t ech_attention_most_tiles(int64_t T)
{
    return T < 2 ? T : (T - 2) / ECH_TILE + 2;
}

/* A tile of T tokens. Tiles ascend in tokens and positions. */
ECH_INLINE ech_span ech_attention_span(const ech_rows *rows, int64_t T, int64_t tile)
{
    int64_t early = ech_clamp(rows->split, 0, T), tiles = ech_tile_count(early);
    bool late = tile >= tiles;
    int64_t first = late ? early + (tile - tiles) * ECH_TILE : tile * ECH_TILE;
    int64_t left = (late ? T : early) - first;
    return (ech_span){first, left < ECH_TILE ? left : ECH_TILE, ech_token_position(rows, first)};
}

ECH_INLINE ech_span ech_attention_queries(const ech_attention *at, int64_t tile)
{
    return ech_attention_span(&at->place->query, at->Tq, tile);
}

ECH_INLINE ech_span ech_attention_keys(const ech_attention *at, int64_t tile)
{
    return ech_attention_span(&at->place->key, at->Tk, tile);
}

/* Keys [first, end) of a tile, or tiles of keys. */
typedef struct ech_seen {
    int64_t first, end;
} ech_seen;

/* Which of the keys the query of sample b at `position` sees: from where its document begins up to its own
 * position. */
ECH_INLINE ech_seen ech_span_seen(const ech_attention *at, int64_t b, const ech_span *keys,
                                  int64_t position)
{
    int64_t start = ech_document_start(at->starts, b, position);
    int64_t end = ech_clamp(position - keys->position + 1, 0, keys->count);
    return (ech_seen){ech_clamp(start - keys->position, 0, end), end};
}

/* Does any of the queries see any of the keys? */
ECH_INLINE bool ech_span_meets(const ech_attention *at, int64_t b, const ech_span *queries,
                               const ech_span *keys)
{
    return keys->position < queries->position + queries->count &&
           keys->position + keys->count > ech_document_start(at->starts, b, queries->position);
}

/* Do all queries see all keys of a full tile? Padding behind the last key must be masked. */
ECH_INLINE bool ech_span_sees_all(const ech_attention *at, int64_t b, const ech_span *queries,
                                  const ech_span *keys)
{
    int64_t last = queries->position + queries->count - 1;
    return ech_span_seen(at, b, keys, queries->position).end == ECH_TILE &&
           ech_document_start(at->starts, b, last) <= keys->position;
}

static inline ech_attention ech_attention_check(const ech_tensor *q, const ech_tensor *k,
                                                const ech_tensor *v, double scale,
                                                const ech_attention_place *place,
                                                const ech_tensor *starts,
                                                const ech_dropout *dropout)
{
    ech_attention at = {.B = q->shape[0], .Tq = q->shape[1], .H = q->shape[2], .D = q->shape[3]};
    at.Tk = k->shape[1];
    at.G = k->shape[2];
    ECH_SHAPE_STRIDED(q, ECH_F32, at.B, at.Tq, at.H, at.D);
    ECH_SHAPE_STRIDED(k, ECH_F32, at.B, at.Tk, at.G, at.D);
    ECH_SHAPE_STRIDED(v, ECH_F32, at.B, at.Tk, at.G, at.D);
    ECH_SAMPLES(&place->query, at.Tq);
    ECH_SAMPLES(&place->key, at.Tk);
    ECH_DOCUMENTS(starts, &place->query, at.B * at.Tq);
    ECH_ASSERT(place->query.whole == place->key.whole);
    ECH_ASSERT(place->first_head >= 0 && place->first_head + at.H <= place->heads);
    ECH_ASSERT(at.G > 0 && at.H % at.G == 0 && dropout->p < 1);
    at.group = at.H / at.G;
    at.width = ech_tile_width(at.D);
    at.query_tiles = ech_attention_tiles(&place->query, at.Tq);
    at.key_tiles = ech_attention_tiles(&place->key, at.Tk);
    at.q = q;
    at.k = k;
    at.v = v;
    at.scale = (float)scale;
    at.place = place;
    at.starts = starts;
    at.dropout = dropout;
    at.threshold = dropout->p > 0 ? ech_drop_threshold(dropout->p) : 0;
    at.kept_scale = (float)(1 / (1 - dropout->p));
    return at;
}

/* What dropout multiplies ECH_TILE probabilities by: of the query at `position`, from key position
 * `first` on. */
ECH_INLINE void ech_attention_kept(const ech_attention *at, int64_t b, int64_t h, int64_t position,
                                   int64_t first, float kept[ECH_TILE])
{
    const ech_rows *rows = &at->place->query;
    int64_t head = (rows->first_sample + b) * at->place->heads + at->place->first_head + h;
    int64_t row = head * rows->whole + position;
    ech_draw_kept(at->dropout->key, at->threshold, at->kept_scale,
                  (uint64_t)(row * rows->whole + first), ECH_TILE, kept);
}

#endif

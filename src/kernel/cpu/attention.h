/* SPDX-License-Identifier: Apache-2.0
 *
 * Common code of tiled attention's forward and backward. Queries and keys are divided into tiles of
 * up to ECH_TILE tokens. The positions of a tile are contiguous: it is within one of the two ranges
 * that a view may have (ech_rows). So the tiles' first positions, and the starts of the documents
 * of the first and last query, determine which keys of a tile a tile of queries attends to.
 */
#ifndef ECH_KERNEL_CPU_ATTENTION_H
#define ECH_KERNEL_CPU_ATTENTION_H

#include "kernel/cpu/dropout.h"
#include "kernel/cpu/tile.h"
#include "kernel/shape.h"

/* e^x = 2^(x log2 e). Scores are stored multiplied by log2 e, so that exponentials are powers of
 * two. */
#define ECH_LOG2_E 1.4426950408889634
#define ECH_LN_2   0.6931471805599453

typedef struct ech_attention {
    /* Tq, Tk: the rank's queries and keys per sample; values are E wide */
    int64_t B, Tq, Tk, H, G, D, E;
    const ech_tensor *q, *k, *v;
    const ech_rows *queries, *keys;
    const ech_attention_rule *rule;
    const ech_attention_shard *shard;
    const ech_tensor *starts;
    ech_random_key key; /* of dropout */
    int64_t group;      /* query heads per key/value head: head h reads key/value head h / group */
    int64_t width, value_width; /* D and E, padded */
    int64_t query_tiles, key_tiles;
    int64_t parts;       /* units of work per (sample, key/value head), divided among threads */
    float scale;         /* of scores */
    float scale2;        /* scale log2 e; with a cap, scale / cap */
    float cap2;          /* cap log2 e; 0: no cap */
    float key_scale;     /* of sums of packed queries that are the keys' gradients */
    /* factor of packed queries: scale2; 1 where pairs are multiplied, since packed queries would be
     * rounded, and scores of products are multiplied by scale2 instead */
    float query_scale;
    uint32_t threshold;  /* random words below it are dropped; 0: no dropout */
    /* factor of kept probabilities; if these are rounded to pairs, of sums over them */
    float dropout_scale;
    float sums_scale;
} ech_attention;

/* Tokens [first, first + count), at positions from `position` on. */
typedef struct ech_attention_tile {
    int64_t first, count, position;
} ech_attention_tile;

static inline int64_t ech_attention_tiles(const ech_rows *rows)
{
    int64_t early = ech_clamp(rows->split, 0, rows->tokens);
    return ech_tile_count(early) + ech_tile_count(rows->tokens - early);
}

/* The most tiles of T tokens, for any split. */
static inline int64_t ech_attention_most_tiles(int64_t T)
{
    return T < 2 ? T : (T - 2) / ECH_TILE + 2;
}

/* Tile number `tile` of a sample's tokens. Tiles ascend in tokens and positions. */
ECH_INLINE ech_attention_tile ech_attention_span(const ech_rows *rows, int64_t tile)
{
    int64_t early = ech_clamp(rows->split, 0, rows->tokens), tiles = ech_tile_count(early);
    bool late = tile >= tiles;
    int64_t first = late ? early + (tile - tiles) * ECH_TILE : tile * ECH_TILE;
    int64_t left = (late ? rows->tokens : early) - first;
    return (ech_attention_tile){first, left < ECH_TILE ? left : ECH_TILE,
                                ech_rows_token_position(rows, first)};
}

/* The keys, as indices in the tile, that the query of sample b at `position` attends to: from the
 * start of its document or window to its own position. */
ECH_INLINE ech_interval ech_span_seen(const ech_attention *at, int64_t b,
                                      const ech_attention_tile *keys, int64_t position)
{
    int64_t start = ech_attention_first(at->rule, at->starts, b, position);
    int64_t end = ech_clamp(position - keys->position + 1, 0, keys->count);
    return (ech_interval){ech_clamp(start - keys->position, 0, end), end};
}

/* Whether any of the queries attends to any of the keys. */
ECH_INLINE bool ech_span_meets(const ech_attention *at, int64_t b,
                               const ech_attention_tile *queries, const ech_attention_tile *keys)
{
    return keys->position < queries->position + queries->count &&
           keys->position + keys->count >
               ech_attention_first(at->rule, at->starts, b, queries->position);
}

/* Whether all queries attend to all keys, and the tile of keys is full: padding must be masked. */
ECH_INLINE bool ech_span_sees_all(const ech_attention *at, int64_t b,
                                  const ech_attention_tile *queries, const ech_attention_tile *keys)
{
    int64_t last = queries->position + queries->count - 1;
    return ech_span_seen(at, b, keys, queries->position).end == ECH_TILE &&
           ech_attention_first(at->rule, at->starts, b, last) <= keys->position;
}

/* The attention mask of a tile of queries and a tile of keys. Each query attends to an interval of
 * keys; both ends of the intervals ascend from query to query. */
typedef struct ech_tile_mask {
    bool masked; /* some query does not attend to some key, or is padding */
    int32_t first[ECH_TILE], end[ECH_TILE]; /* the keys of each query */
    ech_interval keys[ECH_TILE_BLOCKS];     /* the same for each block of query rows, */
    ech_interval queries[ECH_TILE_BLOCKS];  /* and the queries that attend to a block of keys */
} ech_tile_mask;

ECH_OUTLINE void ech_tile_mask_fill(const ech_attention *at, int64_t b,
                                    const ech_attention_tile *queries,
                                    const ech_attention_tile *keys, ech_tile_mask *mask)
{
    mask->masked = queries->count < ECH_TILE || !ech_span_sees_all(at, b, queries, keys);
    for (int64_t i = 0; i < ECH_TILE; i++) {
        ech_interval seen = {0, ECH_TILE};
        if (mask->masked && i < queries->count)
            seen = ech_span_seen(at, b, keys, queries->position + i);
        else if (mask->masked) /* padding after the last query sees nothing */
            seen.first = seen.end = mask->end[i - 1];
        mask->first[i] = (int32_t)seen.first;
        mask->end[i] = (int32_t)seen.end;
    }
    for (int64_t block = 0; block < ECH_TILE_BLOCKS; block++) {
        int64_t from = block * ECH_TILE_ROWS, to = from + ECH_TILE_ROWS;
        ech_interval seers = {0, queries->count};
        while (seers.first < seers.end && mask->end[seers.first] <= from) seers.first++;
        while (seers.first < seers.end && mask->first[seers.end - 1] >= to) seers.end--;
        mask->queries[block] = seers;
        mask->keys[block] = (ech_interval){mask->first[from], mask->end[to - 1]};
    }
}

/* After S. Moshier's Cephes, tanhf: two units in the last place. */
ECH_INLINE ech_wide ech_wide_tanh(ech_wide x)
{
    ech_wide z = x * x, small = -5.70498872745e-3F * z + 2.06390887954e-2F;
    small = small * z - 5.37397155531e-2F;
    small = small * z + 1.33314422036e-1F;
    small = small * z - 3.33332819422e-1F;
    small = small * z * x + x;
    ech_wide exponent = ech_wide_min(ech_wide_all(126.0F), x * (float)(2 * ECH_LOG2_E));
    ech_wide large = 1.0F - 2.0F / (ech_wide_exp2(exponent) + 1.0F);
    return ech_wide_select(z < 0.390625F, small, large);
}

/* All ones in the elements whose `at` is in [first, end), zero in the others. */
ECH_INLINE ech_wide_int ech_wide_within(ech_wide_int first, ech_wide_int at, ech_wide_int end)
{
    return (first <= at) & (at < end);
}

static inline ech_attention ech_attention_check(const ech_tensor *q, const ech_tensor *k,
                                                const ech_tensor *v, const ech_attention_rule *rule,
                                                const ech_attention_shard *shard,
                                                const ech_tensor *starts,
                                                const ech_dropout *dropout)
{
    ech_attention at = {q->shape[0],
                        q->shape[1],
                        k->shape[1],
                        q->shape[2],
                        k->shape[2],
                        q->shape[3],
                        v->shape[3],
                        q,
                        k,
                        v,
                        &shard->query,
                        &shard->key,
                        rule,
                        .shard = shard,
                        .starts = starts};
    ECH_SAMPLES(&shard->query, starts, at.B, at.Tq);
    ECH_SAMPLES(&shard->key, NULL, at.B, at.Tk);
    ECH_ASSERT(shard->query.whole == shard->key.whole);
    ECH_ASSERT(shard->first_head >= 0 && shard->first_head + at.H <= shard->heads);
    ECH_ASSERT(at.G > 0 && at.H % at.G == 0 && dropout->p < 1);
    ECH_ASSERT(rule->cap >= 0 && rule->window >= 0);
    at.key = ech_dropout_key(dropout);
    at.group = at.H / at.G;
    at.width = ech_tile_width(at.D);
    at.value_width = ech_tile_width(at.E);
    at.query_tiles = ech_attention_tiles(at.queries);
    at.key_tiles = ech_attention_tiles(at.keys);
    at.scale = (float)rule->scale;
    at.cap2 = (float)(rule->cap * ECH_LOG2_E);
    at.scale2 = (float)(rule->cap > 0 ? rule->scale / rule->cap : rule->scale * ECH_LOG2_E);
    at.query_scale = ECH_DEPTH > 1 ? 1.0F : at.scale2;
    at.key_scale = ECH_DEPTH > 1 ? at.scale : rule->cap > 0 ? (float)rule->cap : (float)ECH_LN_2;
    at.threshold = dropout->p > 0 ? ech_drop_threshold(dropout->p) : 0;
    at.dropout_scale = ECH_DEPTH > 1 ? 1.0F : (float)(1 / (1 - dropout->p));
    at.sums_scale = ECH_DEPTH > 1 ? (float)(1 / (1 - dropout->p)) : 1.0F;
    return at;
}

/* Writes the factors by which dropout multiplies ECH_TILE probabilities of the query at `position`,
 * from key position `first` on. */
ECH_INLINE void ech_attention_dropout_mask(const ech_attention *at, int64_t b, int64_t h,
                                           int64_t position, int64_t first, float factor[ECH_TILE])
{
    const ech_rows *rows = at->queries;
    int64_t head = (rows->first_sample + b) * at->shard->heads + at->shard->first_head + h;
    int64_t row = head * rows->whole + position;
    ech_dropout_mask(at->key, at->threshold, at->dropout_scale,
                     (uint64_t)(row * rows->whole + first), ECH_TILE, factor);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Partitions of blocks into stages of nearly equal weight, or by a list of layers.
 */
#include "layout/partition.h"

#include <math.h>

/* The sum of all weights as a whole number: sums and their squares are exact, and equal partitions
 * are ties. */
static const double WHOLE = 1 << 30;

typedef struct search {
    int blocks, stages;
    int64_t *before; /* [blocks + 1] the total weight of the blocks before each */
    int64_t limit;   /* no stage may be heavier */
    bool squares;    /* the best is the smallest sum of squares; otherwise the lightest stage */
    /* [blocks + 1] the best score of a stage and those after it, by the stage's first block; of the
     * next stage */
    int64_t *best, *rest;
    int *end; /* [stages][blocks]: the end of the stage that begins with that block */
} search;

static void weigh_blocks(const double *weight, search *c)
{
    double all = 0;
    for (int b = 0; b < c->blocks; b++) all += weight[b];
    for (int b = 0; b < c->blocks; b++) {
        c->before[b + 1] = c->before[b] + (all > 0 ? llround(weight[b] / all * WHOLE)
                                                   : (int64_t)(WHOLE / c->blocks));
    }
}

static int64_t score(const search *c, int64_t own, int64_t rest)
{
    if (rest == INT64_MAX) return INT64_MAX;
    if (c->squares) return own * own + rest;
    return own > rest ? own : rest;
}

/* Extends the stage until it alone is no better than the best. */
static void grow_stage(const search *c, int stage, int first)
{
    int later = c->stages - 1 - stage; /* stages that need a block each */
    int64_t best = INT64_MAX;
    int end = later ? first + 1 : c->blocks;
    for (; end <= c->blocks - later; end++) {
        int64_t own = c->before[end] - c->before[first];
        if (own > c->limit || score(c, own, 0) >= best) break;
        int64_t all = score(c, own, c->rest[end]);
        if (all >= best) continue;
        best = all;
        c->end[(size_t)stage * (size_t)c->blocks + (size_t)first] = end;
    }
    c->best[first] = best;
}

/* The best score of all partitions. */
static int64_t find_best(search *c)
{
    for (int stage = c->stages - 1; stage >= 0; stage--) {
        int64_t *next = c->rest;
        c->rest = c->best;
        c->best = next;
        for (int b = 0; b <= c->blocks; b++) c->best[b] = INT64_MAX;
        if (stage == c->stages - 1) c->rest[c->blocks] = 0;
        for (int first = stage; first < c->blocks; first++) grow_stage(c, stage, first);
    }
    return c->best[0];
}

void ech_partition_evenly(const double *weight, int blocks, int stages, int *first_block)
{
    size_t n = (size_t)blocks + 1;
    ECH_FREED int64_t *sums = ech_calloc(3 * n, sizeof *sums);
    ECH_FREED int *end = ech_calloc((size_t)stages * (size_t)blocks, sizeof *end);
    search c = {.blocks = blocks,
                .stages = stages,
                .before = sums,
                .limit = INT64_MAX,
                .best = sums + n,
                .rest = sums + 2 * n,
                .end = end};
    weigh_blocks(weight, &c);
    c.limit = find_best(&c);
    c.squares = true;
    find_best(&c);
    first_block[0] = 0;
    for (int s = 0; s < stages; s++)
        first_block[s + 1] = end[(size_t)s * (size_t)blocks + (size_t)first_block[s]];
}

void ech_partition_blocks(const ech_config *config, const ech_model *model, ech_extent extent,
                          int stages, int *first_block)
{
    const ech_config_list *list = &config->parallel.partition;
    int blocks = (int)model->block.n;
    if (list->n == 0) {
        ECH_FREED double *weight = ech_calloc((size_t)blocks, sizeof *weight);
        for (int b = 0; b < blocks; b++)
            weight[b] = ech_block_multiplies(model->block.at[b], extent);
        ech_partition_evenly(weight, blocks, stages, first_block);
        return;
    }
    first_block[0] = 0;
    for (int s = 0; s < stages; s++)
        first_block[s + 1] = first_block[s] + (int)list->at[s] + (s == 0) + (s == stages - 1);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Partitions blocks into stages of about even weight.
 */
#include "layout/cut.h"

#include <math.h>
#include <stdlib.h>

/* ---- even ---- */

/* All weights together, as whole numbers: sums and their squares are exact, and like cuts are ties. */
static const double WHOLE = 1 << 30;

typedef struct cutter {
    int blocks, stages;
    int64_t *before; /* [blocks + 1] the weight of all blocks before each */
    int64_t limit;   /* no stage may be heavier */
    bool squares;    /* the best is the smallest sum of squares; otherwise the lightest stage */
    int64_t *best,
        *rest; /* [blocks + 1] of a stage and those after it, by its first block; of the next */
    int *end;  /* [stages][blocks]: the end of the stage that begins with that block */
} cutter;

static void weigh_blocks(const double *weight, cutter *c)
{
    double all = 0;
    for (int b = 0; b < c->blocks; b++) all += weight[b];
    for (int b = 0; b < c->blocks; b++) {
        c->before[b + 1] = c->before[b] + (all > 0 ? llround(weight[b] / all * WHOLE)
                                                   : (int64_t)(WHOLE / c->blocks));
    }
}

static int64_t score(const cutter *c, int64_t own, int64_t rest)
{
    if (rest == INT64_MAX) return INT64_MAX;
    if (c->squares) return own * own + rest;
    return own > rest ? own : rest;
}

/* Stages grow until they alone are no better. */
static void cut_from(const cutter *c, int stage, int first)
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

/* The best of all cuts. */
static int64_t cut_all(cutter *c)
{
    for (int stage = c->stages - 1; stage >= 0; stage--) {
        int64_t *next = c->rest;
        c->rest = c->best;
        c->best = next;
        for (int b = 0; b <= c->blocks; b++) c->best[b] = INT64_MAX;
        if (stage == c->stages - 1) c->rest[c->blocks] = 0;
        for (int first = stage; first < c->blocks; first++) cut_from(c, stage, first);
    }
    return c->best[0];
}

void ech_cut_evenly(const double *weight, int blocks, int stages, int *cut)
{
    size_t n = (size_t)blocks + 1;
    cutter c = {.blocks = blocks, .stages = stages, .limit = INT64_MAX};
    c.before = ech_calloc(n, sizeof *c.before);
    c.best = ech_calloc(n, sizeof *c.best);
    c.rest = ech_calloc(n, sizeof *c.rest);
    c.end = ech_calloc((size_t)stages * (size_t)blocks, sizeof *c.end);
    weigh_blocks(weight, &c);
    c.limit = cut_all(&c);
    c.squares = true;
    cut_all(&c);
    cut[0] = 0;
    for (int s = 0; s < stages; s++)
        cut[s + 1] = c.end[(size_t)s * (size_t)blocks + (size_t)cut[s]];
    free(c.before);
    free(c.best);
    free(c.rest);
    free(c.end);
}

static void cut_by_work(const ech_model *model, ech_extent extent, int stages, int *cut)
{
    int blocks = (int)model->block.n;
    double *weight = ech_calloc((size_t)blocks, sizeof *weight);
    for (int b = 0; b < blocks; b++) weight[b] = ech_block_multiplies(model->block.at[b], extent);
    ech_cut_evenly(weight, blocks, stages, cut);
    free(weight);
}

/* ---- lists ---- */

void ech_cut_blocks(const ech_config *config, const ech_model *model, ech_extent extent, int stages,
                    int *cut)
{
    const ech_config_list *list = &config->parallel.partition;
    if (list->n == 0) {
        cut_by_work(model, extent, stages, cut);
        return;
    }
    cut[0] = 0;
    for (int s = 0; s < stages; s++)
        cut[s + 1] = cut[s] + (int)list->at[s] + (s == 0) + (s == stages - 1);
}

void ech_cut_layers(const int *cut, int stages, int64_t *layers)
{
    for (int s = 0; s < stages; s++) layers[s] = cut[s + 1] - cut[s] - (s == 0) - (s == stages - 1);
}

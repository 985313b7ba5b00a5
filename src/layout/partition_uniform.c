/* SPDX-License-Identifier: Apache-2.0
 *
 * Partitions with as many replicas at every stage: only cuts are searched, from the last stage to
 * the first.
 */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "layout/partition_costs.h"

typedef struct search {
    const ech_partition_costs *costs;
    int stages;
    int64_t replicas;
    double *best; /* [stages][blocks + 1] of stages s .. stages - 1 for blocks i and all behind */
} search;

/* Of the innermost component that has both ranks. */
static double bandwidth_between(const ech_partition_costs *costs, int64_t a, int64_t b)
{
    int64_t size = costs->workers[0];
    int k = 0;
    while (k + 1 < costs->levels && a / size != b / size) size *= costs->workers[++k];
    return costs->bandwidth[k];
}

static double *best_from(const search *s, int stage)
{
    return s->best + (size_t)stage * (size_t)(s->costs->blocks + 1);
}

static double stage_time(const search *s, int stage, int i, int j)
{
    const ech_partition_costs *costs = s->costs;
    int64_t first = stage * s->replicas, last = first + s->replicas - 1;
    if (!ech_partition_fits(costs, i, j, costs->all_workers - first, s->replicas))
        return (double)INFINITY;
    return ech_partition_stage(costs, ech_partition_sum(costs->seconds, i, j), i, j, s->replicas,
                               bandwidth_between(costs, first, last));
}

/* Of the boundary behind a stage, and all that comes after it. */
static double rest_time(const search *s, int stage, int j)
{
    int64_t first = stage * s->replicas, last = first + 2 * s->replicas - 1;
    double bandwidth = bandwidth_between(s->costs, first, last);
    return ech_partition_larger(s->costs->crossing[j] / bandwidth, best_from(s, stage + 1)[j]);
}

static double best_time(const search *s, int stage, int i)
{
    double best = (double)INFINITY;
    for (int j = i + 1; j < s->costs->blocks; j++) {
        double time = stage_time(s, stage, i, j);
        if (time >= best) break; /* longer stages take no less */
        best = ech_partition_smaller(best, ech_partition_larger(time, rest_time(s, stage, j)));
    }
    return best;
}

static void fill(const search *s)
{
    int blocks = s->costs->blocks, last = s->stages - 1;
    for (int stage = last; stage >= 0; stage--) {
        double *best = best_from(s, stage);
        best[blocks] = (double)INFINITY;
        for (int i = 0; i < blocks; i++)
            best[i] = stage == last ? stage_time(s, stage, i, blocks) : best_time(s, stage, i);
    }
}

/* The earliest cuts that stay within the best time. */
static void write_down(const search *s, ech_partition *out)
{
    int blocks = s->costs->blocks, i = 0;
    for (int stage = 0; stage < s->stages - 1; stage++) {
        int j = i + 1;
        while (ech_partition_larger(stage_time(s, stage, i, j), rest_time(s, stage, j)) >
               out->seconds)
            j++;
        ech_partition_add(out, j, s->replicas);
        i = j;
    }
    ech_partition_add(out, blocks, s->replicas);
}

bool ech_partition_uniform(const ech_partition_costs *costs, int stages, ech_partition *out)
{
    search s = {.costs = costs, .stages = stages, .replicas = costs->all_workers / stages};
    s.best = ech_calloc((size_t)stages * (size_t)(costs->blocks + 1), sizeof *s.best);
    fill(&s);
    out->seconds = s.best[0];
    bool found = isfinite(out->seconds);
    if (found) write_down(&s, out);
    free(s.best);
    return found;
}

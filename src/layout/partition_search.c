/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of stages, the best of a level, and tables of inner levels for outer ones.
 */
#include "layout/partition_search.h"

#include <stdlib.h>
#include <string.h>

#include "base/divisor.h"
#include "base/memory.h"

void ech_search_create(ech_search *s, const ech_partition_costs *costs, int stages)
{
    *s = (ech_search){.costs = costs, .stages = stages};
    size_t cuts = (size_t)costs->blocks + 1;
    int64_t size = 1;
    for (int k = 0; k < costs->levels; k++) {
        ech_search_level *l = &s->level[k];
        l->workers = costs->workers[k];
        l->bandwidth = costs->bandwidth[k];
        l->size = size;
        size *= l->workers;
        l->layers = s->stages ? 1 + (int)(s->stages < size ? s->stages : size) : 1;
        l->best = ech_calloc((size_t)l->layers * (size_t)(l->workers + 1) * cuts, sizeof *l->best);
    }
    s->gate = ech_calloc(cuts, sizeof *s->gate);
    s->queue = ech_calloc(cuts, sizeof *s->queue);
}

static void drop_tables(ech_search *s)
{
    for (int k = 0; k < s->costs->levels; k++) {
        ech_search_level *l = &s->level[k];
        for (size_t t = 0; t < l->table.n; t++) free(l->table.at[t].best);
        l->table.n = 0;
    }
}

void ech_search_count(ech_search *s, double limit)
{
    drop_tables(s);
    s->counts = true;
    s->limit = limit;
}

void ech_search_free(ech_search *s)
{
    drop_tables(s);
    for (int k = 0; k < s->costs->levels; k++) {
        free(s->level[k].table.at);
        free(s->level[k].best);
    }
    free(s->gate);
    free(s->queue);
}

/* ---- scores: times in the first run, numbers of stages in the second ---- */

double ech_search_both(const ech_search *s, double a, double b)
{
    return s->counts ? a + b : ech_partition_larger(a, b);
}

/* A time inside of a component as a score: replicas of outer levels share the micro-batches. */
static double score_of(const ech_search *s, const ech_search_context *around, double seconds,
                       double count)
{
    if (!s->counts) return seconds;
    for (int d = around->depth - 1; d >= 0; d--) seconds /= (double)around->divisor[d];
    return seconds <= s->limit ? count : (double)INFINITY;
}

static double boundary_score(const ech_search *s, int k, const ech_search_context *around, int j)
{
    return score_of(s, around, s->costs->crossing[j] / s->level[k].bandwidth, 0);
}

static double innermost_score(const ech_search *s, const ech_search_stage *st, int i, int j)
{
    const ech_partition_costs *costs = s->costs;
    int64_t copies = st->around->copies;
    if (!ech_partition_fits(costs, i, j, copies * st->w + st->around->behind, copies * st->q))
        return (double)INFINITY;
    double seconds = ech_partition_stage(costs, ech_partition_sum(costs->seconds, i, j), i, j,
                                         st->q, s->level[0].bandwidth);
    return score_of(s, st->around, seconds, 1);
}

static size_t in_triangle(int i, int j)
{
    return (size_t)j * (size_t)(j - 1) / 2 + (size_t)i;
}

double ech_search_score(const ech_search *s, const ech_search_stage *st, int i, int j)
{
    if (st->level == 0) return innermost_score(s, st, i, j);
    double inside = st->inside[in_triangle(i, j)], bandwidth = s->level[st->level].bandwidth;
    double seconds = ech_partition_stage(s->costs, s->counts ? 0 : inside, i, j, st->q, bandwidth);
    if (!s->counts) return seconds;
    return inside + score_of(s, st->around, seconds, 0);
}

/* ---- one level ---- */

double *ech_search_best(const ech_search *s, int k, int layer, int w)
{
    const ech_search_level *l = &s->level[k];
    size_t row = (size_t)layer * (size_t)(l->workers + 1) + (size_t)w;
    return l->best + row * (size_t)(s->costs->blocks + 1);
}

void ech_search_find_gates(const ech_search *s, const ech_search_stage *st, const double *rest,
                           int end)
{
    for (int j = 1; j < end; j++)
        s->gate[j] = ech_search_both(s, rest[j], boundary_score(s, st->level, st->around, j));
}

static void try_all_cuts(const ech_search *s, const ech_search_stage *st, int end, double *best)
{
    for (int i = 0; i < end - 1; i++)
        for (int j = i + 1; j < end; j++)
            best[i] = ech_partition_smaller(
                best[i], ech_search_both(s, s->gate[j], ech_search_score(s, st, i, j)));
}

/* The same on the innermost level, where a stage's score never falls when the stage grows. So a cut
 * is of use only if no earlier one has as good a gate: a queue of cuts, earliest first, with ever
 * better gates. And once the last of them does no better than the one before it, it never will
 * again for earlier i: it leaves. The last is then the best. */
static void try_useful_cuts(const ech_search *s, const ech_search_stage *st, int end, double *best)
{
    int head = end, tail = end;
    int *queue = s->queue;
    for (int i = end - 2; i >= 0; i--) {
        while (head < tail && s->gate[queue[head]] >= s->gate[i + 1]) head++;
        queue[--head] = i + 1;
        double last = ech_search_both(s, s->gate[queue[tail - 1]],
                                      ech_search_score(s, st, i, queue[tail - 1]));
        for (; tail - head > 1; tail--) {
            int j = queue[tail - 2];
            double before = ech_search_both(s, s->gate[j], ech_search_score(s, st, i, j));
            if (before > last) break;
            last = before;
        }
        best[i] = ech_partition_smaller(best[i], last);
    }
}

ech_search_context ech_search_inside(const ech_search *s, int k, const ech_search_context *around,
                                     int q, int w)
{
    ech_search_context inner = *around;
    if (!isinf(s->costs->memory)) {
        inner.copies = around->copies * q;
        inner.behind = around->copies * (w - q) * s->level[k].size + around->behind;
        int64_t divisor = ech_common_divisor(inner.copies, inner.behind);
        inner.copies /= divisor;
        inner.behind /= divisor;
    }
    if (s->counts) inner.divisor[inner.depth++] = q;
    return inner;
}

static bool is_same(const ech_search_context *a, const ech_search_context *b)
{
    return a->copies == b->copies && a->behind == b->behind && a->depth == b->depth &&
           memcmp(a->divisor, b->divisor, sizeof a->divisor) == 0;
}

static double *make_table(ech_search *s, int k, const ech_search_context *around)
{
    int blocks = s->costs->blocks;
    const ech_search_level *l = &s->level[k];
    size_t pairs = in_triangle(0, blocks + 1);
    double *table = ech_calloc((size_t)l->layers * pairs, sizeof *table);
    for (int end = 1; end <= blocks; end++) {
        ech_search_fill(s, k, around, end);
        for (int n = 0; n < l->layers; n++)
            memcpy(table + (size_t)n * pairs + in_triangle(0, end),
                   ech_search_best(s, k, n, l->workers), (size_t)end * sizeof *table);
    }
    return table;
}

static const double *find_table(ech_search *s, int k, const ech_search_context *around)
{
    ech_search_level *l = &s->level[k];
    for (size_t t = 0; t < l->table.n; t++)
        if (is_same(&l->table.at[t].around, around)) return l->table.at[t].best;
    ech_search_table made = {*around, make_table(s, k, around)};
    ECH_PUSH(l->table, made);
    return made.best;
}

ech_search_stage ech_search_stage_of(ech_search *s, int k, const ech_search_context *around, int q,
                                     int w, int layer)
{
    ech_search_stage st = {.level = k, .q = q, .w = w, .around = around};
    if (k == 0) return st;
    ech_search_context inner = ech_search_inside(s, k, around, q, w);
    size_t pairs = in_triangle(0, s->costs->blocks + 1);
    st.inside = find_table(s, k - 1, &inner) + (size_t)layer * pairs;
    return st;
}

void ech_search_layers(const ech_search *s, int k, int n, int q, int w, int *first, int *last)
{
    *first = *last = 0;
    if (s->stages == 0) return;
    /* The last stage takes all that is left, any other leaves something. */
    *last = q == w ? n : n - 1;
    *first = q == w ? n : 1;
    int most = k > 0 ? s->level[k - 1].layers - 1 : 1;
    if (*last > most) *last = most;
}

static void add_stage(ech_search *s, int k, const ech_search_context *around, int end, int n, int w,
                      int q)
{
    int first, last;
    double *best = ech_search_best(s, k, n, w);
    ech_search_layers(s, k, n, q, w, &first, &last);
    for (int layer = first; layer <= last; layer++) {
        ech_search_stage st = ech_search_stage_of(s, k, around, q, w, layer);
        if (q == w) {
            for (int i = 0; i < end; i++)
                best[i] = ech_partition_smaller(best[i], ech_search_score(s, &st, i, end));
            continue;
        }
        ech_search_find_gates(s, &st, ech_search_best(s, k, n - layer, w - q), end);
        if (k == 0)
            try_useful_cuts(s, &st, end, best);
        else
            try_all_cuts(s, &st, end, best);
    }
}

void ech_search_fill(ech_search *s, int k, const ech_search_context *around, int end)
{
    int layers = s->level[k].layers, first = s->stages ? 1 : 0;
    for (int w = 1; w <= s->level[k].workers; w++) {
        for (int n = first; n < layers; n++) {
            double *best = ech_search_best(s, k, n, w);
            for (int i = 0; i <= end; i++) best[i] = (double)INFINITY;
        }
        for (int q = 1; q <= w; q++)
            for (int n = first; n < layers; n++) add_stage(s, k, around, end, n, w, q);
    }
}

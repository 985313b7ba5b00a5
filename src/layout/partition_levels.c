/* SPDX-License-Identifier: Apache-2.0
 *
 * Partitions of any shape: both runs of the search, and the partition read off the second.
 */
#include "layout/partition_search.h"

typedef struct choice {
    int cut, q, layer;
} choice;

/* The first stage of a best way to run i .. end - 1 on w: of the earliest cut, then the fewest
 * components. */
static choice choose_stage(ech_search *s, int k, const ech_search_context *around, int i, int end,
                           int n, int w)
{
    choice c = {.cut = end + 1};
    double target = ech_search_best(s, k, n, w)[i];
    for (int q = 1; q <= w; q++) {
        int first, last;
        ech_search_layers(s, k, n, q, w, &first, &last);
        for (int layer = first; layer <= last; layer++) {
            ech_search_stage st = ech_search_stage_of(s, k, around, q, w, layer);
            int j = q == w ? end : i + 1;
            if (q < w) ech_search_find_gates(s, &st, ech_search_best(s, k, n - layer, w - q), end);
            for (; j < c.cut && (q == w || j < end); j++) {
                double score = ech_search_score(s, &st, i, j);
                if (q < w) score = ech_search_both(s, s->gate[j], score);
                if (score <= target) c = (choice){j, q, layer};
            }
        }
    }
    ECH_ASSERT(c.cut <= end);
    return c;
}

static void write_down(ech_search *s, int k, const ech_search_context *around, int i, int end,
                       int n, int64_t copies, ech_partition *out)
{
    ech_search_fill(s, k, around, end);
    for (int w = s->level[k].workers; i < end;) {
        choice c = choose_stage(s, k, around, i, end, n, w);
        ech_search_context inner = ech_search_inside(s, k, around, c.q, w);
        if (k == 0)
            ech_partition_add(out, c.cut, copies * c.q);
        else
            write_down(s, k - 1, &inner, i, c.cut, c.layer, copies * c.q, out);
        i = c.cut;
        n -= c.layer;
        w -= c.q;
    }
}

bool ech_partition_levels(const ech_partition_costs *costs, int stages, ech_partition *out)
{
    ech_search s;
    const ech_search_context whole = {.copies = 1};
    int outer = costs->levels - 1;
    ech_search_create(&s, costs, stages);
    ech_search_fill(&s, outer, &whole, costs->blocks);
    out->seconds = ech_search_best(&s, outer, stages, s.level[outer].workers)[0];
    bool found = isfinite(out->seconds);
    if (found) {
        ech_search_count(&s, out->seconds);
        write_down(&s, outer, &whole, 0, costs->blocks, stages, 1, out);
    }
    ech_search_free(&s);
    return found;
}

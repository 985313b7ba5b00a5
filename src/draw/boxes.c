/* SPDX-License-Identifier: Apache-2.0
 *
 * Bars as boxes.
 */
#include "draw/boxes.h"

#include <math.h>

/* `together`: wide enough that shares of several bars are smooth from box to box. */
static const double pixel = 1, together = 10, visible = 3, nothing = 0.01;

/* Narrow bars that become one box. */
typedef struct bar_run {
    const ech_timeline_bar *longest;
    int bars;
    double begin, end;
    double time[ECH_BAR_KINDS];
} bar_run;

static void finish_run(bar_run *run, ech_boxes *out)
{
    double width = run->end - run->begin;
    if (run->bars > 0 && width >= nothing) {
        bool alone = run->bars == 1 || width < visible;
        ech_box box = {.bar = alone ? run->longest : NULL, .x = run->begin, .width = width};
        for (int kind = 0; kind < ECH_BAR_KINDS; kind++) box.share[kind] = run->time[kind] / width;
        ECH_PUSH(*out, box);
    }
    *run = (bar_run){0};
}

/* Of bars that overlap the first has the time. */
static void add_to_run(bar_run *run, const ech_timeline_bar *bar, double begin, double end)
{
    if (run->bars++ == 0) {
        run->begin = run->end = begin;
        run->longest = bar;
    }
    double adds = fmax(0, end - fmax(begin, run->end));
    double weight = bar->kind == ECH_BAR_BACKWARD ? bar->weight / (bar->end - bar->begin) : 0;
    run->time[bar->kind] += adds * (1 - weight);
    run->time[ECH_BAR_WEIGHT] += adds * weight;
    run->end = fmax(run->end, end);
    if (bar->end - bar->begin > run->longest->end - run->longest->begin) run->longest = bar;
}

void ech_boxes_make(const ech_timeline_bar *bar, size_t n, double from, double end, double scale,
                    ech_boxes *out)
{
    bar_run run = {0};
    for (size_t i = 0; i < n; i++) {
        double x = (fmax(from, bar[i].begin) - from) * scale;
        double width = (fmin(end, bar[i].end) - from) * scale - x;
        if (!(width > 0)) continue;
        bool is_narrow = width < pixel;
        bool joins = x - run.end < pixel && run.end - run.begin < together;
        if (!is_narrow || !joins) finish_run(&run, out);
        if (is_narrow)
            add_to_run(&run, &bar[i], x, x + width);
        else
            ECH_PUSH(*out, (ech_box){.bar = &bar[i], .x = x, .width = width});
    }
    finish_run(&run, out);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes bars of steps with times, simulated or recorded.
 */
#include <math.h>

#include "draw/timeline.h"

static bool is_backward(ech_bar_kind kind)
{
    return kind == ECH_BAR_BACKWARD || kind == ECH_BAR_WEIGHT;
}

/* Blocks of a chunk and micro-batch, and the parts of each, follow each other without a wait but for
 * collectives, which have bars of their own; what else is between two of them is the interpreter at work. A W
 * beside its own B is of the same work, as they come block by block (W in front only recomputes what a
 * collective fetches): the two are one bar, which says how much of it is W. Other steps go together where nothing is
 * between them. */
static bool continues(const ech_timeline_bar *last, const ech_timeline_bar *bar)
{
    bool same = last->chunk == bar->chunk && last->micro == bar->micro;
    bool backward = is_backward(last->kind) && is_backward(bar->kind);
    return same && (last->kind == bar->kind || backward) &&
           (bar->micro >= 0 || last->end >= bar->begin);
}

/* A step of a list that is being added, and where it is drawn. */
typedef struct placed {
    const ech_list *list;
    const ech_step *step;
    const double *begin, *end; /* [steps] */
    ech_timeline_bar bar;
    double idle; /* when compute was done with what came before */
    bool within; /* the bar goes on */
} placed;

static void add_wait(ech_timeline *timeline, const placed *p, double from, double to)
{
    ech_timeline_bar wait = p->bar;
    wait.kind = ECH_BAR_COLLECTIVE;
    wait.begin = fmax(from, p->idle);
    wait.end = fmin(to, p->bar.begin);
    if (wait.end > wait.begin) ECH_PUSH(timeline->bar, wait);
}

/* For the collectives that the step comes after. Within a micro-batch there is nothing else to wait for, so
 * that is all of the gap; before one, messages may have come later. */
static void add_waits(ech_timeline *timeline, const placed *p)
{
    for (int i = 0; i < p->step->afters; i++) {
        int after = p->list->after.at[p->step->first_after + i];
        if (p->list->step.at[after].lane != ECH_LANE_COLLECTIVE || p->end[after] <= p->idle)
            continue;
        if (p->within) {
            add_wait(timeline, p, p->idle, p->bar.begin);
            return;
        }
        add_wait(timeline, p, p->begin[after], p->end[after]);
    }
}

void ech_timeline_add_list(ech_timeline *timeline, int rank, const ech_list *list,
                           const double *begin, const double *end)
{
    size_t last = SIZE_MAX;
    double idle = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        ech_timeline_bar bar = {.rank = rank,
                                .kind = ech_step_bar(step),
                                .chunk = step->chunk,
                                .micro = step->micro,
                                .begin = begin[s],
                                .end = end[s]};
        bool works = bar.end > bar.begin;
        if (bar.kind == ECH_BAR_WEIGHT) bar.weight = bar.end - bar.begin;
        if (bar.kind == ECH_BAR_REDUCTION && works) ECH_PUSH(timeline->bar, bar);
        if (step->lane == ECH_LANE_COLLECTIVE) timeline->collective += end[s] - begin[s];
        if (step->lane != ECH_LANE_COMPUTE) continue;
        bool within = last != SIZE_MAX && continues(&timeline->bar.at[last], &bar);
        add_waits(timeline, &(placed){list, step, begin, end, bar, idle, within});
        idle = fmax(idle, bar.end);
        if (!works) continue;
        if (within) {
            ech_timeline_bar *grows = &timeline->bar.at[last];
            grows->end = bar.end;
            grows->weight += bar.weight;
            if (bar.kind == ECH_BAR_BACKWARD) grows->kind = bar.kind;
        } else {
            last = timeline->bar.n;
            ECH_PUSH(timeline->bar, bar);
        }
    }
}

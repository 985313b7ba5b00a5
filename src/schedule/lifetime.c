/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that gives every value its ticks of birth and death.
 *
 * On the compute lane a value lives from its first to its last touch. A step of another lane runs
 * at some time between the end of the compute steps it waits for and the first compute step that
 * waits for it, inclusive: only then is it known to be complete. If a lane ends its steps in order,
 * the step is also known to be complete once a later step of the lane is waited for; messages may
 * overtake each other. A step's dependencies have ended when the step has ended. Every value that a
 * step touches lives through all of that time.
 */
#include "schedule/passes.h"

typedef struct span {
    int first, last;
} span;

static void earliest_starts(const ech_list *list, span *spans)
{
    int lane_first[ECH_LANES] = {0};
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->lane == ECH_LANE_COMPUTE) {
            spans[s].first = step->tick;
            continue;
        }
        int first = lane_first[step->lane];
        for (int i = 0; i < step->afters; i++) {
            int before = list->after.at[step->first_after + i];
            const ech_step *other = &list->step.at[before];
            int ends = other->lane == ECH_LANE_COMPUTE ? other->tick + ech_step_ticks(other)
                                                       : spans[before].first;
            if (ends > first) first = ends;
        }
        spans[s].first = lane_first[step->lane] = first;
    }
}

static void latest_ends(const ech_list *list, span *spans)
{
    int lane_last[ECH_LANES];
    for (int l = 0; l < ECH_LANES; l++) lane_last[l] = list->ticks - 1;
    for (size_t s = 0; s < list->step.n; s++) spans[s].last = list->ticks - 1;
    for (size_t s = list->step.n; s-- > 0;) {
        const ech_step *step = &list->step.at[s];
        bool computes = step->lane == ECH_LANE_COMPUTE;
        if (computes) spans[s].last = step->tick + ech_step_ticks(step) - 1;
        if (!computes && !ech_step_sends(step) && !ech_step_receives(step)) {
            if (lane_last[step->lane] < spans[s].last) spans[s].last = lane_last[step->lane];
            lane_last[step->lane] = spans[s].last;
        }
        for (int i = 0; i < step->afters; i++) {
            span *waited = &spans[list->after.at[step->first_after + i]];
            int begun = computes ? step->tick : spans[s].last;
            if (begun < waited->last) waited->last = begun;
        }
    }
}

static void widen(const ech_plan *plan, ech_list *list, int value, int first, int last)
{
    ech_value *v = &list->value.at[value - (int)plan->persistent.n];
    if (first < v->born) v->born = first;
    if (last > v->dies) v->dies = last;
}

void ech_pass_lifetime(const ech_plan *plan, ech_list *list)
{
    ECH_FREED span *spans = ech_calloc(list->step.n + 1, sizeof *spans);
    earliest_starts(list, spans);
    latest_ends(list, spans);
    for (size_t v = 0; v < list->value.n; v++) {
        list->value.at[v].born = list->ticks;
        list->value.at[v].dies = -1;
    }
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool compute = step->lane == ECH_LANE_COMPUTE;
        for (int i = 0; i < step->accesses; i++) {
            const ech_access *access = &list->access.at[step->first_access + i];
            if (access->value < (int)plan->persistent.n) continue;
            widen(plan, list, access->value, compute ? access->tick : spans[s].first,
                  compute ? access->tick : spans[s].last);
        }
    }
}

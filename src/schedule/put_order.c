/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which one thread puts a list's steps on queues.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "schedule/schedule.h"

/* A step, and behind which one of the other lanes it is put. */
typedef struct turn {
    int behind, step;
    bool is_message;
} turn;

int ech_step_queue(const ech_step *step)
{
    if (step->lane != ECH_LANE_SEND && step->lane != ECH_LANE_RECEIVE) return step->lane;
    return ECH_LANES + 2 * ech_step_boundary(step) + ech_step_kind_is_gradient(step->kind);
}

static int by_turn(const void *a, const void *b)
{
    const turn *x = a, *y = b;
    if (x->behind != y->behind) return x->behind < y->behind ? -1 : 1;
    if (x->is_message != y->is_message) return x->is_message ? 1 : -1;
    return x->step < y->step ? -1 : x->step > y->step;
}

static int count_queues(const ech_list *list)
{
    int n = ECH_LANES;
    for (size_t s = 0; s < list->step.n; s++) {
        int queue = ech_step_queue(&list->step.at[s]);
        if (queue >= n) n = queue + 1;
    }
    return n;
}

void ech_list_put_order(const ech_list *list, int *order)
{
    ECH_FREED turn *turns = ech_calloc(list->step.n + 1, sizeof *turns);
    ECH_FREED int *last = ech_calloc((size_t)count_queues(list), sizeof *last);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        int queue = ech_step_queue(step);
        turn t = {.behind = (int)s, .step = (int)s, .is_message = queue >= (int)ECH_LANES};
        if (t.is_message) t.behind = last[queue];
        for (int i = 0; t.is_message && i < step->afters; i++) {
            int behind = turns[list->after.at[step->first_after + i]].behind;
            if (behind > t.behind) t.behind = behind;
        }
        last[queue] = t.behind;
        turns[s] = t;
    }
    qsort(turns, list->step.n, sizeof *turns, by_turn);
    for (size_t i = 0; i < list->step.n; i++) order[i] = turns[i].step;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks' lists against each other. One rank of each class stands for the others.
 */
#include "app/setup/parts.h"

#include <stdlib.h>

#include "base/log.h"

/* The plans of the first rank of each class. */
typedef struct lists {
    const ech_design *design;
    ech_plan **plan; /* [n]; NULL: not made */
    int n;
} lists;

static ech_status check_kind(const lists *l, ech_list_kind kind)
{
    return ech_design_check_plans(l->design, (const ech_plan *const *)l->plan, l->n, kind);
}

/* True if both spans are served in the same order. */
static bool is_same_order(const ech_serve *a, const ech_serve *b, int pushes)
{
    for (int i = 0; i < pushes; i++)
        if (a[i].worker != b[i].worker) return false;
    return true;
}

/* Binds the train lists to each span of the log of serves, and checks them. */
static ech_status check_spans(const lists *l)
{
    const ech_serve_log *log = l->design->serves;
    const ech_serve *before = NULL;
    for (int64_t step = log->first; step < log->end; step += log->turns) {
        const ech_serve *span = ech_serve_log_span(log, step);
        if (before && is_same_order(before, span, log->pushes)) continue;
        for (int i = 0; i < l->n; i++) ech_plan_bind(l->plan[i], span);
        ECH_TRY(check_kind(l, ECH_LIST_TRAIN));
        before = span;
    }
    return ECH_OK;
}

static ech_status check_all(const lists *l)
{
    for (int kind = 0; kind < ECH_LIST_KINDS; kind++)
        if (kind == ECH_LIST_TRAIN && l->design->serves)
            ECH_TRY(check_spans(l));
        else
            ECH_TRY(check_kind(l, (ech_list_kind)kind));
    return ECH_OK;
}

static int64_t count_steps(const ech_plan *plan)
{
    int64_t steps = 0;
    for (int kind = 0; kind < ECH_LIST_KINDS; kind++) steps += (int64_t)plan->list[kind].step.n;
    return steps;
}

/* Makes plans until they have more than most_steps steps. Returns whether all are made. */
static bool make_all(lists *l, int64_t most_steps)
{
    const int *first = l->design->layout->classes.first;
    int64_t steps = 0;
    for (int i = 0; i < l->n && steps <= most_steps; i++) {
        l->plan[i] = ech_design_lists(l->design, first[i]);
        steps += count_steps(l->plan[i]);
    }
    return steps <= most_steps;
}

ech_status ech_design_check_ranks(const ech_design *design, int64_t most_steps)
{
    int n = design->layout->classes.n;
    ECH_FREED ech_plan **plan = ech_calloc((size_t)n, sizeof *plan);
    lists l = {design, plan, n};
    ech_status status = ECH_OK;
    if (design->world == 1) return ECH_OK;
    if (make_all(&l, most_steps))
        status = check_all(&l);
    else
        ech_log_info("the ranks' lists have more than %lld steps and are not checked against each "
                     "other; `echelon plan` checks them",
                     (long long)most_steps);
    for (int i = 0; i < n; i++) ech_plan_destroy(plan[i]);
    return status;
}

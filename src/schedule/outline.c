/* SPDX-License-Identifier: Apache-2.0
 *
 * Frees parts of plans so that the plans of many ranks fit into memory: values, once a plan is
 * checked; all lists but the train list; and steps that equal another rank's.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/passes.h"

static void forget_values(ech_list *list)
{
    free(list->access.at);
    free(list->value.at);
    free(list->value_of);
    free(list->first_local);
    free(list->first_writer);
    free(list->gradients);
    free(list->summed);
    memset(&list->access, 0, sizeof list->access);
    memset(&list->value, 0, sizeof list->value);
    list->value_of = list->first_local = NULL;
    list->first_writer = NULL;
    list->gradients = list->summed = NULL;
}

void ech_plan_forget_values(ech_plan *plan)
{
    for (ech_list *list = plan->list; list < plan->list + ECH_LIST_KINDS; list++) {
        forget_values(list);
        list->step.at =
            ech_shrink(list->step.at, &list->step.capacity, list->step.n, sizeof *list->step.at);
        list->after.at = ech_shrink(list->after.at, &list->after.capacity, list->after.n,
                                    sizeof *list->after.at);
    }
}

static void free_steps(ech_list *list)
{
    if (!list->borrows) {
        free(list->step.at);
        free(list->after.at);
    }
    memset(&list->step, 0, sizeof list->step);
    memset(&list->after, 0, sizeof list->after);
}

void ech_list_free(ech_list *list)
{
    forget_values(list);
    free_steps(list);
}

/* True if both are equal except for peers, which have the same distance from their ranks; fields
 * about values are ignored. */
static bool is_same_step(const ech_step *a, const ech_step *b, int shift)
{
    ech_step other = *b;
    if (b->peer >= 0) other.peer += shift;
    size_t small = offsetof(ech_step, resource) + sizeof a->resource;
    size_t from = offsetof(ech_step, chunk), to = offsetof(ech_step, first_access);
    return memcmp(a, &other, small) == 0 &&
           memcmp((const char *)a + from, (const char *)&other + from, to - from) == 0;
}

static bool is_same_list(const ech_list *a, const ech_list *b, int shift)
{
    if (a->step.n != b->step.n || a->after.n != b->after.n) return false;
    for (size_t i = 0; i < a->after.n; i++)
        if (a->after.at[i] != b->after.at[i]) return false;
    for (size_t s = 0; s < a->step.n; s++)
        if (!is_same_step(&a->step.at[s], &b->step.at[s], shift)) return false;
    return true;
}

void ech_plan_make_outline(ech_plan *plan, const ech_plan *like)
{
    ech_list *train = &plan->list[ECH_LIST_TRAIN];
    ech_plan_forget_values(plan);
    for (int i = 0; i < ECH_LIST_KINDS; i++)
        if (i != ECH_LIST_TRAIN && !ech_list_kind_meets((ech_list_kind)i))
            ech_list_free(&plan->list[i]);
    plan->outline = true;
    if (!like) return;
    const ech_list *lent = &like->list[ECH_LIST_TRAIN];
    int shift = plan->rank - like->rank;
    if (lent->borrows || !is_same_list(train, lent, shift)) return;
    free_steps(train);
    train->borrows = true;
    train->peer_shift = shift;
    train->step.at = lent->step.at;
    train->step.n = lent->step.n;
    train->after.at = lent->after.at;
    train->after.n = lent->after.n;
}

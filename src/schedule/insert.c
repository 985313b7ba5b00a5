/* SPDX-License-Identifier: Apache-2.0
 *
 * Rebuilds lists with other steps among their own.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/passes.h"

int ech_list_copy_step(ech_list *list, const ech_step *from, const int *after, const int *now)
{
    int here = ech_list_add(list, from->kind);
    ech_step *step = &list->step.at[here];
    int first_after = step->first_after;
    *step = *from;
    step->first_after = first_after;
    step->afters = 0;
    for (int i = 0; i < from->afters; i++)
        ech_list_add_after(list, now[after[from->first_after + i]]);
    return here;
}

/* Chains of insertions, in their order, by step of the list. */
typedef struct chains {
    int *first, *next; /* [steps + 1], [insertions]: insertion + 1; 0: none */
} chains;

static void link_to(chains *c, int step, size_t insertion)
{
    c->next[insertion] = c->first[step];
    c->first[step] = (int)insertion + 1;
}

/* Adds an insertion's step, with its own waits only. */
static int add(ech_list *list, const ech_insertion *in, const int *now, const int *here)
{
    ech_step step = in->step;
    step.afters = 0;
    int added = ech_list_copy_step(list, &step, NULL, NULL);
    if (in->after >= 0) ech_list_add_after(list, now[in->after]);
    for (int k = 0; k < 2; k++)
        if (in->follows[k] >= 0) ech_list_add_after(list, here[in->follows[k]]);
    return added;
}

/* The step after which it is inserted. */
static int place_of(const ech_list *old, const ech_insertion *in)
{
    int place = in->after;
    while (in->yields && place + 1 < (int)old->step.n && place >= 0 &&
           ech_step_sends(&old->step.at[place + 1]))
        place++;
    return place;
}

void ech_list_insert(ech_list *list, const ech_insertion_list *in)
{
    ech_list old = *list;
    if (!in->n) return;
    memset(&list->step, 0, sizeof list->step);
    memset(&list->after, 0, sizeof list->after);
    size_t steps = old.step.n;
    ECH_FREED int *now = ech_calloc(steps + 1, sizeof *now);
    ECH_FREED int *here = ech_calloc(in->n, sizeof *here); /* of the insertions */
    ECH_FREED int *memory = ech_calloc(3 * (steps + 1 + in->n), sizeof *memory);
    chains come = {memory, memory + steps + 1}, before[2];
    for (int k = 0; k < 2; k++) {
        before[k].first = memory + (k + 1) * (ptrdiff_t)(steps + 1 + in->n);
        before[k].next = before[k].first + steps + 1;
    }
    for (size_t i = in->n; i-- > 0;) {
        link_to(&come, place_of(&old, &in->at[i]) + 1, i);
        for (int k = 0; k < 2; k++)
            if (in->at[i].before[k] >= 0) link_to(&before[k], in->at[i].before[k], i);
    }
    for (int s = -1; s < (int)steps; s++) {
        if (s >= 0) now[s] = ech_list_copy_step(list, &old.step.at[s], old.after.at, now);
        for (int k = 0; k < 2 && s >= 0; k++)
            for (int i = before[k].first[s]; i; i = before[k].next[i - 1])
                ech_list_add_after(list, here[i - 1]);
        for (int i = come.first[s + 1]; i; i = come.next[i - 1])
            here[i - 1] = add(list, &in->at[i - 1], now, here);
    }
    free(old.step.at);
    free(old.after.at);
}

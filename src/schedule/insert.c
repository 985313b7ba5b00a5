/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists that are made anew with other steps among their own.
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

/* An insertion's step, with its own wait alone. */
static int add(ech_list *list, const ech_insertion *in, const int *now)
{
    ech_step step = in->step;
    step.afters = 0;
    int here = ech_list_copy_step(list, &step, NULL, NULL);
    if (in->after >= 0) ech_list_add_after(list, now[in->after]);
    return here;
}

void ech_list_insert(ech_list *list, const ech_insertion_list *in)
{
    ech_list old = *list;
    if (!in->n) return;
    memset(&list->step, 0, sizeof list->step);
    memset(&list->after, 0, sizeof list->after);
    ECH_FREED int *now = ech_calloc(old.step.n + 1, sizeof *now);
    ECH_FREED int *here = ech_calloc(in->n + 1, sizeof *here); /* of the insertions */
    ECH_FREED int *next = ech_calloc(in->n + 1, sizeof *next); /* with the same `before`, + 1 */
    ECH_FREED int *first = ech_calloc(old.step.n + 1, sizeof *first); /* of a step, + 1 */
    for (size_t i = in->n; i-- > 0;) {
        if (in->at[i].before < 0) continue;
        next[i] = first[in->at[i].before];
        first[in->at[i].before] = (int)i + 1;
    }
    size_t i = 0;
    for (; i < in->n && in->at[i].after < 0; i++) here[i] = add(list, &in->at[i], now);
    for (int s = 0; s < (int)old.step.n; s++) {
        now[s] = ech_list_copy_step(list, &old.step.at[s], old.after.at, now);
        for (int k = first[s]; k; k = next[k - 1]) ech_list_add_after(list, here[k - 1]);
        for (; i < in->n && in->at[i].after == s; i++) here[i] = add(list, &in->at[i], now);
    }
    ECH_ASSERT(i == in->n);
    free(old.step.at);
    free(old.after.at);
}

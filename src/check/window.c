/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the weights that all ranks share: who updates some in the window knows that all ranks have read what was there. They have
 * when a fold over all ranks has ended, which each begins behind its last read; that all take part in it check/plans.c proves. That a
 * rank reads what others have written only when they have published it check/versions.c does.
 */
#include "check/checker.h"

typedef struct window_check {
    const ech_plan *plan;
    const ech_list *list;
    ech_known known;
    int read; /* the last step that reads weights; -1: none has */
    int met;  /* the last fold that comes after it; -1: none has since */
} window_check;

static void fold(window_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool folds = step->kind == ECH_STEP_REDUCE && step->group == ECH_GROUP_WORLD;
    if (folds && c->known.step[step->lane][ECH_LANE_COMPUTE] >= c->read) c->met = s;
}

static ech_status update(const window_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    if (!c->plan->bucket.at[step->index].sharded) return ECH_OK;
    if (c->met >= 0 && c->known.step[step->lane][ECH_LANE_REDUCE] >= c->met) return ECH_OK;
    return ech_list_reject(c->plan, c->list, s,
                           "does not wait until all ranks have read the weights of bucket %d",
                           step->index);
}

ech_status ech_check_window(const ech_plan *plan, const ech_list *list)
{
    window_check c = {
        .plan = plan, .list = list, .known = ech_known_begin(), .read = -1, .met = -1};
    for (int s = 0; s < (int)list->step.n && plan->layout->central; s++) {
        const ech_step *step = &list->step.at[s];
        ech_known_learn(&c.known, list, step);
        fold(&c, s);
        if (ech_step_params(step) == ECH_PARAMS_UPDATE) ECH_TRY(update(&c, s));
        if (ech_step_params(step) != ECH_PARAMS_READ) continue;
        c.read = s;
        c.met = -1;
    }
    return ECH_OK;
}

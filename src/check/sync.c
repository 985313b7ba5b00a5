/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks where replicas that are apart meet, or mix with neighbours: steps work on the weights and states of their own bucket, those
 * that the parameters have. In which order, and over whom, check/effects.c proves.
 */
#include "check/checker.h"

/* Of each parameter of the bucket: the anchor, what else is kept of a meeting, and the weights, or their masters, too. */
static bool has_states(const ech_plan *plan, const ech_list *list, const ech_step *step,
                       bool writes)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    bool meets = list->kind == ECH_LIST_SYNC;
    if (!ech_step_accesses(list, step, bucket->weights, writes)) return false;
    for (int i = 0; i < bucket->params; i++) {
        const ech_plan_param *p = &plan->param[plan->bucket_param.at[bucket->first_param + i]];
        bool anchored = false;
        for (int k = 0; k < p->states; k++) {
            const ech_plan_state *state = &plan->state.at[p->first_state + k];
            bool anchor = meets && state->is.role == ECH_STATE_ANCHOR;
            bool momentum = meets && state->is.role == ECH_STATE_OUTER_MOMENTUM && writes;
            if ((anchor || momentum || k == p->master) &&
                !ech_step_accesses(list, step, state->value, writes))
                return false;
            anchored |= anchor;
        }
        if (meets && !anchored) return false;
    }
    return true;
}

ech_status ech_check_sync(const ech_plan *plan, const ech_list *list)
{
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool moves = step->kind == ECH_STEP_OUTER_UPDATE || step->kind == ECH_STEP_MIX;
        if (!ech_step_has_bucket(step))
            return ech_list_reject(plan, list, s, "is none by which replicas meet");
        if (step->kind != ECH_STEP_REDUCE_GRADS && !has_states(plan, list, step, moves))
            return ech_list_reject(plan, list, s, "does not access what it works on");
    }
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks how steps of buckets use values (ech_used_as), by which the executor finds its operands:
 * each value has the kind and bucket of its use, and a step has all uses that its kind needs.
 */
#include "check/checker.h"
#include "schedule/operands.h"
#include "schedule/states.h"

/* True if the value is the bucket's. The value of a state that is not element-wise names its
 * parameter. */
static bool is_of_bucket(const ech_plan *plan, const ech_value *value, int bucket, ech_used_as use)
{
    if (value->index == bucket) return true;
    bool names_param = use == ECH_USE_STATE && value->index >= 0;
    return names_param && plan->param[value->index].bucket == bucket;
}

/* True if the step passes all of a bucket, or of a piece of it, to an optimizer. */
static bool optimizes(const ech_step *step)
{
    return step->kind == ECH_STEP_UPDATE || step->kind == ECH_STEP_UPDATE_ON_HOST ||
           step->kind == ECH_STEP_STATISTICS || step->kind == ECH_STEP_STATISTICS_ON_HOST;
}

/* The least number of values that the step must use that way. */
static int needs(const ech_plan *plan, const ech_step *step, ech_used_as use)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    bool norm = step->kind == ECH_STEP_NORM && !bucket->compressed;
    if (use == ECH_USE_SUM) return optimizes(step) || norm;
    if (use == ECH_USE_WEIGHTS) return step->kind == ECH_STEP_UPDATE;
    if (use == ECH_USE_STATE && optimizes(step))
        return ech_step_state_use(plan, step, bucket->state_values);
    if (use == ECH_USE_STATE) return 0;
    if (use == ECH_USE_STATISTICS) return optimizes(step) && bucket->rounds > 0;
    return 0;
}

/* Persistent values must be of the step's version, and number k of the bucket's states; the sum
 * must be the turn's. Copies are checked by ech_check_copies. */
static bool is_right(const ech_plan *plan, const ech_list *list, const ech_step *step,
                     const ech_access *access, int k)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    bool lives = access->value < (int)plan->persistent.n;
    if (access->use == ECH_USE_WEIGHTS && lives)
        return access->value == ech_plan_weights(plan, step->index, step->version);
    if (access->use == ECH_USE_NEXT)
        return access->value == ech_plan_weights(plan, step->index, step->version + 1);
    if (access->use == ECH_USE_STATE && lives && optimizes(step)) {
        int state = k - ech_step_state_use(plan, step, 0);
        return state < bucket->state_values &&
               access->value == plan->state_value.at[bucket->first_state_value + state];
    }
    if (access->use == ECH_USE_SUM && optimizes(step) && step->lane == ECH_LANE_COMPUTE)
        return access->value == ech_list_summed(plan, list, step->index, step->turn);
    return true;
}

static ech_status check_step(const ech_plan *plan, const ech_list *list, int s)
{
    const ech_step *step = &list->step.at[s];
    int count[ECH_USES] = {0};
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &list->access.at[step->first_access + i];
        const ech_value *value = ech_plan_value(plan, list, access->value);
        if (access->use == ECH_USE_OTHER) continue;
        if (!ech_use_fits(access->use, value->kind) ||
            !is_of_bucket(plan, value, step->index, access->use) ||
            !is_right(plan, list, step, access, count[access->use]))
            return ech_list_reject(plan, list, s, "uses a value as what it is not");
        count[access->use]++;
    }
    for (ech_used_as use = 0; use < ECH_USES; use++)
        if (count[use] < needs(plan, step, use) || (count[use] > 1 && use != ECH_USE_STATE))
            return ech_list_reject(plan, list, s, "uses %d values as one that it works on",
                                   count[use]);
    return ECH_OK;
}

ech_status ech_check_uses(const ech_plan *plan, const ech_list *list)
{
    if (!plan->persistent.n || !list->access.n) return ECH_OK; /* an outline */
    for (int s = 0; s < (int)list->step.n; s++)
        if (ech_step_has_bucket(&list->step.at[s])) ECH_TRY(check_step(plan, list, s));
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks where replicas that are apart meet: each bucket's difference is taken once, summed over all replicas where there are others,
 * and then its weights are moved; or, where replicas mix with neighbours, these' weights come once, and then its own are mixed. Each
 * step knows that the one before has ended. They work on the differences, weights and states of
 * their own bucket, those that the parameters have.
 */
#include <stdlib.h>

#include "check/checker.h"

typedef struct sync_check {
    const ech_plan *plan;
    const ech_list *list;
    ech_known known;
    int members;                 /* replicas */
    int *taken, *summed, *moved; /* [buckets] step + 1; 0: not yet */
} sync_check;

static bool accesses(const sync_check *c, int s, int value, bool write)
{
    const ech_step *step = &c->list->step.at[s];
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *a = &c->list->access.at[step->first_access + i];
        if (a->value == value && a->write == write) return true;
    }
    return false;
}

/* The step accesses its bucket's differences, which are of no other. */
static bool has_differences(const sync_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool found = false;
    for (int i = 0; i < step->accesses; i++) {
        int value = c->list->access.at[step->first_access + i].value;
        const ech_value *v = ech_plan_value(c->plan, c->list, value);
        if (v->kind != ECH_MEMORY_GRADIENTS) continue;
        if (v->index != step->index) return false;
        found = true;
    }
    return found;
}

/* Of each parameter of the bucket: the anchor, what else is kept of a meeting, and the weights, or their masters, too. */
static bool has_states(const sync_check *c, int s, bool writes)
{
    const ech_plan *plan = c->plan;
    const ech_step *step = &c->list->step.at[s];
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    if (!accesses(c, s, bucket->weights, writes)) return false;
    for (int i = 0; i < bucket->params; i++) {
        const ech_plan_param *p = &plan->param[plan->bucket_param.at[bucket->first_param + i]];
        bool anchored = false;
        for (int k = 0; k < p->states; k++) {
            const ech_plan_state *state = &plan->state.at[p->first_state + k];
            bool meets = c->list->kind == ECH_LIST_SYNC;
            bool anchor = meets && state->is.role == ECH_STATE_ANCHOR;
            bool momentum = meets && state->is.role == ECH_STATE_OUTER_MOMENTUM && writes;
            if ((anchor || momentum || k == p->master) && !accesses(c, s, state->value, writes))
                return false;
            anchored |= anchor;
        }
        if (c->list->kind == ECH_LIST_SYNC && !anchored) return false;
    }
    return true;
}

/* The step comes once, behind the one before it on its bucket's way. */
static ech_status follow(sync_check *c, int s, int *own, int before)
{
    const ech_step *step = &c->list->step.at[s];
    if (*own || !before)
        return ech_list_reject(c->plan, c->list, s, "comes out of its bucket's order");
    *own = s + 1;
    ech_lane lane = c->list->step.at[before - 1].lane;
    if (lane != step->lane && c->known.step[step->lane][lane] < before - 1)
        return ech_list_reject(c->plan, c->list, s, "does not wait for step %d", before - 1);
    return ECH_OK;
}

static ech_status check_step(sync_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    int b = step->index;
    bool gossips = c->list->kind == ECH_LIST_GOSSIP;
    bool takes = step->kind == (gossips ? ECH_STEP_NEIGHBOURS : ECH_STEP_DIFFERENCE);
    bool sums = step->kind == ECH_STEP_REDUCE_GRADS && !gossips;
    if (!sums && !takes && step->kind != (gossips ? ECH_STEP_MIX : ECH_STEP_OUTER_UPDATE))
        return ech_list_reject(c->plan, c->list, s, "is none by which replicas meet");
    if (b < 0 || b >= (int)c->plan->bucket.n)
        return ech_list_reject(c->plan, c->list, s, "is of a bucket that this rank does not have");
    if (ech_step_gathers(step) && (step->group != ECH_GROUP_REPLICAS || c->members < 2))
        return ech_list_reject(c->plan, c->list, s, "is not of all replicas");
    if (takes)
        ECH_TRY(follow(c, s, &c->taken[b], s + 1));
    else if (sums)
        ECH_TRY(follow(c, s, &c->summed[b], c->taken[b]));
    else
        ECH_TRY(
            follow(c, s, &c->moved[b], c->members > 1 && !gossips ? c->summed[b] : c->taken[b]));
    if (!has_differences(c, s) || (!sums && !has_states(c, s, !takes)))
        return ech_list_reject(c->plan, c->list, s, "does not access what it works on");
    return ECH_OK;
}

ech_status ech_check_sync(const ech_plan *plan, const ech_list *list)
{
    size_t buckets = plan->bucket.n;
    ECH_FREED int *steps = ech_calloc(3 * buckets + 1, sizeof *steps);
    sync_check c = {
        .plan = plan,
        .list = list,
        .known = ech_known_begin(),
        .members = ech_layout_group_size(plan->layout, plan->model, plan->rank, ECH_GROUP_REPLICAS),
        .taken = steps,
        .summed = steps + buckets,
        .moved = steps + 2 * buckets};
    for (int s = 0; s < (int)list->step.n; s++) {
        ech_known_learn(&c.known, list, &list->step.at[s]);
        ECH_TRY(check_step(&c, s));
    }
    for (size_t b = 0; b < buckets; b++)
        if (!c.moved[b])
            return ech_list_reject(plan, list, (int)list->step.n - 1,
                                   "ends a list that leaves bucket %zu where it was", b);
    return ECH_OK;
}

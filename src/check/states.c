/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks which steps work on optimizer states and statistics: a bucket's steps access only its own
 * states, and its update all of them; and its turn's statistics, which the first round, or a fetch,
 * begins. The parameters decide whose states are whose. Steps of compressed gradients work on all
 * residuals or bases of the bucket, according to their kind, and on its turn's factors or
 * selections. Steps of a synchronization of replicas work on anchors and weights of their bucket.
 */
#include "check/checker.h"
#include "schedule/operands.h"

typedef struct state_check {
    const ech_plan *plan;
    const ech_list *list;
    int *state_of;   /* [persistent values] the bucket whose state it is; -1: none */
    int *updated;    /* [persistent values] states: the last step that accesses it, + 1 */
    int *statistics; /* [buckets * spaces] of the turn: value; 0: none yet */
    int *factors;    /* [buckets] of the turn */
} state_check;

/* The next state of the bucket's parameters: its persistent value; -1: there is none. */
static int next_state(const ech_plan *plan, int bucket, int *param, int *state)
{
    const ech_bucket *b = &plan->bucket.at[bucket];
    for (; *param < b->params; ++*param, *state = 0) {
        const ech_plan_param *p = &plan->param[plan->bucket_param.at[b->first_param + *param]];
        if (*state < p->states) return plan->state.at[p->first_state + (*state)++].value;
    }
    return -1;
}

static void find_states(state_check *c)
{
    for (size_t v = 0; v < c->plan->persistent.n; v++) c->state_of[v] = -1;
    for (int b = 0; b < (int)c->plan->bucket.n && c->plan->persistent.n; b++)
        for (int param = 0, state = 0, v; (v = next_state(c->plan, b, &param, &state)) >= 0;)
            c->state_of[v] = b;
}

/* True if a step's access to statistics is the first of a turn, in its space. */
static bool begins(const ech_step *step, const ech_value *value)
{
    if (value->kind == ECH_MEMORY_STATISTICS_ON_HOST)
        return step->kind == ECH_STEP_STATISTICS_ON_HOST && step->count == 0;
    return step->kind == ECH_STEP_FETCH_STATISTICS ||
           (step->kind == ECH_STEP_STATISTICS && step->count == 0);
}

static ech_status check_statistics(state_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    for (int i = 0; i < step->accesses && ech_step_has_bucket(step); i++) {
        int value = c->list->access.at[step->first_access + i].value;
        const ech_value *v = ech_plan_value(c->plan, c->list, value);
        if (v->kind != ECH_MEMORY_STATISTICS && v->kind != ECH_MEMORY_STATISTICS_ON_HOST) continue;
        int *of = &c->statistics[step->index * ECH_SPACES + (int)ech_memory_space(v->kind)];
        bool new = begins(step, v) && value > *of;
        if (new) *of = value;
        if (v->index != step->index || *of != value || (begins(step, v) && !new))
            return ECH_REJECT(c, s, "accesses statistics that are not its turn's of bucket %d",
                              step->index);
    }
    return ECH_OK;
}

/* ---- compressed gradients ---- */

/* The states that steps of a kind work on, one bit per role, and whether they work on factors.
 * Other kinds are not checked. */
typedef struct works_on {
    unsigned roles;
    bool factors;
} works_on;
enum { RESIDUALS = 1 << ECH_STATE_RESIDUAL, BASES = 1 << ECH_STATE_BASIS };
static const struct {
    bool is;
    works_on on;
} compressing[ECH_STEPS] = {
    [ECH_STEP_RESIDUAL] = {true, {RESIDUALS, false}},
    [ECH_STEP_TRANSFORM] = {true, {BASES, true}},
    [ECH_STEP_REDUCE_LEFT] = {true, {0, true}},
    [ECH_STEP_TRANSFORM_BACK] = {true, {0, true}},
    [ECH_STEP_REDUCE_RIGHT] = {true, {0, true}},
    [ECH_STEP_CHOOSE] = {true, {0, true}},
    [ECH_STEP_GATHER_CHOSEN] = {true, {0, true}},
    [ECH_STEP_DECOMPRESS] = {true, {RESIDUALS | BASES, true}},
};

/* It accesses these states of its bucket, and no others. */
static bool has_states(const state_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    const ech_bucket *bucket = &c->plan->bucket.at[step->index];
    for (int i = 0; i < bucket->params; i++) {
        const ech_plan_param *p =
            &c->plan->param[c->plan->bucket_param.at[bucket->first_param + i]];
        for (int k = 0; k < p->states; k++) {
            const ech_plan_state *state = &c->plan->state.at[p->first_state + k];
            bool wanted = compressing[step->kind].on.roles >> state->is.role & 1;
            if ((c->updated[state->value] == s + 1) != wanted) return false;
        }
    }
    return true;
}

/* TRANSFORM, or CHOOSE, begins a turn's. */
static ech_status check_factors(state_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool found = false;
    bool begins_them = step->kind == ECH_STEP_TRANSFORM || step->kind == ECH_STEP_CHOOSE;
    for (int i = 0; i < step->accesses && ech_step_has_bucket(step); i++) {
        int value = c->list->access.at[step->first_access + i].value;
        const ech_value *v = ech_plan_value(c->plan, c->list, value);
        if (v->kind != ECH_MEMORY_FACTORS) continue;
        int *of = &c->factors[step->index];
        bool new = begins_them &&value > *of;
        if (new) *of = value;
        if (v->index != step->index || *of != value || begins_them != new)
            return ECH_REJECT(c, s, "accesses factors that are not its turn's of bucket %d",
                              step->index);
        found = true;
    }
    bool normed = step->kind == ECH_STEP_NORM && c->factors[step->index];
    if (found != (compressing[step->kind].on.factors || normed))
        return ECH_REJECT(c, s, "%s factors", found ? "accesses" : "does not access its bucket's");
    if (compressing[step->kind].is && !has_states(c, s))
        return ECH_REJECT(c, s, "does not access just the states that it works on");
    return ECH_OK;
}

/* A bucket's steps access only its states, and its update all of them. */
static ech_status check_states(state_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    if (!ech_step_has_bucket(step) || !c->list->access.n) return ECH_OK;
    for (int i = 0; i < step->accesses; i++) {
        int value = c->list->access.at[step->first_access + i].value;
        if (value >= (int)c->plan->persistent.n || c->state_of[value] < 0) continue;
        if (c->state_of[value] != step->index)
            return ECH_REJECT(c, s, "accesses states of bucket %d", c->state_of[value]);
        c->updated[value] = s + 1;
    }
    for (int param = 0, state = 0, v; step->kind == ECH_STEP_UPDATE &&
                                      (v = next_state(c->plan, step->index, &param, &state)) >= 0;)
        if (c->updated[v] != s + 1)
            return ECH_REJECT(c, s, "does not access all states of its bucket");
    return ECH_OK;
}

/* ---- synchronization of replicas ---- */

/* For each parameter of the bucket: the anchor if it is trained, other states of synchronizations,
 * and the weights or their masters. */
static bool has_anchors(const ech_plan *plan, const ech_list *list, const ech_step *step,
                        bool writes)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    bool meets = list->kind != ECH_LIST_GOSSIP;
    if (!ech_step_accesses(list, step, bucket->weights, writes)) return false;
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        const ech_plan_param *p = &plan->param[param];
        bool anchored = plan->model->param.at[param].commit != NULL;
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

static ech_status check_meeting(const ech_plan *plan, const ech_list *list, int s)
{
    const ech_step *step = &list->step.at[s];
    bool moves = step->kind != ECH_STEP_DIFFERENCE && step->kind != ECH_STEP_NEIGHBOURS;
    if (!ech_step_has_bucket(step))
        return ech_list_reject(plan, list, s, "is none by which replicas meet");
    if (step->kind == ECH_STEP_REDUCE_GRADS || has_anchors(plan, list, step, moves)) return ECH_OK;
    return ech_list_reject(plan, list, s, "does not access what it works on");
}

ech_status ech_check_states(const ech_plan *plan, const ech_list *list)
{
    size_t values = plan->persistent.n, buckets = plan->bucket.n;
    ECH_FREED int *state_of = ech_calloc(values + 1, sizeof *state_of);
    ECH_FREED int *updated = ech_calloc(values + 1, sizeof *updated);
    ECH_FREED int *statistics = ech_calloc(buckets * ECH_SPACES + 1, sizeof *statistics);
    ECH_FREED int *factors = ech_calloc(buckets + 1, sizeof *factors);
    state_check c = {plan, list, state_of, updated, statistics, factors};
    find_states(&c);
    for (int s = 0; s < (int)list->step.n; s++) {
        ECH_TRY(ech_list_trains(list) ? check_states(&c, s) : check_meeting(plan, list, s));
        if (!list->access.n) continue;
        ECH_TRY(check_statistics(&c, s));
        if (ech_step_has_bucket(&list->step.at[s])) ECH_TRY(check_factors(&c, s));
    }
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks copies between spaces, which steps of the lanes for that make in pairs: a value that is read, and one that is written.
 * What a value holds is followed from copy to copy. So an update on the host works on what it is said to work on, and
 * what comes back is what has left.
 */
#include <stdlib.h>

#include "check/checker.h"

typedef struct copy_check {
    const ech_plan *plan;
    const ech_list *list;
    int *holds; /* [values] of which value a value is a copy, or it itself */
    int *
        left_as; /* [values] the value as which it comes back has left as this one; -1: it does not come back */
    bool *left; /* [values] it comes back, and there is a copy elsewhere: so it stays as it is */
    int *
        copied; /* [values] the value to which the host has it copied last, for an update; it itself: none yet */
    int *
        brought; /* [buckets] the value with the weights that the host has for the update; -1: none yet */
    int *
        updated; /* [buckets] the value with the weights that the last update on the host has made; -1: none yet */
} copy_check;

static const ech_access *access_at(const copy_check *c, const ech_step *step, int i)
{
    return &c->list->access.at[step->first_access + i];
}

static bool is_of_weights(ech_memory_kind kind)
{
    return kind == ECH_MEMORY_PARAMETERS || kind == ECH_MEMORY_PARAMETERS_ON_HOST ||
           kind == ECH_MEMORY_PARAMETERS_ON_DISK;
}

/* Whether what goes to a value is what the update has made of the weights or states that lie there,
 * or statistics that have come from there. */
static bool is_home(const copy_check *c, const ech_step *step, int from, int to)
{
    if (to == c->plan->bucket.at[step->index].weights) return from == c->updated[step->index];
    if (step->kind == ECH_STEP_OFFLOAD_STATES) return from == c->copied[to];
    return c->holds[from] == to;
}

static ech_status check_pair(copy_check *c, int s, const ech_access *from, const ech_access *to)
{
    const ech_step *step = &c->list->step.at[s];
    int held = c->holds[from->value], persistent = (int)c->plan->persistent.n;
    const ech_value *of = ech_plan_value(c->plan, c->list, held);
    ech_memory_kind kind = ech_plan_value(c->plan, c->list, to->value)->kind;
    bool weights = kind == ECH_MEMORY_PARAMETERS; /* the next go where they have come from: */
    bool home = step->kind == ECH_STEP_OFFLOAD_STATES || step->kind == ECH_STEP_OFFLOAD_STATISTICS;
    /* What has met; the update's old ones go for it. */
    bool returns = step->kind == ECH_STEP_OFFLOAD_WEIGHTS && c->plan->weights != ECH_SPACE_DEVICE;
    if (from->write || !to->write)
        return ech_list_reject(c->plan, c->list, s, "does not read a value and write another");
    if ((weights && ech_step_has_bucket(step) && from->value != c->updated[step->index]) ||
        (home && !is_home(c, step, from->value, to->value)) ||
        (returns && to->value != c->updated[step->index]) ||
        (c->left_as[to->value] >= 0 && held != c->holds[c->left_as[to->value]]))
        return ech_list_reject(c->plan, c->list, s, "brings back another value than has left");
    if (is_of_weights(of->kind) && is_of_weights(kind) &&
        of->index != ech_plan_value(c->plan, c->list, to->value)->index)
        return ech_list_reject(c->plan, c->list, s, "brings weights of bucket %d", of->index);
    if (kind == ECH_MEMORY_GRADIENTS) held = to->value; /* blocks add to what comes back */
    if (to->value >= persistent) c->holds[to->value] = held;
    bool for_update =
        ech_step_has_bucket(step) && !returns && ech_memory_space(kind) == ECH_SPACE_HOST;
    if (for_update) c->copied[held] = to->value;
    if (for_update && is_of_weights(of->kind)) c->brought[step->index] = to->value;
    if (from->value >= persistent && c->list->value.at[from->value - persistent].returned)
        c->left[from->value] = true;
    return ECH_OK;
}

/* Where they are kept; or what the update makes of masters; or a copy. */
static bool are_weights(const copy_check *c, const ech_bucket *bucket, int index, int value)
{
    int held = c->holds[value];
    const ech_value *of = ech_plan_value(c->plan, c->list, held);
    if (c->plan->weights == ECH_SPACE_HOST) return value == bucket->weights;
    if (of->index != index) return false;
    return ech_plan_has_masters(c->plan, bucket)
               ? held == value && held >= (int)c->plan->persistent.n
               : value == c->brought[index];
}

/* What is updated on the host, or what statistics are of: gradients, weights and states of its
 * bucket. */
static ech_status check_update(copy_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    const ech_bucket *bucket = &c->plan->bucket.at[step->index];
    struct ech_on_host on_host = ech_list_update_values(c->plan, c->list, step);
    bool right =
        on_host.gradients == c->copied[ech_list_summed(c->plan, c->list, step->index, step->turn)];
    if (on_host.weights >= 0) right &= are_weights(c, bucket, step->index, on_host.weights);
    for (int i = 0; i < bucket->state_values; i++)
        right &= c->list->access.at[on_host.first_state + i].value ==
                 c->copied[c->plan->state_value.at[bucket->first_state_value + i].value];
    if (step->kind == ECH_STEP_UPDATE_ON_HOST) c->updated[step->index] = on_host.weights;
    if (right) return ECH_OK;
    return ech_list_reject(c->plan, c->list, s,
                           "does not work on gradients, weights and states of bucket %d",
                           step->index);
}

static ech_status check_step(copy_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool copies = (step->lane == ECH_LANE_COPY_IN || step->lane == ECH_LANE_COPY_OUT) &&
                  step->kind != ECH_STEP_SNAPSHOT; /* which reads all, and then writes */
    if (step->kind == ECH_STEP_UPDATE_ON_HOST || step->kind == ECH_STEP_STATISTICS_ON_HOST)
        return check_update(c, s);
    for (int i = 0; i + 1 < step->accesses && copies; i += 2)
        ECH_TRY(check_pair(c, s, access_at(c, step, i), access_at(c, step, i + 1)));
    for (int i = 0; i < step->accesses && !copies; i++)
        if (access_at(c, step, i)->write && c->left[access_at(c, step, i)->value])
            return ech_list_reject(c->plan, c->list, s, "writes what has been copied elsewhere");
    return ECH_OK;
}

static void begin(copy_check *c)
{
    int persistent = (int)c->plan->persistent.n, values = persistent + (int)c->list->value.n;
    for (int v = 0; v < values; v++) {
        c->holds[v] = c->copied[v] = v;
        c->left_as[v] = -1;
    }
    for (int v = persistent; v < values; v++) {
        int returned = c->list->value.at[v - persistent].returned;
        if (returned) c->left_as[returned] = v;
    }
    for (size_t b = 0; b < c->plan->bucket.n; b++) c->updated[b] = c->brought[b] = -1;
}

ech_status ech_check_copies(const ech_plan *plan, const ech_list *list)
{
    size_t values = plan->persistent.n + list->value.n;
    copy_check c = {.plan = plan,
                    .list = list,
                    .holds = ech_calloc(values + 1, sizeof *c.holds),
                    .left_as = ech_calloc(values + 1, sizeof *c.left_as),
                    .left = ech_calloc(values + 1, sizeof *c.left),
                    .copied = ech_calloc(values + 1, sizeof *c.copied),
                    .brought = ech_calloc(plan->bucket.n + 1, sizeof *c.brought),
                    .updated = ech_calloc(plan->bucket.n + 1, sizeof *c.updated)};
    ech_status status = ECH_OK;
    begin(&c);
    for (int s = 0; s < (int)list->step.n && status == ECH_OK && list->access.n; s++)
        status = check_step(&c, s);
    free(c.holds);
    free(c.left_as);
    free(c.left);
    free(c.updated);
    free(c.brought);
    free(c.copied);
    return status;
}

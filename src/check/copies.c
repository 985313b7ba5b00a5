/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks copies between spaces. Steps of the copy lanes make them in pairs: one value is read, one
 * is written. The content of a value, including its piece of a bucket, is tracked from copy to
 * copy. So an update on the host works on the intended data, and the data that returns is the data
 * that left.
 */
#include "check/checker.h"
#include "schedule/operands.h"
#include "schedule/states.h"

typedef struct copy_check {
    const ech_plan *plan;
    const ech_list *list;
    int *holds; /* [values] the value that it is a copy of, or itself */
    /* [values] the value that returns as this one has left as another; -1: it does not return */
    int *left_as;
    bool *left; /* [values] it returns, and there is a copy elsewhere: so it must not change */
    /* [values] the turn in which it was copied to the host for an update, + 1; 0: none */
    int *turn;
    int *piece; /* [values] its piece of a bucket, as in ech_step.count */
    int *first; /* [buckets + 1] */
    /* [first[bucket] + piece] the value with the weights that a piece's last update on the host has
     * made; -1: none yet */
    int *updated;
} copy_check;

/* For the step's piece. */
static int *updated_of(const copy_check *c, const ech_step *step)
{
    int piece = ech_step_piece(step);
    return &c->updated[c->first[step->index] + (piece ? piece - 1 : 0)];
}

static const ech_access *access_at(const copy_check *c, const ech_step *step, int i)
{
    return &c->list->access.at[step->first_access + i];
}

static bool is_of_weights(ech_memory_kind kind)
{
    return kind == ECH_MEMORY_PARAMETERS || kind == ECH_MEMORY_PARAMETERS_ON_HOST ||
           kind == ECH_MEMORY_PARAMETERS_ON_DISK;
}

/* True if the value is a copy for the step's turn of a piece; 0: of a value that is not cut. */
static bool is_copy(const copy_check *c, const ech_step *step, int value, int piece)
{
    return c->turn[value] == step->turn + 1 && c->piece[value] == piece;
}

/* The piece of the copy of a state that the step works on: the first if the state is not
 * element-wise, since all pieces share that copy. */
static int piece_of_state(const copy_check *c, const ech_step *step, int state)
{
    const ech_bucket *bucket = &c->plan->bucket.at[step->index];
    if (bucket->pieces == 1) return 0;
    for (int i = 0; i < bucket->states; i++)
        if (c->plan->state_value.at[bucket->first_state_value + i] == state)
            return ech_step_piece(step);
    return 1;
}

/* True if the data written to a value came from there, states in this turn, or are the update's
 * result for the weights stored there. */
static bool is_home(const copy_check *c, const ech_step *step, int from, int to)
{
    bool states = step->kind == ECH_STEP_OFFLOAD_STATES;
    if (to == c->plan->bucket.at[step->index].weights) return from == *updated_of(c, step);
    return c->holds[from] == to && (!states || is_copy(c, step, from, piece_of_state(c, step, to)));
}

static ech_status check_pair(copy_check *c, int s, const ech_access *from, const ech_access *to)
{
    const ech_step *step = &c->list->step.at[s];
    int held = c->holds[from->value], persistent = (int)c->plan->persistent.n;
    const ech_value *of = ech_plan_value(c->plan, c->list, held);
    ech_memory_kind kind = ech_plan_value(c->plan, c->list, to->value)->kind;
    /* the next weights go where the old ones came from: */
    bool weights = kind == ECH_MEMORY_PARAMETERS;
    bool home = step->kind == ECH_STEP_OFFLOAD_STATES || step->kind == ECH_STEP_OFFLOAD_STATISTICS;
    /* Gathered weights; the update's old ones are dropped for them. */
    bool returns = step->kind == ECH_STEP_OFFLOAD_WEIGHTS && c->plan->weights != ECH_SPACE_DEVICE;
    if (from->write || !to->write)
        return ECH_REJECT(c, s, "does not read a value and write another");
    if ((weights && ech_step_has_bucket(step) && from->value != *updated_of(c, step)) ||
        (home && !is_home(c, step, from->value, to->value)) ||
        (returns && to->value != *updated_of(c, step)) ||
        (c->left_as[to->value] >= 0 && held != c->holds[c->left_as[to->value]]))
        return ECH_REJECT(c, s, "brings back another value than has left");
    if (is_of_weights(of->kind) && is_of_weights(kind) &&
        of->index != ech_plan_value(c->plan, c->list, to->value)->index)
        return ECH_REJECT(c, s, "brings weights of bucket %d", of->index);
    if (kind == ECH_MEMORY_GRADIENTS) held = to->value; /* blocks add to the returned value */
    if (to->value >= persistent) c->holds[to->value] = held;
    bool for_update =
        ech_step_has_bucket(step) && !returns && ech_memory_space(kind) == ECH_SPACE_HOST;
    if (for_update) c->turn[to->value] = step->turn + 1;
    if (for_update) c->piece[to->value] = ech_step_piece(step);
    if (from->value >= persistent && c->list->value.at[from->value - persistent].returned)
        c->left[from->value] = true;
    return ECH_OK;
}

/* True for stored weights, weights that the update makes from masters, or a copy. */
static bool are_weights(const copy_check *c, const ech_step *step, int value)
{
    const ech_bucket *bucket = &c->plan->bucket.at[step->index];
    int held = c->holds[value];
    const ech_value *of = ech_plan_value(c->plan, c->list, held);
    if (c->plan->weights == ECH_SPACE_HOST) return value == bucket->weights;
    if (of->index != step->index) return false;
    return ech_plan_has_masters(c->plan, bucket)
               ? held == value && held >= (int)c->plan->persistent.n
               : is_of_weights(of->kind) && is_copy(c, step, value, ech_step_piece(step));
}

/* True for the stored state, if the host can access it, or a copy. */
static bool is_state(const copy_check *c, const ech_step *step, int value, int state)
{
    ech_memory_kind kind = ech_plan_value(c->plan, c->list, state)->kind;
    if (ech_memory_space(kind) == ECH_SPACE_HOST) return value == state;
    return c->holds[value] == state && is_copy(c, step, value, piece_of_state(c, step, state));
}

/* Checks the operands of an update, or of statistics, on the host: gradients, weights and states of
 * its bucket. */
static ech_status check_update(copy_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    const ech_bucket *bucket = &c->plan->bucket.at[step->index];
    int gradients = ech_step_uses(c->list, step, ECH_USE_SUM, 0);
    int weights = ech_step_uses(c->list, step, ECH_USE_WEIGHTS, 0);
    int summed = ech_list_summed(c->plan, c->list, step->index, step->turn);
    bool right = c->holds[gradients] == summed && is_copy(c, step, gradients, 0);
    if (weights >= 0) right &= are_weights(c, step, weights);
    for (int i = 0; i < bucket->state_values; i++) {
        int use = ech_step_state_use(c->plan, step, i);
        right &= use < 0 || is_state(c, step, ech_step_uses(c->list, step, ECH_USE_STATE, use),
                                     c->plan->state_value.at[bucket->first_state_value + i]);
    }
    if (step->kind == ECH_STEP_UPDATE_ON_HOST) *updated_of(c, step) = weights;
    if (right) return ECH_OK;
    return ECH_REJECT(c, s, "does not work on gradients, weights and states of bucket %d",
                      step->index);
}

static ech_status check_step(copy_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool copies = (step->lane == ECH_LANE_COPY_IN || step->lane == ECH_LANE_COPY_OUT) &&
                  step->kind != ECH_STEP_LOAD &&   /* which gathers */
                  step->kind != ECH_STEP_SNAPSHOT; /* which reads all, and then writes */
    if (step->kind == ECH_STEP_UPDATE_ON_HOST || step->kind == ECH_STEP_STATISTICS_ON_HOST)
        return check_update(c, s);
    for (int i = 0; i + 1 < step->accesses && copies; i += 2)
        ECH_TRY(check_pair(c, s, access_at(c, step, i), access_at(c, step, i + 1)));
    for (int i = 0; i < step->accesses && !copies; i++)
        if (access_at(c, step, i)->write && c->left[access_at(c, step, i)->value])
            return ECH_REJECT(c, s, "writes what has been copied elsewhere");
    return ECH_OK;
}

static void begin(copy_check *c)
{
    int persistent = (int)c->plan->persistent.n, values = persistent + (int)c->list->value.n;
    for (int v = 0; v < values; v++) {
        c->holds[v] = v;
        c->left_as[v] = -1;
    }
    for (int v = persistent; v < values; v++) {
        int returned = c->list->value.at[v - persistent].returned;
        if (returned) c->left_as[returned] = v;
    }
}

/* [buckets + 1]: number of the pieces of all buckets before each. */
static int *find_pieces(const ech_plan *plan)
{
    int *first = ech_calloc(plan->bucket.n + 1, sizeof *first);
    for (size_t b = 0; b < plan->bucket.n; b++) first[b + 1] = first[b] + plan->bucket.at[b].pieces;
    return first;
}

ech_status ech_check_copies(const ech_plan *plan, const ech_list *list)
{
    size_t values = plan->persistent.n + list->value.n;
    if (!list->access.n) return ECH_OK;
    ECH_FREED int *holds = ech_calloc(values + 1, sizeof *holds);
    ECH_FREED int *left_as = ech_calloc(values + 1, sizeof *left_as);
    ECH_FREED bool *left = ech_calloc(values + 1, sizeof *left);
    ECH_FREED int *turn = ech_calloc(values + 1, sizeof *turn);
    ECH_FREED int *piece = ech_calloc(values + 1, sizeof *piece);
    ECH_FREED int *first = find_pieces(plan), *updated = NULL;
    size_t pieces = (size_t)first[plan->bucket.n];
    updated = ech_calloc(pieces + 1, sizeof *updated);
    for (size_t i = 0; i < pieces; i++) updated[i] = -1;
    copy_check c = {plan, list, holds, left_as, left, turn, piece, first, updated};
    begin(&c);
    for (int s = 0; s < (int)list->step.n; s++) ECH_TRY(check_step(&c, s));
    return ECH_OK;
}

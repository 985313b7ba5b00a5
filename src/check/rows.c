/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the row lists of tables, which lock-free ranks use; layout and model decide which tables
 * have lists. A turn's list is complete before its rows are pulled, before calls look up rows or
 * add to their gradients, before their squares are summed and before their updates are added, and
 * stays until then. Gradients of all rows are zero when a span begins, and gradients of a turn's
 * list are zero after its update was added.
 *
 * check/buckets.c checks the order of a bucket's steps, and check/versions.c that a turn's rows are
 * pulled before it reads them.
 */
#include "check/promise.h"
#include "schedule/operands.h"

typedef struct rows_check {
    const ech_plan *plan;
    const ech_list *list;
    int *there; /* [2 * buckets] the turn whose list is in a place, + 1 */
    int *added; /* [buckets] turns */
} rows_check;

static bool is_listed(const ech_plan *plan, int index)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    return bucket->params == 1 &&
           ech_model_looks_up(plan->model, plan->bucket_param.at[bucket->first_param]);
}

static ech_status expect_access(const rows_check *c, int s, int bucket, int value, bool write,
                                const char *what)
{
    const ech_step *step = &c->list->step.at[s];
    if (!ech_list_has_accesses(c->plan, c->list)) return ECH_OK;
    if (ech_step_accesses(c->list, step, value, write)) return ECH_OK;
    return ECH_REJECT(c, s, "does not access %s of bucket %d", what, bucket);
}

static ech_status make_list(rows_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    int *there = &c->there[2 * step->index + step->turn % 2];
    if (*there > c->added[step->index])
        return ECH_REJECT(c, s, "comes before the rows of turn %d are added", *there - 1);
    *there = step->turn + 1;
    const ech_bucket *bucket = &c->plan->bucket.at[step->index];
    return expect_access(c, s, step->index, ech_bucket_rows(bucket, step->turn), true,
                         "the turn's list");
}

static ech_status use_list_of(const rows_check *c, int s, int index, int turn)
{
    if (c->there[2 * index + turn % 2] != turn + 1)
        return ECH_REJECT(c, s, "does not know the rows of turn %d", turn);
    const ech_bucket *bucket = &c->plan->bucket.at[index];
    return expect_access(c, s, index, ech_bucket_rows(bucket, turn), false, "the turn's list");
}

static ech_status use_list(const rows_check *c, int s, int turn)
{
    return use_list_of(c, s, c->list->step.at[s].index, turn);
}

/* Calls that look up rows find them by the turn's list. */
static ech_status check_calls(const rows_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    for (int call = step->first_call; call < step->first_call + step->calls; call++) {
        int bucket = ech_list_rows_of(c->plan, c->list, step, call);
        if (bucket >= 0) ECH_TRY(use_list_of(c, s, bucket, step->turn));
    }
    return ECH_OK;
}

static ech_status expect_zeros(const rows_check *c, int s)
{
    int index = c->list->step.at[s].index,
        gradients = c->list->summed ? c->list->summed[index] : -1;
    return expect_access(c, s, index, gradients, true, "the gradients");
}

static ech_status check_step(rows_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    if (step->kind == ECH_STEP_LIST_ROWS) return make_list(c, s);
    if (step->kind == ECH_STEP_OFFER) return expect_zeros(c, s);
    if (step->kind == ECH_STEP_NORM) return use_list(c, s, step->turn);
    if (step->kind == ECH_STEP_PULL && step->version < c->list->turns)
        return use_list(c, s, step->version);
    if (step->kind != ECH_STEP_ADD) return ECH_OK;
    c->added[step->index] = step->turn + 1;
    ECH_TRY(use_list(c, s, step->turn));
    return expect_zeros(c, s);
}

ech_status ech_check_rows(const ech_plan *plan, const ech_list *list)
{
    if (ech_protocol_promise_of(plan)->update != ECH_STEP_ADD) return ECH_OK;
    ECH_FREED int *there = ech_calloc(2 * plan->bucket.n + 1, sizeof *there);
    ECH_FREED int *added = ech_calloc(plan->bucket.n + 1, sizeof *added);
    rows_check c = {plan, list, there, added};
    for (int s = 0; s < (int)list->step.n; s++) {
        if (list->step.at[s].block >= 0 && list->step.at[s].calls > 0) ECH_TRY(check_calls(&c, s));
        int index = list->step.at[s].index;
        bool of_bucket = ech_step_has_bucket(&list->step.at[s]) ||
                         list->step.at[s].kind == ECH_STEP_OFFER ||
                         list->step.at[s].kind == ECH_STEP_LIST_ROWS;
        bool is_one = of_bucket && index >= 0 && index < (int)plan->bucket.n;
        if (is_one && is_listed(plan, index)) ECH_TRY(check_step(&c, s));
    }
    return ECH_OK;
}

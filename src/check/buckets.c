/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks gradients: each parameter of the rank's blocks is in one
 * bucket, and in every turn each bucket is written by all its writers, then reduced once (if its group
 * has more than one member), then normed, then used for one update. Who writes is asked of the
 * model, and of the accesses where the list has them.
 */
#include <stdlib.h>

#include "check/checker.h"

typedef struct bucket_state {
    int turn;                 /* that it is in: updates so far */
    int writer, reduce, norm; /* the last step of this turn that did, or -1 */
    bool shared;
} bucket_state;

typedef struct audit {
    const ech_plan *plan;
    const ech_list *list;
    bucket_state *bucket;
    int reduce_knows;  /* the latest compute step that is complete when a reduction begins now */
    int compute_knows; /* the latest reduction that is complete when a compute step begins now */
} audit;

/* ---- parameters ---- */

/* used[param]: a block of this rank has it. */
static void find_used(const ech_plan *plan, bool *used)
{
    for (int chunk = 0; chunk < plan->layout->chunks; chunk++) {
        int first, end;
        ech_layout_blocks(plan->layout, plan->rank, chunk, &first, &end);
        for (int b = first; b < end; b++) {
            const ech_block *block = plan->model->block.at[b];
            for (size_t n = 0; n < block->node.n; n++)
                for (int i = 0; i < block->node.at[n].params; i++)
                    used[block->node.at[n].param[i]] = true;
        }
    }
}

static ech_status check_params(const ech_plan *plan)
{
    size_t params = plan->model->param.n;
    bool *used = ech_calloc(params, sizeof *used);
    int *found = ech_calloc(params, sizeof *found), wrong = -1;
    find_used(plan, used);
    for (size_t i = 0; i < plan->bucket_param.n; i++) found[plan->bucket_param.at[i]]++;
    for (size_t p = 0; p < params && wrong < 0; p++)
        if (found[p] != used[p] || used[p] != (plan->param[p].elements > 0)) wrong = (int)p;
    int count = wrong < 0 ? 0 : found[wrong];
    bool mine = wrong >= 0 && used[wrong];
    free(used);
    free(found);
    if (wrong < 0) return ECH_OK;
    ECH_FAIL(ECH_EINTERNAL,
             "schedule check, rank %d: %s is in %d buckets, with %lld elements, and %s of this "
             "rank's blocks uses it",
             plan->rank, plan->model->param.at[wrong].name, count,
             (long long)plan->param[wrong].elements, mine ? "one" : "none");
}

/* ---- steps ---- */

static ech_status reject(const audit *a, int s, const char *why)
{
    return ech_list_reject(a->plan, a->list, s, "%s", why);
}

static ech_status write_bucket(audit *a, int s, int bucket)
{
    bucket_state *b = &a->bucket[bucket];
    if (b->reduce >= 0 || b->norm >= 0)
        return reject(a, s, "writes a gradient after its reduction");
    if (a->list->step.at[s].turn != b->turn)
        return ech_list_reject(
            a->plan, a->list, s,
            "writes a gradient of bucket %d in turn %d; the bucket is in turn %d", bucket,
            a->list->step.at[s].turn, b->turn);
    b->writer = s;
    return ECH_OK;
}

static ech_status write_by_model(audit *a, int s)
{
    const ech_step *step = &a->list->step.at[s];
    int phase = ech_step_kind_phase(step->kind);
    if (phase <= ECH_FORWARD) return ECH_OK;
    const ech_block *block = a->plan->model->block.at[step->block];
    for (int c = step->first_call; c < step->first_call + step->calls; c++) {
        const ech_block_call *call = &block->program[phase].at[c];
        for (const ech_operand *o = NULL; (o = ech_call_next(block, call, ECH_TRAIN, o));)
            if (o->port == ECH_PORT_DPARAM)
                ECH_TRY(write_bucket(a, s, a->plan->param[o->value].bucket));
    }
    return ECH_OK;
}

static ech_status write_by_access(audit *a, int s)
{
    const ech_step *step = &a->list->step.at[s];
    bool sums = ech_step_params(step) == ECH_PARAMS_SUM;
    for (int i = 0; i < step->accesses && !sums; i++) {
        const ech_access *access = &a->list->access.at[step->first_access + i];
        int value = access->value - (int)a->plan->persistent.n;
        if (access->write && value >= 0 && a->list->value.at[value].kind == ECH_MEMORY_GRADIENTS)
            ECH_TRY(write_bucket(a, s, a->list->value.at[value].index));
    }
    return ECH_OK;
}

static ech_status reduce(audit *a, int s, bucket_state *b)
{
    if (b->reduce >= 0) return reject(a, s, "reduces a bucket a second time");
    if (b->norm >= 0) return reject(a, s, "reduces a bucket after its norm");
    if (b->writer < 0) return reject(a, s, "reduces a bucket that nothing has written");
    if (a->reduce_knows < b->writer) return reject(a, s, "does not wait for the gradients");
    b->reduce = s;
    return ECH_OK;
}

static ech_status norm(audit *a, int s, bucket_state *b)
{
    if (b->norm >= 0) return reject(a, s, "is the bucket's second norm");
    if (b->writer < 0) return reject(a, s, "reads a bucket that nothing has written");
    if (b->shared && (b->reduce < 0 || a->compute_knows < b->reduce))
        return reject(a, s, "does not wait for the reduction");
    b->norm = s;
    return ECH_OK;
}

static ech_status update(audit *a, int s, bucket_state *b)
{
    if (b->norm < 0) return reject(a, s, "is not the one update after the norm");
    *b = (bucket_state){
        .turn = b->turn + 1, .writer = -1, .reduce = -1, .norm = -1, .shared = b->shared};
    return ECH_OK;
}

static ech_status use_bucket(audit *a, int s)
{
    const ech_step *step = &a->list->step.at[s];
    if (!ech_step_has_bucket(step)) return ECH_OK;
    if (step->index < 0 || step->index >= (int)a->plan->bucket.n)
        return reject(a, s, "is of a bucket that this rank does not have");
    bucket_state *b = &a->bucket[step->index];
    if (step->turn != b->turn)
        return ech_list_reject(a->plan, a->list, s, "is of turn %d; its bucket is in turn %d",
                               step->turn, b->turn);
    switch (ech_step_params(step)) {
    case ECH_PARAMS_SUM:
        return reduce(a, s, b);
    case ECH_PARAMS_NORM:
        return norm(a, s, b);
    case ECH_PARAMS_UPDATE:
        return update(a, s, b);
    case ECH_PARAMS_COPY: /* is of weights: check/versions.c */
    case ECH_PARAMS_NOTHING:
    case ECH_PARAMS_READ:
        break;
    }
    return ECH_OK;
}

/* Both lanes end their steps in order: who knows of one step knows of those before it. */
static void learn(audit *a, const ech_step *step)
{
    for (int i = 0; i < step->afters; i++) {
        int after = a->list->after.at[step->first_after + i];
        ech_lane lane = a->list->step.at[after].lane;
        if (step->lane == ECH_LANE_REDUCE && lane == ECH_LANE_COMPUTE && after > a->reduce_knows)
            a->reduce_knows = after;
        if (step->lane == ECH_LANE_COMPUTE && lane == ECH_LANE_REDUCE && after > a->compute_knows)
            a->compute_knows = after;
    }
}

static ech_status check_steps(audit *a)
{
    for (int s = 0; s < (int)a->list->step.n; s++) {
        learn(a, &a->list->step.at[s]);
        ECH_TRY(write_by_model(a, s));
        ECH_TRY(write_by_access(a, s));
        ECH_TRY(use_bucket(a, s));
    }
    for (size_t b = 0; b < a->plan->bucket.n; b++)
        if (a->bucket[b].turn != a->list->turns || a->bucket[b].writer >= 0)
            return ech_list_reject(a->plan, a->list, (int)a->list->step.n - 1,
                                   "ends a list without every update: bucket %zu had %d of %d", b,
                                   a->bucket[b].turn, a->list->turns);
    return ECH_OK;
}

ech_status ech_check_buckets(const ech_plan *plan, const ech_list *list)
{
    ECH_TRY(check_params(plan));
    audit a = {.plan = plan,
               .list = list,
               .bucket = ech_calloc(plan->bucket.n, sizeof *a.bucket),
               .reduce_knows = -1,
               .compute_knows = -1};
    for (size_t b = 0; b < plan->bucket.n; b++) {
        ech_layout_group group = plan->bucket.at[b].group;
        a.bucket[b] = (bucket_state){.writer = -1, .reduce = -1, .norm = -1};
        a.bucket[b].shared =
            ech_layout_group_size(plan->layout, plan->model, plan->rank, group) > 1;
    }
    ech_status status = check_steps(&a);
    free(a.bucket);
    return status;
}

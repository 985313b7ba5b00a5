/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks gradients: each parameter of the rank's blocks is in one
 * bucket, and in every turn each bucket is written by all its writers, then reduced once (if its group
 * has more than one member), then normed, then used for one update. Who writes is asked of the
 * model, and of the accesses where the list has them. Before the update come all rounds of the optimizer's statistics;
 * each reads what the one before has folded.
 */
#include <stdlib.h>

#include "check/checker.h"

typedef struct bucket_state {
    int turn;                 /* that it is in: updates so far */
    int writer, reduce, norm; /* the last step of this turn that did, or -1 */
    int round, fold;          /* the last STATISTICS and FOLD, or -1 */
    int rounds;               /* STATISTICS so far */
    bool shared;
} bucket_state;

/* A bucket's state at the beginning of a turn. */
static bucket_state fresh(int turn, bool shared)
{
    return (bucket_state){.turn = turn,
                          .writer = -1,
                          .reduce = -1,
                          .norm = -1,
                          .round = -1,
                          .fold = -1,
                          .shared = shared};
}

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

/* ---- statistics ---- */

/* How many rounds the parameters of a bucket declare; *folds: whether ranks must fold what round `round` makes. */
static int count_rounds(const ech_plan *plan, int index, int round, bool *folds)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    int rounds = 0;
    *folds = false;
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        const ech_plan_param *p = &plan->param[param];
        const ech_shape *shape = &plan->model->param.at[param].shape;
        for (int k = 0; k < p->statistics; k++) {
            const ech_statistic *s = &plan->statistic.at[p->first_statistic + k].is;
            if (s->round >= rounds) rounds = s->round + 1;
            for (int d = 0; d < shape->dims; d++)
                *folds |= s->round == round && s->over >> d & 1u &&
                          ech_axis_shards(shape->axis[d], plan->layout->sharding) > 1;
        }
    }
    return rounds;
}

/* Whether what the last round has made is complete when a compute step begins now. */
static bool is_folded(const audit *a, int index, const bucket_state *b)
{
    bool folds;
    count_rounds(a->plan, index, b->rounds - 1, &folds);
    return !folds || (b->fold > b->round && a->compute_knows >= b->fold);
}

static ech_status compute_statistics(audit *a, int s, bucket_state *b)
{
    const ech_step *step = &a->list->step.at[s];
    if (b->norm < 0) return reject(a, s, "comes before the norm");
    if (step->count != b->rounds) return reject(a, s, "is not the next round");
    if (!is_folded(a, step->index, b)) return reject(a, s, "does not wait for the fold");
    b->round = s;
    b->rounds++;
    return ECH_OK;
}

static ech_status fold(audit *a, int s, bucket_state *b)
{
    const ech_step *step = &a->list->step.at[s];
    bool folds;
    count_rounds(a->plan, step->index, step->count, &folds);
    if (!folds || step->count != b->rounds - 1 || b->fold > b->round)
        return reject(a, s, "folds what is not to be folded now");
    if (a->reduce_knows < b->round) return reject(a, s, "does not wait for the statistics");
    b->fold = s;
    return ECH_OK;
}

static ech_status update(audit *a, int s, bucket_state *b)
{
    int index = a->list->step.at[s].index;
    bool folds;
    if (b->norm < 0) return reject(a, s, "is not the one update after the norm");
    if (b->rounds != count_rounds(a->plan, index, 0, &folds))
        return reject(a, s, "comes before all statistics");
    if (!is_folded(a, index, b)) return reject(a, s, "does not wait for the fold");
    *b = fresh(b->turn + 1, b->shared);
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
    case ECH_PARAMS_STATISTICS:
        return compute_statistics(a, s, b);
    case ECH_PARAMS_FOLD:
        return fold(a, s, b);
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
        a.bucket[b] =
            fresh(0, ech_layout_group_size(plan->layout, plan->model, plan->rank, group) > 1);
    }
    ech_status status = check_steps(&a);
    free(a.bucket);
    return status;
}

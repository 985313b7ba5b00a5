/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of promises.def, and what they say of a bucket.
 */
#include "check/promise.h"

#include <stdlib.h>

#include "base/log.h"

#define F(name) (ech_facts) ECH_FACT_##name

static const ech_protocol_promise promises[ECH_PROTOCOLS] = {
#define X(protocol, adds, updates, norms, update, spread, meets)                                   \
    [ECH_PROTOCOL_##protocol] = {ECH_ADDS_##adds,    ECH_UPDATES_##updates, ECH_NORMS_##norms,     \
                                 ECH_STEP_##update,  ECH_STEP_##spread,     ECH_MEETS_##meets},
#include "check/promises.def"
};

const ech_protocol_promise *ech_protocol_promise_of(const ech_plan *plan)
{
    return &promises[plan->layout->protocol];
}

bool ech_promise_is_served(const ech_plan *plan)
{
    return ech_protocol_promise_of(plan)->updates == ECH_UPDATES_SERVER &&
           !ech_layout_serves(plan->layout, plan->rank);
}

/* ---- who adds ---- */

/* Whether the two ranks' coordinates agree but along these axes of the mesh. Stages are left out:
 * all that hold a parameter add to its gradient. */
static bool agree_but_along(const ech_layout *layout, int a, int b, ech_mesh axes)
{
    const ech_coordinates *x = &layout->coordinates[a], *y = &layout->coordinates[b];
    ech_expert_span in = ech_layout_expert_span(layout);
    int alike = layout->tensor / ech_axis_shards(ECH_AXIS_KV_HEADS, layout->sharding);
    return (axes & ECH_MESH_DATA_OUTER || x->data / in.data == y->data / in.data) &&
           (axes & ECH_MESH_DATA_INNER || x->data % in.data == y->data % in.data) &&
           (axes & ECH_MESH_CONTEXT_OUTER || x->context / in.context == y->context / in.context) &&
           (axes & ECH_MESH_CONTEXT_INNER || x->context % in.context == y->context % in.context) &&
           (axes & ECH_MESH_KEY_VALUE || x->tensor / alike == y->tensor / alike) &&
           (axes & ECH_MESH_QUERY || x->tensor % alike == y->tensor % alike);
}

/* Whether `other` is one of those who sum gradients of the parameter with the plan's rank: who adds
 * to them, and servers, which have their sum. */
static bool sums(const ech_plan *plan, int param, int other)
{
    const ech_layout *layout = plan->layout;
    const ech_protocol_promise *of = ech_protocol_promise_of(plan);
    int rank = ech_layout_pattern(layout, plan->rank);
    if (ech_layout_serves(layout, other)) return true;
    if (of->adds == ECH_ADDS_PUSH) return other == rank;
    ech_mesh axes = plan->model->param.at[param].addends;
    if (of->adds == ECH_ADDS_OWN) axes &= ~(ech_mesh)ECH_MESH_DATA;
    return ech_layout_holds(layout, other, param) && agree_but_along(layout, rank, other, axes);
}

static ech_status check_members(const ech_plan *plan, int index, int param)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    ECH_FREED int *member = ech_calloc((size_t)plan->layout->world + 1, sizeof *member);
    int n = ech_layout_members(plan->layout, plan->model, plan->rank, bucket->group, member), i = 0;
    for (int rank = 0; rank < plan->layout->world; rank++) {
        bool is_member = i < n && member[i] == rank;
        i += is_member;
        if (is_member == sums(plan, param, rank)) continue;
        ECH_FAIL(ECH_EINTERNAL,
                 "schedule check, rank %d: bucket %d is summed over %s, %s rank %d, which %s to %s",
                 plan->rank, index, ech_layout_group_name(bucket->group),
                 is_member ? "with" : "without", rank, is_member ? "does not add" : "adds",
                 plan->model->param.at[param].name);
    }
    return ECH_OK;
}

/* Of parameters that declare the same, whose stages hold both, one is enough. seen: of each group the last such one, + 1. */
static ech_status check_group(const ech_plan *plan, int index, int *seen)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    int *last = &seen[bucket->group];
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i], from[2] = {0}, to[2] = {0};
        for (int k = 0; k < 2 && *last; k++)
            ech_layout_stages_of_param(plan->layout, k ? param : *last - 1, 0, &from[k], &to[k]);
        ech_mesh axes = plan->model->param.at[param].addends;
        bool same = *last && from[0] == from[1] && to[0] == to[1] &&
                    plan->model->param.at[*last - 1].addends == axes;
        if (!same) ECH_TRY(check_members(plan, index, param));
        *last = param + 1;
    }
    return ECH_OK;
}

/* ---- what the optimizer declares ---- */

/* Whether its parameters have a state of that role. */
static bool keeps(const ech_plan *plan, const ech_bucket *bucket, ech_state_role role)
{
    int first = plan->bucket_param.at[bucket->first_param];
    return ech_plan_state_of(plan, first, role) >= 0;
}

/* The rounds that the parameters declare, and after which ranks must fold: those that have cut the dimensions over
 * which something is taken. Shards of buckets cut the first; each of a stack has its own. */
static void find_rounds(const ech_plan *plan, const ech_bucket *bucket, bool shares, bool host,
                        ech_promise *out)
{
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        const ech_plan_param *p = &plan->param[param];
        const ech_shape *shape = &plan->model->param.at[param].shape;
        unsigned first = ech_shape_has(shape, ECH_AXIS_EXPERTS) ? 2 : 1; /* of one of a stack */
        for (int k = 0; k < p->statistics; k++) {
            const ech_statistic *s = &plan->statistic.at[p->first_statistic + k].is;
            ech_facts *due = &out->of_round[s->round];
            if (s->round >= out->rounds) out->rounds = s->round + 1;
            if (shares && s->over & first) *due |= F(FOLD_SHARDS);
            for (int d = 0; d < shape->dims; d++)
                if (s->fold != ECH_SHARDS_OWNER && s->over >> d & 1u &&
                    ech_axis_shards(shape->axis[d], plan->layout->sharding) > 1)
                    *due |= F(FOLD);
        }
    }
    for (int r = 0; r < out->rounds; r++) {
        if (host && out->of_round[r]) out->of_round[r] |= F(STATISTICS_IN) | F(STATISTICS_OUT);
        out->of_round[r] |= F(STATISTICS);
    }
}

/* Factors are summed over who adds to the gradients, and over the tensor ranks that have other shards of any of the
 * bucket's matrices: Vogels et al. 2019, algorithm 1, of the whole matrix. */
static ech_layout_group factors_over(const ech_plan *plan, const ech_bucket *bucket)
{
    for (int i = 0; i < bucket->params && keeps(plan, bucket, ECH_STATE_BASIS); i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        const ech_shape *shape = &plan->model->param.at[param].shape;
        if (ech_shape_copies(shape, plan->layout->sharding) < plan->layout->tensor)
            return ech_layout_group_over(ech_layout_group_axes(bucket->group) | ECH_MESH_TENSOR);
    }
    return bucket->group;
}

static bool has_others(const ech_plan *plan, ech_layout_group group)
{
    return ech_layout_group_size(plan->layout, plan->model, plan->rank, group) > 1;
}

/* ---- who updates what ---- */

/* Equal parts, in the order of the group's members; or servers', in theirs. Who has none: behind
 * the last. */
static ech_interval part_of(const ech_plan *plan, const ech_bucket *bucket)
{
    const ech_layout *layout = plan->layout;
    int workers = ech_layout_workers(layout), owners = layout->world - workers, index = owners;
    ech_membership m = ech_layout_membership(layout, plan->model, plan->rank, bucket->group);
    if (ech_protocol_promise_of(plan)->updates != ECH_UPDATES_SERVER)
        owners = m.size, index = m.index;
    else if (plan->rank >= workers)
        index = plan->rank - workers;
    int64_t n = owners ? (bucket->elements + owners - 1) / owners : 0;
    return (ech_interval){index * n, n};
}

static bool shares(const ech_plan *plan, const ech_promise *p)
{
    switch (ech_protocol_promise_of(plan)->updates) {
    case ECH_UPDATES_ZERO:
        return has_others(plan, p->group) && !p->commits && plan->zero > 0;
    case ECH_UPDATES_SHARE:
        return has_others(plan, p->group) && !p->commits;
    case ECH_UPDATES_ALONE:
        return false;
    case ECH_UPDATES_SERVER:
        break;
    }
    return true;
}

/* What the plan has of the bucket is what steps work on. */
static ech_status check_extent(const ech_plan *plan, int index, bool shared, const ech_promise *p)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    int64_t first, n = ech_bucket_updated(bucket, &first), kept = ech_bucket_kept(bucket);
    bool serves = ech_layout_serves(plan->layout, plan->rank);
    bool may_share = serves || (shared && plan->zero > 2);
    int64_t bytes = kept * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
    const char *wrong = NULL;
    if (bucket->own != p->part.first || bucket->shard != p->part.n)
        wrong = "has another shard";
    else if (n != p->updates.n || (n && first != p->updates.first))
        wrong = "updates other elements";
    else if (kept < bucket->elements && !may_share)
        wrong = "keeps fewer weights";
    else if (plan->persistent.n && plan->persistent.at[bucket->weights].bytes != bytes)
        wrong = "has another place for weights";
    if (!wrong) return ECH_OK;
    ECH_FAIL(ECH_EINTERNAL,
             "schedule check, rank %d: of bucket %d the rank %s than the protocol and "
             "parallel.zero=%d promise",
             plan->rank, index, wrong, plan->zero);
}

/* ---- the whole ---- */

/* What is done with gradients. */
static ech_facts of_gradients(const ech_plan *plan, const ech_bucket *bucket, const ech_promise *p)
{
    bool served = ech_promise_is_served(plan);
    bool residual = keeps(plan, bucket, ECH_STATE_RESIDUAL);
    bool factored = residual && keeps(plan, bucket, ECH_STATE_BASIS);
    bool norms = ech_protocol_promise_of(plan)->norms == ECH_NORMS_SENDER ? served : !served;
    ech_facts due = F(WRITTEN);
    if (residual) due |= F(RESIDUAL) | F(PLAIN) | (factored ? F(LEFT) | F(RIGHT) : F(CHOSEN));
    if (factored && has_others(plan, p->factors)) due |= F(LEFT_SUM);
    if (has_others(plan, factored ? p->factors : p->group)) due |= F(SUM);
    if (norms) due |= p->commits ? F(CLIP) : F(NORM) | F(CLIP);
    return due;
}

/* What is done with weights. Layer states are on the device. */
static ech_facts of_weights(const ech_plan *plan, const ech_bucket *bucket, bool shared,
                            const ech_promise *p)
{
    bool served = ech_promise_is_served(plan);
    bool serves = ech_layout_serves(plan->layout, plan->rank);
    bool host = plan->states != ECH_SPACE_DEVICE && !p->commits;
    bool elsewhere = plan->weights != ECH_SPACE_DEVICE && !p->commits;
    bool disk = plan->states == ECH_SPACE_DISK || plan->weights == ECH_SPACE_DISK;
    /* Blocks read what is gathered for them (check/resident.c) where the rank keeps its shard alone. */
    bool brought = ech_bucket_kept(bucket) < bucket->elements && !serves;
    bool others = (shared && !brought) || ech_protocol_promise_of(plan)->meets == ECH_MEETS_LIST;
    bool returns = elsewhere && shared && !brought;
    ech_facts due = served ? 0 : F(UPDATE);
    if (others) due |= F(WHOLE);
    if (!host) return due | (plan->versions > 1 && !served ? F(STASH) : 0);
    due |= F(AWAY) | F(ROOM);
    if (!elsewhere && !ech_plan_has_masters(plan, bucket)) due |= F(OLD);
    if (disk) due |= F(STATES) | F(STATES_OUT);
    if (!elsewhere || returns) due |= F(BROUGHT);
    if (returns) due |= F(HOME);
    return due;
}

static ech_status find_promise(const ech_plan *plan, int index, int *seen, ech_promise *out)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    const ech_protocol_promise *of = ech_protocol_promise_of(plan);
    int first = plan->bucket_param.at[bucket->first_param];
    *out = (ech_promise){.group = bucket->group,
                         .factors = factors_over(plan, bucket),
                         .spread = of->spread,
                         .commits = plan->model->param.at[first].commit != NULL,
                         .part = part_of(plan, bucket)};
    bool host = plan->states != ECH_SPACE_DEVICE && !out->commits, shared = shares(plan, out);
    out->update = host ? ECH_STEP_UPDATE_ON_HOST : of->update;
    out->updates = shared ? out->part : (ech_interval){0, bucket->elements};
    if (ech_promise_is_served(plan)) out->updates.n = 0;
    out->due = of_gradients(plan, bucket, out) | of_weights(plan, bucket, shared, out);
    find_rounds(plan, bucket, shared, host, out);
    ECH_TRY(check_group(plan, index, seen));
    return check_extent(plan, index, shared, out);
}

ech_status ech_promises_find(const ech_plan *plan, ech_promise *out)
{
    int seen[ECH_GROUPS] = {0};
    for (int b = 0; b < (int)plan->bucket.n; b++) ECH_TRY(find_promise(plan, b, seen, &out[b]));
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of promises.def, and what they promise for a bucket.
 */
#include "check/promise.h"

#include "base/log.h"
#include "schedule/states.h"

#define F(name) (ech_facts) ECH_FACT_##name

static const ech_protocol_promise promises[ECH_PROTOCOLS] = {
#define X(protocol, adds, updates, norms, update, spread, meets, states)                           \
    [ECH_PROTOCOL_##protocol] = {ECH_ADDS_##adds,    ECH_UPDATES_##updates, ECH_NORMS_##norms,     \
                                 ECH_STEP_##update,  ECH_STEP_##spread,     ECH_MEETS_##meets,     \
                                 ECH_STATES_##states},
#include "check/promises.def"
};
enum {
#define X(...) +1
    ROWS = 0
#include "check/promises.def"
};
_Static_assert(ROWS == (int)ECH_PROTOCOLS, "each protocol has a promise");

const ech_protocol_promise *ech_protocol_promise_of(const ech_plan *plan)
{
    return &promises[plan->layout->protocol];
}

bool ech_promise_is_served(const ech_plan *plan)
{
    return ech_protocol_promise_of(plan)->updates == ECH_UPDATES_SERVER &&
           !ech_layout_serves(plan->layout, plan->rank);
}

/* ---- addends ---- */

/* True if there are several ranks along any of these axes of the mesh. */
static bool has_ranks_along(const ech_plan *plan, ech_mesh axes)
{
    const ech_layout *layout = plan->layout;
    ech_expert_span in = ech_layout_expert_span(layout);
    int stage = layout->coordinates[ech_layout_pattern(layout, plan->rank)].stage;
    int alike = layout->tensor / ech_axis_shards(ECH_AXIS_KV_HEADS, layout->sharding);
    return axes & (ECH_MESH_STAGE | ECH_MESH_TIED | ECH_MESH_SERVER) ||
           (axes & ECH_MESH_DATA_OUTER && layout->replicas[stage] > in.data) ||
           (axes & ECH_MESH_DATA_INNER && in.data > 1) ||
           (axes & ECH_MESH_CONTEXT_OUTER && layout->context > in.context) ||
           (axes & ECH_MESH_CONTEXT_INNER && in.context > 1) ||
           (axes & ECH_MESH_KEY_VALUE && layout->tensor > alike) ||
           (axes & ECH_MESH_QUERY && alike > 1);
}

/* The axes along which ranks add to the parameter's gradient: those that its layers declare, all
 * stages that hold it, and servers, which have the sum. */
static ech_mesh adds_along(const ech_plan *plan, int param)
{
    const ech_protocol_promise *of = ech_protocol_promise_of(plan);
    int first, last;
    ech_mesh axes = plan->model->param.at[param].addends;
    ech_layout_stages_of_param(plan->layout, param, 0, &first, &last);
    if (first < last) axes |= ECH_MESH_TIED;
    if (of->adds == ECH_ADDS_PUSH) axes = ECH_MESH_NONE;
    return of->updates == ECH_UPDATES_SERVER ? axes | ECH_MESH_SERVER : axes;
}

static ech_status check_group(const ech_plan *plan, int index)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    /* Replicas each add their own: their groups lack that axis (groups.def). */
    bool own = ech_protocol_promise_of(plan)->adds == ECH_ADDS_OWN;
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        ech_mesh other = adds_along(plan, param) ^ ech_layout_group_axes(bucket->group);
        if (!has_ranks_along(plan, own ? other & ~(ech_mesh)ECH_MESH_DATA : other)) continue;
        ECH_FAIL(ECH_EINTERNAL,
                 "schedule check, rank %d: bucket %d is summed over %s, and other ranks add to %s",
                 plan->rank, index, ech_layout_group_name(bucket->group),
                 plan->model->param.at[param].name);
    }
    return ECH_OK;
}

/* ---- declarations of the optimizer ---- */

/* True if its parameters have a state of that role. */
static bool keeps(const ech_plan *plan, const ech_bucket *bucket, ech_state_role role)
{
    int first = plan->bucket_param.at[bucket->first_param];
    return ech_plan_state_of(plan, first, role) >= 0;
}

/* The rounds that the parameters declare, and after which of them ranks must fold: ranks that shard
 * a dimension over which a statistic is taken. Shards of buckets cut the first dimension; each
 * matrix of a stack has its own. */
static void find_rounds(const ech_plan *plan, const ech_bucket *bucket, bool host, ech_promise *out)
{
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        const ech_plan_param *p = &plan->param[param];
        const ech_shape *shape = &plan->model->param.at[param].shape;
        /* of one matrix of a stack */
        unsigned first = ech_shape_has(shape, ECH_AXIS_EXPERTS) ? 2 : 1;
        for (int k = 0; k < p->statistics; k++) {
            const ech_statistic *s = &plan->statistic.at[p->first_statistic + k].is;
            ech_facts *due = &out->of_round[s->round];
            if (s->round >= out->rounds) out->rounds = s->round + 1;
            if (out->shares && s->over & first) *due |= F(FOLD_SHARDS);
            for (int d = 0; d < shape->dims; d++)
                if (s->fold != ECH_SHARDS_OWNER && s->over >> d & 1u &&
                    ech_axis_shards(shape->axis[d], plan->layout->sharding) > 1)
                    *due |= F(FOLD);
        }
    }
    for (int r = 0; r < out->rounds && host; r++)
        if (out->of_round[r]) out->of_round[r] |= F(STATISTICS_IN) | F(STATISTICS_OUT);
}

/* Factors are summed over the ranks that add to the gradients, and over tensor ranks that have
 * other shards of any of the bucket's matrices: Vogels et al. 2019, algorithm 1, for whole
 * matrices. */
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

/* ---- updates ---- */

static bool shares(const ech_plan *plan, const ech_promise *p)
{
    const ech_protocol_promise *of = ech_protocol_promise_of(plan);
    if (of->updates == ECH_UPDATES_SERVER)
        return !p->averages || ech_layout_serves(plan->layout, plan->rank);
    bool by_zero = of->updates == ECH_UPDATES_ZERO && plan->zero > 0 && !p->commits;
    if (p->frozen && plan->zero < 3) return false;
    return (of->updates == ECH_UPDATES_SHARE || by_zero) && has_others(plan, p->group);
}

/* The plan's description of the bucket is what steps work on. A scatter leaves each rank its own of
 * equal parts, one per member of the group, or per server; a worker's part is after the last. */
static ech_status check_extent(const ech_plan *plan, int index, const ech_promise *p)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    ech_membership m = ech_layout_membership(plan->layout, plan->model, plan->rank, bucket->group);
    int workers = ech_layout_workers(plan->layout), owner = m.index, owners = m.size;
    bool serves = plan->rank >= workers, served = ech_promise_is_served(plan);
    if (serves || served) owners = plan->layout->world - workers;
    if (serves || served) owner = serves ? plan->rank - workers : owners;
    int64_t first, part = (bucket->elements + owners - 1) / owners, kept = ech_bucket_kept(bucket);
    int64_t n = ech_bucket_updated(bucket, &first), wanted = p->shares ? part : bucket->elements;
    int64_t item = (int64_t)ech_dtype_bytes(bucket->weight_dtype);
    const char *wrong = NULL;
    if (bucket->shard != part || bucket->own != owner * part)
        wrong = "has another shard";
    else if (n != (served && !p->averages ? 0 : wanted) ||
             (n && first != (p->shares ? bucket->own : 0)))
        wrong = "updates other elements";
    else if (kept < bucket->elements && !serves && !(p->shares && plan->zero > 2))
        wrong = "keeps fewer weights";
    else if (plan->persistent.n && plan->persistent.at[bucket->weights].bytes != kept * item)
        wrong = "has another place for weights";
    if (!wrong) return ECH_OK;
    ECH_FAIL(ECH_EINTERNAL,
             "schedule check, rank %d: of bucket %d the rank %s than the protocol and "
             "parallel.zero=%d promise",
             plan->rank, index, wrong, plan->zero);
}

/* ---- all promises ---- */

/* Facts about gradients. */
static ech_facts of_gradients(const ech_plan *plan, const ech_bucket *bucket, const ech_promise *p)
{
    bool served = ech_promise_is_served(plan), residual = keeps(plan, bucket, ECH_STATE_RESIDUAL);
    bool factored = residual && keeps(plan, bucket, ECH_STATE_BASIS);
    ech_facts due = F(WRITTEN);
    if (residual) due |= F(RESIDUAL) | F(PLAIN) | (factored ? F(LEFT) | F(RIGHT) : F(CHOSEN));
    if (factored && has_others(plan, p->factors)) due |= F(LEFT_SUM);
    if (has_others(plan, factored ? p->factors : p->group)) due |= F(SUM);
    if ((ech_protocol_promise_of(plan)->norms == ECH_NORMS_SENDER) == served)
        due |= p->commits ? F(CLIP) : F(NORM) | F(CLIP);
    return p->rounds ? due | F(STATISTICS) : due;
}

/* Facts about weights. host: they are updated there. Layer states are on the device. */
static ech_facts of_weights(const ech_plan *plan, const ech_bucket *bucket, bool host,
                            const ech_promise *p)
{
    bool elsewhere = plan->weights != ECH_SPACE_DEVICE && !p->commits;
    bool disk = plan->states == ECH_SPACE_DISK || plan->weights == ECH_SPACE_DISK;
    bool served = ech_promise_is_served(plan), serves = ech_layout_serves(plan->layout, plan->rank);
    /* Blocks read gathered weights (check/weight_gathers.c) if the rank stores only its shard. */
    bool whole = p->shares && (serves || ech_bucket_kept(bucket) == bucket->elements);
    bool meets = ech_protocol_promise_of(plan)->meets == ECH_MEETS_LIST;
    ech_facts due = (served ? 0 : F(UPDATE)) | (whole || meets ? F(WHOLE) : 0);
    if (!host) return due | (plan->versions > 1 && !served ? F(STASH) : 0);
    due |= F(AWAY) | F(ROOM);
    if (!elsewhere && !ech_plan_has_masters(plan, bucket)) due |= F(OLD);
    if (disk) due |= F(STATES) | F(STATES_OUT);
    if (!elsewhere || whole) due |= F(BROUGHT);
    return elsewhere && whole ? due | F(HOME) : due;
}

/* Synchronization of diverged replicas. SYNC: an update by sum_k (w_0 - w_k). GOSSIP: the mean of
 * w_k and the weights of two neighbours: Lian et al. 2017. RETURN: w_k as it was before SYNC's
 * result took its place; layer states stay. */
static ech_promise of_meeting(const ech_plan *plan, ech_list_kind kind)
{
    bool others = has_others(plan, ECH_GROUP_REPLICAS);
    ech_promise out = {.due = F(UPDATE), .group = ECH_GROUP_REPLICAS, .update = ECH_STEP_EXCHANGE};
    if (kind == ECH_LIST_RETURN) return out;
    out.due |= (kind == ECH_LIST_SYNC ? F(WRITTEN) : 0) | (others ? F(SUM) : 0);
    out.update = kind == ECH_LIST_SYNC ? ECH_STEP_OUTER_UPDATE : ECH_STEP_MIX;
    return out;
}

/* Layer states of a worker: it commits its own partials. Servers have no part in turns. */
static void promise_own(const ech_plan *plan, ech_promise *out)
{
    bool serves = ech_layout_serves(plan->layout, plan->rank);
    out->due = serves ? 0 : F(WRITTEN) | F(CLIP) | F(UPDATE);
    out->update = ECH_STEP_UPDATE;
}

ech_promise ech_promise_of_mean(const ech_plan *plan)
{
    const ech_protocol_promise *of = ech_protocol_promise_of(plan);
    bool by_servers = of->updates == ECH_UPDATES_SERVER;
    ech_promise out = {.group = by_servers ? ECH_GROUP_SERVED : ECH_GROUP_REPLICAS,
                       .update = ECH_STEP_OUTER_UPDATE,
                       .spread = of->spread,
                       .commits = true,
                       .averages = true,
                       .shares = ech_layout_serves(plan->layout, plan->rank)};
    out.due = F(WRITTEN) | (by_servers ? F(WHOLE) : 0);
    if (has_others(plan, out.group)) out.due |= F(SUM);
    if (!ech_promise_is_served(plan)) out.due |= F(UPDATE);
    return out;
}

ech_status ech_promise_find(const ech_plan *plan, const ech_list *list, int index, ech_promise *out)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    int first = plan->bucket_param.at[bucket->first_param];
    bool frozen = plan->model->param.at[first].frozen;
    if (!ech_list_trains(list)) {
        bool stays = list->kind == ECH_LIST_RETURN && plan->model->param.at[first].commit;
        *out = frozen || stays ? (ech_promise){.frozen = true} : of_meeting(plan, list->kind);
        return ECH_OK;
    }
    *out = (ech_promise){.group = bucket->group,
                         .factors = factors_over(plan, bucket),
                         .update = ech_protocol_promise_of(plan)->update,
                         .spread = ech_protocol_promise_of(plan)->spread,
                         .commits = plan->model->param.at[first].commit != NULL,
                         .frozen = frozen};
    out->averages = out->commits && ech_protocol_promise_of(plan)->states == ECH_STATES_MEAN;
    bool host = plan->states != ECH_SPACE_DEVICE && !out->commits;
    if (host) out->update = ECH_STEP_UPDATE_ON_HOST;
    out->shares = shares(plan, out);
    find_rounds(plan, bucket, host, out);
    if (!frozen) out->due = of_gradients(plan, bucket, out) | of_weights(plan, bucket, host, out);
    if (out->averages) promise_own(plan, out);
    ECH_TRY(check_group(plan, index));
    return check_extent(plan, index, out);
}

/* ---- all ranks' parts ---- */

/* The number of members of a bucket's group from the rank of the plan to `member`, for which the
 * plan stands. */
static int distance_in_group(const ech_plan *plan, const ech_bucket *bucket, int member, int index)
{
    if (plan->rank == member) return 0;
    return index -
           ech_layout_membership(plan->layout, plan->model, plan->rank, bucket->group).index;
}

/* The members' parts of bucket `index` of a plan follow each other, and end with it. */
static ech_status check_shares(const ech_plan *const *plans, int all, const ech_plan *plan,
                               const int *members, int n, int index, bool counts)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    int param = plan->bucket_param.at[bucket->first_param], wrong = -1;
    bool each = !counts; /* each updates all of it itself */
    int64_t end = 0;
    for (int i = 0; i < n && wrong < 0; i++) {
        const ech_plan *of = plans[ech_layout_plan_of(plan->layout, all, members[i])];
        /* the bucket may have another number there */
        const ech_bucket *other = &of->bucket.at[of->param[param].bucket];
        int64_t first = other->own;
        int64_t part = counts ? other->shard : ech_bucket_updated(other, &first);
        if (part < bucket->elements) first += distance_in_group(of, other, members[i], i) * part;
        if (first >= bucket->elements) part = 0;
        if (part > bucket->elements - first) part = bucket->elements - first;
        each &= part == bucket->elements;
        if (part && !each && first != end) wrong = members[i];
        end += part;
    }
    if (wrong < 0 && (each || end == bucket->elements)) return ECH_OK;
    ECH_FAIL(ECH_EINTERNAL,
             "schedule check, rank %d: not each element of bucket %d of rank %d is %s once by its "
             "group",
             wrong < 0 ? plan->rank : wrong, index, plan->rank, counts ? "counted" : "updated");
}

ech_status ech_check_shares(const ech_plan *const *plans, int n)
{
    const ech_layout *layout = plans[0]->layout;
    ECH_FREED int *members = ech_calloc((size_t)layout->world + 1, sizeof *members);
    for (int i = 0; i < n; i++)
        for (int b = 0; b < (int)plans[i]->bucket.n; b++) {
            const ech_plan *plan = plans[i];
            ech_layout_group group = plan->bucket.at[b].group;
            int size = ech_layout_members(layout, plan->model, plan->rank, group, members);
            /* the first member checks for its group, if it has a plan */
            if (size == 0 || (n == layout->world && members[0] != plan->rank)) continue;
            int param = plan->bucket_param.at[plan->bucket.at[b].first_param];
            bool own = plan->model->param.at[param].commit &&
                       ech_protocol_promise_of(plan)->states == ECH_STATES_MEAN;
            /* workers update all of their own, and servers shards of the mean */
            if (!own) ECH_TRY(check_shares(plans, n, plan, members, size, b, false));
            ECH_TRY(check_shares(plans, n, plan, members, size, b, true));
        }
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Buckets: parameters whose gradients are reduced together (Li et al. 2020, arXiv:2006.15704,
 * section 3.2.3). A bucket belongs to one block, so that it is complete, and its weights are
 * needed, with that block; to one group; and has one type each of weights, gradients and
 * element-wise states, which are all laid out alike. Buckets follow from model, types, optimizer
 * and tensor shards only, not from the schedule: all ranks that have a block have the same buckets
 * of it, in all their plans.
 */
#include <string.h>

#include "schedule/operands.h"
#include "schedule/states.h"
#include "schedule/passes.h"
#include "schedule/protocol/protocol.h"

int ech_list_gradient_instance(const ech_plan *plan, const ech_list *list, int bucket, int turn,
                               int micro)
{
    if (!ech_bucket_scatters_each(&plan->bucket.at[bucket])) return turn;
    return ech_micro_whole(list->numbering, ech_micro_at(list->numbering, micro));
}

void ech_list_each_writer(const ech_plan *plan, const ech_list *list,
                          void (*note)(void *context, size_t s, int bucket), void *context)
{
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        int phase = ech_step_kind_phase(step->kind);
        if (phase < 0) continue;
        const ech_block *block = plan->model->block.at[step->block];
        for (int c = step->first_call; c < step->first_call + step->calls; c++) {
            const ech_block_call *call = &block->program[phase].at[c];
            for (const ech_operand *o = NULL; (o = ech_call_next(block, call, ECH_TRAIN, o));)
                if (o->port == ECH_PORT_DPARAM) note(context, s, plan->param[o->value].bucket);
        }
    }
}

typedef struct writers {
    const ech_plan *plan;
    const ech_list *list;
    int *first, *last; /* [instance * buckets + bucket] */
} writers;

static void note_writer(void *context, size_t s, int bucket)
{
    const writers *w = context;
    const ech_step *step = &w->list->step.at[s];
    int instance = ech_list_gradient_instance(w->plan, w->list, bucket, step->turn, step->micro);
    size_t at = (size_t)instance * w->plan->bucket.n + (size_t)bucket;
    if (w->first[at] < 0) w->first[at] = (int)s;
    w->last[at] = (int)s;
}

void ech_list_writers(const ech_plan *plan, const ech_list *list, int *first, int *last)
{
    writers w = {plan, list, first, last};
    for (size_t i = 0; i < plan->bucket.n * (size_t)list->instances; i++) first[i] = last[i] = -1;
    ech_list_each_writer(plan, list, note_writer, &w);
}

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* The least multiple of a unit that is also a multiple of a power of two. */
static int64_t common_multiple(int64_t unit, int64_t power)
{
    for (int64_t rest = unit; rest % 2 == 0 && power > 1; rest /= 2) power /= 2;
    return unit * power;
}

/* Writes this rank's sizes of a parameter as optimizers see it. */
static void resolve_seen(const ech_plan *plan, const ech_param *of, int64_t size[ECH_MAX_DIMS])
{
    ech_shape seen = ech_shape_seen(&of->shape);
    ech_shape_resolve(&seen, ech_extent_of_params(plan->layout->sharding), size);
}

/* Offsets at multiples of this number of elements are multiples of plan.part in any type, and split
 * no unit of the optimizer. */
static int64_t unit_of(const ech_plan *plan, const ech_param *of, const ech_optimizer_needs *needs)
{
    enum { NARROWEST = 2 }; /* bytes of an element */
    int64_t size[ECH_MAX_DIMS];
    resolve_seen(plan, of, size);
    return common_multiple(ech_optimizer_unit(needs, of, size), plan->part / NARROWEST);
}

/* The group over which factors are summed. If tensor ranks hold shards of the matrix, each has its
 * own rows of one factor and a partial sum of the other. */
static ech_layout_group factored_over(const ech_plan *plan, const ech_param *of,
                                      ech_layout_group addends)
{
    for (int d = 0; d < of->shape.dims; d++)
        if (ech_axis_mesh(of->shape.axis[d]) & ECH_MESH_TENSOR &&
            ech_axis_shards(of->shape.axis[d], plan->layout->sharding) > 1)
            return ech_layout_group_over(ech_layout_group_axes(addends) | ECH_MESH_TENSOR);
    return addends;
}

/* A turn's batch has an id for each of its tokens. */
static ech_listed listed_of(const ech_plan *plan, int param, const ech_config *config)
{
    const ech_protocol *protocol = ech_protocol_of(plan->layout);
    if (!protocol->lists_rows || !protocol->lists_rows(plan->model, param)) return (ech_listed){0};
    ech_extent extent = ech_layout_extent(plan->layout, config, plan->model);
    int pattern = ech_layout_pattern(plan->layout, plan->rank);
    int64_t samples = ech_layout_micro_batches(plan->layout, pattern) * extent.batch;
    int64_t ids = samples * extent.sequence, rows = plan->model->param.at[param].shape.size[0];
    return (ech_listed){.ids = ids, .most = rows < ids ? rows : ids};
}

/* An empty bucket of the kind to which the parameter belongs. */
static ech_bucket kind_of(const ech_plan *plan, int param, const ech_config *config)
{
    const ech_param *of = &plan->model->param.at[param];
    ech_dtype dtype = ech_plan_gradient_dtype(plan, param);
    ech_bucket kind = {.block = of->block,
                       .weight_dtype = ech_plan_param_dtype(plan, param),
                       .dtype = dtype,
                       .wire = of->commit ? dtype : ech_layout_wire(config, dtype),
                       .commits = of->commit != NULL,
                       .frozen = of->frozen,
                       .versions = of->frozen ? 1 : plan->versions,
                       .rows = listed_of(plan, param, config),
                       .group = ech_layout_addends(plan->layout, plan->model, param)};
    ech_optimizer_needs needs = ech_optimizer_needs_of(config, of);
    kind.unit = unit_of(plan, of, &needs);
    kind.compressed = ech_is_compressed(config, of);
    bool factored = ech_compression_rank(config, of) > 0;
    kind.factored = factored ? factored_over(plan, of, kind.group) : kind.group;
    for (int i = 0; i < needs.states; i++)
        if (ech_state_is_element_wise(&needs.state[i]))
            kind.state[kind.states++] = (struct ech_flat_state){
                .name = needs.state[i].name, .dtype = ech_plan_state_dtype(plan, &needs.state[i])};
    return kind;
}

static bool is_of_kind(const ech_bucket *bucket, const ech_bucket *kind)
{
    bool same = bucket->weight_dtype == kind->weight_dtype && bucket->dtype == kind->dtype &&
                bucket->group == kind->group && bucket->unit == kind->unit &&
                bucket->states == kind->states && bucket->commits == kind->commits &&
                bucket->frozen == kind->frozen && bucket->rows.most == kind->rows.most &&
                bucket->compressed == kind->compressed && bucket->factored == kind->factored;
    for (int i = 0; same && i < kind->states; i++)
        same = bucket->state[i].dtype == kind->state[i].dtype &&
               strcmp(bucket->state[i].name, kind->state[i].name) == 0;
    return same;
}

/* The block's last bucket of the kind, if it has room for `elements` more; otherwise a new one. */
static int find_open(ech_plan *plan, const ech_bucket *kind, int64_t elements, int64_t most_bytes)
{
    int b = ech_bucket_is_listed(kind) ? -1 : (int)plan->bucket.n - 1;
    while (b >= 0 && plan->bucket.at[b].block == kind->block &&
           !is_of_kind(&plan->bucket.at[b], kind))
        b--;
    if (b >= 0 && plan->bucket.at[b].block == kind->block &&
        (plan->bucket.at[b].elements + elements) * (int64_t)ech_dtype_bytes(kind->dtype) <=
            most_bytes)
        return b;
    ECH_PUSH(plan->bucket, *kind);
    return (int)plan->bucket.n - 1;
}

static void put(ech_plan *plan, int param, const ech_config *config)
{
    ech_plan_param *p = &plan->param[param];
    ech_bucket kind = kind_of(plan, param, config);
    p->padding = round_up(p->elements, kind.unit) - p->elements;
    p->bucket = find_open(plan, &kind, p->elements + p->padding, config->parallel.bucket_bytes);
    ech_bucket *bucket = &plan->bucket.at[p->bucket];
    p->bucket_offset = bucket->elements;
    bucket->params++;
    bucket->elements += p->elements + p->padding;
    bucket->padding += p->padding;
}

/* The owners of the bucket's shards, and which of them the rank is. */
static ech_membership owner_of(const ech_plan *plan, const ech_bucket *bucket, int rank)
{
    ech_membership m = ech_layout_membership(plan->layout, plan->model, rank, bucket->group);
    return ech_protocol_of(plan->layout)->owner(plan->layout, m);
}

/* Where a rank's shard begins; after all shards if it has none. */
static int64_t begin_of_shard(const ech_plan *plan, const ech_bucket *bucket, int rank)
{
    return owner_of(plan, bucket, rank).index * bucket->shard;
}

/* Sets location and distribution of weights, gradients and states of a bucket whose group has
 * `members`. */
static void place(const ech_plan *plan, ech_bucket *bucket, int members)
{
    bool alone = bucket->frozen && plan->zero < 3; /* there is no update */
    ech_protocol_of(plan->layout)->share(plan, bucket, members > 1 && !alone);
    if (!bucket->commits && !bucket->frozen) bucket->of_states.where = plan->states;
    if (bucket->of_states.where != ECH_SPACE_DEVICE) bucket->of_gradients.where = ECH_SPACE_HOST;
    bucket->of_weights.where = plan->weights_in;
    if (plan->weights != ECH_SPACE_DEVICE && !bucket->commits)
        bucket->of_weights.where = plan->weights;
}

/* Cuts a bucket into equal shards by padding its last parameter. */
static void cut(ech_plan *plan, ech_bucket *bucket)
{
    ech_membership m = ech_layout_membership(plan->layout, plan->model, plan->rank, bucket->group);
    int last = plan->bucket_param.at[bucket->first_param + bucket->params - 1];
    int owners = owner_of(plan, bucket, plan->rank).size;
    bucket->shard = round_up((bucket->elements + owners - 1) / owners, bucket->unit);
    bucket->own = begin_of_shard(plan, bucket, plan->rank);
    place(plan, bucket, m.size);
    int64_t more = owners * bucket->shard - bucket->elements;
    plan->param[last].padding += more;
    bucket->padding += more;
    bucket->elements += more;
}

/* Each parameter's factors begin at an offset that is valid for its gradient. */
static int64_t place_factors(const ech_plan *plan, const ech_bucket *bucket, int64_t *at,
                             int64_t numbers)
{
    int64_t here = *at, unit = plan->part / (int64_t)ech_dtype_bytes(bucket->dtype);
    *at += round_up(numbers, unit);
    return here;
}

static void plan_factors(ech_plan *plan, ech_bucket *bucket)
{
    for (int i = 0; i < bucket->params && bucket->compressed; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        ech_plan_param *p = &plan->param[param];
        int64_t size[2];
        ech_plan_own_matrix(plan, param, size);
        bool columns = ech_compression_by_columns(&plan->model->param.at[param]);
        p->lines = p->stacked * size[columns ? 1 : 0];
        p->in_selection = bucket->chosen;
        bucket->chosen += 2 * p->lines * p->chosen;
        ech_plan_matrix(plan, param, size);
        p->left = place_factors(plan, bucket, &bucket->left, p->stacked * size[0] * p->rank);
        p->right = place_factors(plan, bucket, &bucket->right, p->stacked * size[1] * p->rank);
    }
}

void ech_plan_matrix(const ech_plan *plan, int param, int64_t size[2])
{
    ech_shape one = ech_shape_of_one(&plan->model->param.at[param].shape);
    size[0] = one.size[0];
    size[1] = one.size[1];
}

void ech_plan_own_matrix(const ech_plan *plan, int param, int64_t size[2])
{
    ech_shape one = ech_shape_of_one(&plan->model->param.at[param].shape);
    int64_t own[ECH_MAX_DIMS];
    ech_shape_resolve(&one, ech_extent_of_params(plan->layout->sharding), own);
    size[0] = own[0];
    size[1] = own[1];
}

int ech_plan_state_of(const ech_plan *plan, int param, ech_state_role role)
{
    const ech_plan_param *p = &plan->param[param];
    for (int s = 0; s < p->states; s++)
        if (plan->state.at[p->first_state + s].is.role == role) return s;
    return -1;
}

/* The value of a state; all parameters of a bucket share it. state: index as the first parameter
 * declares it; -1: none. */
static int value_of_state(const ech_plan *plan, int param, int state)
{
    return state < 0 ? -1 : plan->state.at[plan->param[param].first_state + state].value;
}

int ech_plan_bucket_state_of(const ech_plan *plan, int bucket, ech_state_role role)
{
    int first = plan->bucket_param.at[plan->bucket.at[bucket].first_param];
    return value_of_state(plan, first, ech_plan_state_of(plan, first, role));
}

int ech_plan_masters(const ech_plan *plan, int bucket)
{
    int first = plan->bucket_param.at[plan->bucket.at[bucket].first_param];
    return value_of_state(plan, first, plan->param[first].master);
}

/* The elements of a parameter in its bucket's shard that begins with element `own`. */
static int64_t find_part(const ech_plan *plan, int param, int64_t own, int64_t *first)
{
    const ech_plan_param *p = &plan->param[param];
    int64_t begin = own - p->bucket_offset, end = begin + plan->bucket.at[p->bucket].shard;
    if (begin < 0) begin = 0;
    if (end > p->elements) end = p->elements;
    *first = end > begin ? begin : 0;
    return end > begin ? end - begin : 0;
}

int64_t ech_plan_own(const ech_plan *plan, int param, int64_t *first)
{
    return find_part(plan, param, plan->bucket.at[plan->param[param].bucket].own, first);
}

int64_t ech_plan_own_all(const ech_plan *plan, const ech_bucket *bucket)
{
    int64_t first, n = 0;
    for (int i = 0; i < bucket->params; i++)
        n += ech_plan_own(plan, plan->bucket_param.at[bucket->first_param + i], &first);
    return n;
}

int64_t ech_plan_part(const ech_plan *plan, int rank, int param, int64_t *first)
{
    const ech_bucket *bucket = &plan->bucket.at[plan->param[param].bucket];
    return find_part(plan, param, begin_of_shard(plan, bucket, rank), first);
}

int64_t ech_plan_state_numbers(const ech_plan *plan, int param, const ech_state *state,
                               int64_t first, int64_t n, int64_t *from)
{
    const ech_param *of = &plan->model->param.at[param];
    int64_t size[ECH_MAX_DIMS];
    *from = 0;
    if (state->role != ECH_STATE_OPTIMIZER)
        return ech_shape_count(&state->shape, ech_extent_of_params(plan->layout->sharding));
    resolve_seen(plan, of, size);
    return ech_state_part(state, of, size, first, n, from);
}

int64_t ech_plan_state_part(const ech_plan *plan, int rank, int param, int state, int64_t *from)
{
    const ech_plan_param *p = &plan->param[param];
    int64_t first = 0, n = p->elements;
    if (ech_bucket_is_sharded(&plan->bucket.at[p->bucket]))
        n = ech_plan_part(plan, rank, param, &first);
    return ech_plan_state_numbers(plan, param, &plan->state.at[p->first_state + state].is, first, n,
                                  from);
}

/* If a state has one number for several rows, the rank with the parameter's first element (or the
 * first of a stack's matrix) writes it. Returns how many of the first numbers, of n elements'
 * numbers, other ranks write. */
static int64_t others_write(const ech_plan *plan, int param, const ech_state *state, int64_t first,
                            int64_t n)
{
    const ech_plan_param *p = &plan->param[param];
    if (!state || !n || !ech_optimizer_first_is_in(&plan->model->param.at[param], state->lacks))
        return 0;
    int64_t from, one = p->elements / p->stacked, next = (first + one - 1) / one * one;
    int64_t all = ech_plan_state_numbers(plan, param, state, first, n, &from);
    int64_t rest = first + n > next ? first + n - next : 0;
    return all - ech_plan_state_numbers(plan, param, state, next, rest, &from);
}

/* Adds the boxes of n elements of a rank's shard of that shape, from `from` on. */
static void add_boxes(const ech_plan *plan, int rank, const ech_shape *shape, int64_t from,
                      int64_t n, ech_held *held)
{
    ech_box box[ECH_MOST_BOXES];
    int boxes = ech_shape_interval_boxes(shape, plan->layout->sharding,
                                         ech_layout_shard_at(plan->layout, rank), from, n, box);
    ECH_ASSERT(held->boxes + boxes <= ECH_MOST_BOXES);
    for (int b = 0; b < boxes; b++) held->box[held->boxes++] = box[b];
}

ech_held ech_plan_elements(const ech_plan *plan, int param, int64_t first, int64_t n)
{
    ech_held held = {.boxes = 0};
    add_boxes(plan, plan->rank, &plan->model->param.at[param].shape, first, n, &held);
    return held;
}

ech_held ech_plan_held(const ech_plan *plan, int rank, int param, ech_held_kind kind, int state)
{
    const ech_plan_param *p = &plan->param[param];
    const ech_state *is = state < 0 ? NULL : &plan->state.at[p->first_state + state].is;
    const ech_shape *shape = is ? &is->shape : &plan->model->param.at[param].shape;
    ech_held held = ech_layout_held(plan->layout, plan->model, rank, param, kind, shape);
    const ech_bucket *bucket = p->bucket < 0 ? NULL : &plan->bucket.at[p->bucket];
    bool weights = kind == ECH_HELD_WEIGHTS;
    if (!bucket) return held;
    bool serves = ech_layout_serves(plan->layout, rank);
    ech_membership owner = owner_of(plan, bucket, rank);
    if (weights && owner.index == owner.size) held.writes = false;
    bool sharded = ech_bucket_is_sharded(bucket);
    bool shards = ech_bucket_is_gathered(bucket) || (ech_bucket_is_in_shared(bucket) && sharded);
    if (!(weights ? shards || serves : sharded)) return held;
    if (is && is->role != ECH_STATE_OPTIMIZER) return held;
    int64_t first, from, n = ech_plan_part(plan, rank, param, &first);
    int64_t others = others_write(plan, param, is, first, n);
    from = first;
    if (is) n = ech_plan_state_part(plan, rank, param, state, &from);
    held.boxes = held.others = 0;
    add_boxes(plan, rank, shape, from, others, &held);
    held.others = held.boxes;
    add_boxes(plan, rank, shape, from + others, n - others, &held);
    for (int b = held.others; b < held.boxes; b++) held.box[b].at += others;
    held.writes = (is || weights) && held.counts && held.boxes > held.others;
    return held;
}

/* Lists the parameters, one bucket after the other. */
static void list_params(ech_plan *plan)
{
    int params = 0;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        plan->bucket.at[b].first_param = params;
        params += plan->bucket.at[b].params;
        plan->bucket.at[b].params = 0;
    }
    for (int i = 0; i < params; i++) ECH_PUSH(plan->bucket_param, -1);
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        if (plan->param[p].bucket < 0) continue;
        ech_bucket *bucket = &plan->bucket.at[plan->param[p].bucket];
        plan->bucket_param.at[bucket->first_param + bucket->params++] = p;
    }
}

/* ---- pieces ---- */

/* Bytes of an element in the narrowest value that passes through the host. */
static int64_t narrowest_item(const ech_bucket *bucket)
{
    size_t least = ech_dtype_bytes(bucket->weight_dtype);
    for (int s = 0; s < bucket->states; s++)
        if (ech_dtype_bytes(bucket->state[s].dtype) < least)
            least = ech_dtype_bytes(bucket->state[s].dtype);
    return (int64_t)least;
}

/* True if a parameter has a state without the first dimension: each element may change any number
 * of it. Rounds that do not read all say how such states change (ech_optimizer_work.continues). */
static bool has_columns(const ech_plan *plan, const ech_bucket *bucket)
{
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        const ech_plan_param *p = &plan->param[param];
        for (int s = 0; s < p->states; s++)
            if (ech_optimizer_first_is_in(&plan->model->param.at[param],
                                          plan->state.at[p->first_state + s].is.lacks))
                return true;
    }
    return false;
}

/* True if the host stores what the update calls the parameter: its master, or the weights. */
static bool has_param_on_host(const ech_plan *plan, const ech_bucket *bucket)
{
    return ech_plan_has_masters(plan, bucket) ? plan->states == ECH_SPACE_HOST
                                              : plan->weights == ECH_SPACE_HOST;
}

static ech_rounds_read rounds_read(const ech_plan *plan, const ech_bucket *bucket)
{
    ech_rounds_read all = ECH_ROUNDS_READ_GRADIENT;
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        ech_rounds_read one =
            ech_optimizer_rounds_read(plan->optimizer, &plan->model->param.at[param]);
        if (one < all) all = one;
    }
    return all;
}

const char *ech_bucket_uncut(const ech_plan *plan, const ech_bucket *bucket)
{
    int first = plan->bucket_param.at[bucket->first_param];
    if (ech_bucket_meets(bucket)) return "its weights are gathered whole";
    if (ech_plan_state_of(plan, first, ECH_STATE_RESIDUAL) >= 0)
        return "its gradients are compressed whole";
    if (bucket->rounds == 0)
        return has_columns(plan, bucket) ? "states by column follow from all rows" : NULL;
    switch (rounds_read(plan, bucket)) {
    case ECH_ROUNDS_READ_ALL:
        return "its optimizer first computes statistics of all of it";
    case ECH_ROUNDS_READ_PARAM:
        return has_param_on_host(plan, bucket) ? NULL
                                               : "its optimizer first reads all weights, which "
                                                 "are not on the host";
    case ECH_ROUNDS_READ_GRADIENT:
        break;
    }
    return NULL;
}

static bool is_cut(const ech_plan *plan, const ech_bucket *bucket)
{
    return ech_bucket_leaves(bucket) && !ech_bucket_uncut(plan, bucket);
}

/* A piece begins at a multiple of the alignment of host and disk values, in each type. */
static void cut_update(const ech_plan *plan, ech_bucket *bucket, int64_t most_bytes)
{
    int64_t first, all = ech_bucket_updated(bucket, &first);
    int64_t unit = common_multiple(bucket->unit,
                                   plan->alignment[ECH_SPACE_HOST] / narrowest_item(bucket));
    int64_t units = most_bytes / (int64_t)ech_dtype_bytes(bucket->dtype) / unit;
    bucket->pieces = 1;
    bucket->piece = (units ? units : 1) * unit;
    if (is_cut(plan, bucket) && all > bucket->piece)
        bucket->pieces = (int)((all + bucket->piece - 1) / bucket->piece);
}

void ech_pass_pieces(ech_plan *plan, const ech_config *config)
{
    for (size_t b = 0; b < plan->bucket.n; b++)
        cut_update(plan, &plan->bucket.at[b], config->parallel.bucket_bytes);
}

int ech_step_state_use(const ech_plan *plan, const ech_step *step, int state)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    bool round = step->kind == ECH_STEP_STATISTICS_ON_HOST && bucket->pieces > 1;
    if (!round || plan->states == ECH_SPACE_HOST) return state;
    return state - bucket->states;
}

int64_t ech_step_part(const ech_plan *plan, const ech_step *step, int64_t *first)
{
    return ech_bucket_piece(&plan->bucket.at[step->index], ech_step_piece(step), first);
}

int64_t ech_step_part_of(const ech_plan *plan, const ech_step *step, int param, int64_t *first)
{
    const ech_plan_param *p = &plan->param[param];
    int64_t updated, part, n = ech_step_part(plan, step, &part);
    ech_bucket_updated(&plan->bucket.at[p->bucket], &updated);
    int64_t begin = updated + part - p->bucket_offset, end = begin + n;
    if (begin < 0) begin = 0;
    if (end > p->elements) end = p->elements;
    *first = end > begin ? begin : 0;
    return end > begin ? end - begin : 0;
}

int64_t ech_step_part_in(const ech_plan *plan, const ech_step *step, int64_t elements)
{
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    int64_t updated, part, n = ech_step_part(plan, step, &part);
    int64_t all = ech_bucket_updated(bucket, &updated);
    if (elements == n) return 0;
    return elements == all ? part : updated + part;
}

void ech_pass_bucket(ech_plan *plan, const ech_config *config)
{
    for (int p = 0; p < (int)plan->model->param.n; p++)
        if (plan->param[p].elements) put(plan, p, config);
    list_params(plan);
    for (size_t b = 0; b < plan->bucket.n; b++) {
        cut(plan, &plan->bucket.at[b]);
        plan_factors(plan, &plan->bucket.at[b]);
    }
}

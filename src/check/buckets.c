/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks gradients: each parameter of the rank's blocks is in one bucket, and in every turn each bucket is written by all
 * its writers, and then goes its way (bucket_stages.def): every stage in which it takes part comes once, in order, and
 * knows that the one before has ended. Who writes is asked of the model, and of the accesses where the list has them: a
 * step accesses the gradients that it writes, and one that works on a bucket's gradients these and no others. In which
 * stages a bucket takes part is asked of layout, model and what the optimizer declares, not of the plan.
 *
 * If gradients leave the device between the steps that write them, one value holds their sum so far.
 * Steps write that value and no other, copies move it, and the bucket's next stage reads the latest.
 */
#include <stdlib.h>
#include <string.h>

#include "check/checker.h"
#include "schedule/bucket_way.h"
#include "schedule/protocol/protocol.h"

/* Of one micro-batch's gradients of a bucket whose way has stages for each. */
typedef struct instance {
    int step;     /* the last that writes them, + 1 */
    int accessed; /* the last that accesses them, + 1 */
    bool summed;
} instance;

/* How far a bucket has come in a turn. */
typedef struct course {
    ech_bucket_place at;
    int step; /* the last that has brought it there */
    int turn;
} course;

typedef struct bucket_state {
    ech_bucket_way way; /* counted here, from layout and model */
    course now;         /* `written` false: of its gradients there are none yet */
    bool written;
    /* [pieces] Gradients that have left for the host, of even turns and of odd ones: those of the
     * next turn may be written while the update runs. left: pieces whose update has not ended. */
    course *away[2];
    int left[2];
    int sum; /* the value with the sum so far of the turn's gradients; 0: nothing has written it */
    /* Of layer states: [turns] the last step that writes partials of that turn, + 1; otherwise NULL. */
    int *written_in;
    int accessed; /* the last step that accesses its gradients, but for those of one micro-batch, + 1 */
    instance *of; /* [micro-batches] of the turn */
    int summed;   /* of these */
    bool met;     /* pushes: workers and servers have the same weights after the span */
} bucket_state;

typedef struct audit {
    const ech_plan *plan;
    const ech_list *list;
    bucket_state *bucket;
    course *away; /* of all buckets */
    instance *instance; /* [buckets * micro-batches] */
    ech_known known;
    int read; /* the last step that has fetched a turn's scalars for updates on the host */
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

static const char *text_of(ech_bucket_place at)
{
    return ech_bucket_row_of(at.stage)->text;
}

/* A micro-batch's number in its turn. */
static int number_of(const audit *a, int micro)
{
    return ech_micro_at(a->list->numbering, micro).micro_batch;
}

/* Of the step's micro-batch; NULL: the bucket has none. */
static instance *instance_of(const audit *a, int s, int bucket)
{
    const bucket_state *b = &a->bucket[bucket];
    int micro = a->list->step.at[s].micro;
    return b->way.each && micro >= 0 ? &b->of[number_of(a, micro)] : NULL;
}

static ech_status write_bucket(audit *a, int s, int bucket)
{
    bucket_state *b = &a->bucket[bucket];
    instance *of = instance_of(a, s, bucket);
    int turn = a->list->step.at[s].turn;
    if (b->written_in && turn > b->now.turn) {
        b->written_in[turn] = s + 1;
        return ECH_OK;
    }
    if (of ? of->summed : b->written && b->now.at.stage != ECH_BUCKET_WRITE)
        return ech_list_reject(a->plan, a->list, s, "writes a gradient after its %s",
                               text_of(b->now.at));
    if (turn != b->now.turn)
        return ech_list_reject(
            a->plan, a->list, s,
            "writes a gradient of bucket %d in turn %d; the bucket is in turn %d", bucket, turn,
            b->now.turn);
    if (of) of->step = s + 1;
    if (!b->summed) b->now.at = (ech_bucket_place){.stage = ECH_BUCKET_WRITE};
    b->written = true;
    b->now.step = s;
    return ECH_OK;
}

/* Outlines have no accesses, nor have lists that the passes have not made. */
static bool has_accesses(const audit *a)
{
    return a->plan->persistent.n && a->list->access.n;
}

/* micro: of the value with gradients of one micro-batch; -1: of others. */
static ech_status note_access(audit *a, int s, int bucket, int micro)
{
    const ech_step *step = &a->list->step.at[s];
    if (micro < 0)
        a->bucket[bucket].accessed = s + 1;
    else if (!instance_of(a, s, bucket) || number_of(a, step->micro) != number_of(a, micro))
        return ech_list_reject(a->plan, a->list, s, "accesses gradients of another micro-batch");
    else
        instance_of(a, s, bucket)->accessed = s + 1;
    return ECH_OK;
}

/* A step writes the value with the sum so far, and begins one if the turn has none. */
static ech_status write_sum(audit *a, int s, int bucket, int value)
{
    bucket_state *b = &a->bucket[bucket];
    if (b->way.commits) return ECH_OK; /* a value for each turn */
    if (!b->sum) b->sum = value;
    if (b->sum == value) return ECH_OK;
    return ech_list_reject(a->plan, a->list, s,
                           "writes gradients of bucket %d apart from their sum so far", bucket);
}

static bool copies_gradients(const ech_step *step)
{
    bool copies = step->kind == ECH_STEP_FETCH || step->kind == ECH_STEP_OFFLOAD;
    return copies && step->resource == ECH_RESOURCE_GRADIENTS;
}

/* A copy takes the sum so far to another value. */
static ech_status move_sum(audit *a, int s)
{
    const ech_step *step = &a->list->step.at[s];
    const ech_access *pair = &a->list->access.at[step->first_access];
    if (!copies_gradients(step)) return ECH_OK;
    if (step->index < 0 || step->index >= (int)a->plan->bucket.n)
        return ech_list_reject(a->plan, a->list, s, "is of a bucket that this rank does not have");
    bucket_state *b = &a->bucket[step->index];
    if (step->turn != b->now.turn || !b->written || b->now.at.stage > ECH_BUCKET_SCATTER_EACH)
        return ech_list_reject(a->plan, a->list, s,
                               "copies gradients of bucket %d, which are not being written",
                               step->index);
    if (!has_accesses(a)) return ECH_OK;
    if (step->accesses != 2 || pair[0].value != b->sum)
        return ech_list_reject(a->plan, a->list, s,
                               "copies gradients of bucket %d that are not their sum so far",
                               step->index);
    b->sum = pair[1].value;
    return ECH_OK;
}

static ech_status check_accesses(audit *a, int s)
{
    const ech_step *step = &a->list->step.at[s];
    bool has_bucket = ech_step_has_bucket(step) || copies_gradients(step);
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &a->list->access.at[step->first_access + i];
        int value = access->value - (int)a->plan->persistent.n;
        if (value < 0 || a->list->value.at[value].kind != ECH_MEMORY_GRADIENTS) continue;
        int bucket = a->list->value.at[value].index;
        if (has_bucket && bucket != step->index)
            return ech_list_reject(a->plan, a->list, s, "accesses gradients of bucket %d", bucket);
        ECH_TRY(note_access(a, s, bucket, a->list->value.at[value].micro));
        if (!access->write || step->block < 0) continue;
        ECH_TRY(write_bucket(a, s, bucket));
        if (!a->bucket[bucket].way.each) ECH_TRY(write_sum(a, s, bucket, access->value));
    }
    return move_sum(a, s);
}

static ech_status fail_access(const audit *a, int s, int bucket)
{
    return ech_list_reject(a->plan, a->list, s, "does not access the gradients of bucket %d",
                           bucket);
}

/* Of a bucket's step; of a sum of one micro-batch's gradients both these and what they are added
 * to. */
static ech_status expect_access(const audit *a, int s, int bucket)
{
    const instance *of = instance_of(a, s, bucket);
    bool all = a->bucket[bucket].accessed == s + 1 && (!of || of->accessed == s + 1);
    return !has_accesses(a) || all ? ECH_OK : fail_access(a, s, bucket);
}

/* Whose gradients the step's next access to some, from *i on, is to; -1: there is none. */
static int next_gradients(const audit *a, const ech_step *step, int *i)
{
    while (*i < step->accesses) {
        int value = a->list->access.at[step->first_access + (*i)++].value;
        if (value < (int)a->plan->persistent.n) continue;
        const ech_value *v = &a->list->value.at[value - (int)a->plan->persistent.n];
        if (v->kind == ECH_MEMORY_GRADIENTS) return v->index;
    }
    return -1;
}

/* A step of a block accesses gradients in the order in which its calls write them, and no others.
 * */
static ech_status write_by_model(audit *a, int s)
{
    const ech_step *step = &a->list->step.at[s];
    int phase = ech_step_kind_phase(step->kind), at = 0;
    if (phase < 0) return ECH_OK;
    const ech_block *block = a->plan->model->block.at[step->block];
    for (int c = step->first_call; c < step->first_call + step->calls; c++) {
        const ech_block_call *call = &block->program[phase].at[c];
        for (const ech_operand *o = NULL; (o = ech_call_next(block, call, ECH_TRAIN, o));) {
            if (o->port != ECH_PORT_DPARAM) continue;
            int bucket = a->plan->param[o->value].bucket;
            if (has_accesses(a) && next_gradients(a, step, &at) != bucket)
                return fail_access(a, s, bucket);
            ECH_TRY(write_bucket(a, s, bucket));
        }
    }
    int more = next_gradients(a, step, &at);
    if (more < 0) return ECH_OK;
    return ech_list_reject(a->plan, a->list, s, "accesses gradients of bucket %d", more);
}

/* ---- statistics ---- */

/* The rounds that the parameters of a bucket declare, and after which ranks must fold: those that
 * have cut the dimensions over which something is taken. Shards of buckets cut the first; each of a
 * stack has its own. */
static void find_rounds(const ech_plan *plan, const ech_bucket *bucket, ech_bucket_way *way)
{
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        const ech_plan_param *p = &plan->param[param];
        const ech_shape *shape = &plan->model->param.at[param].shape;
        unsigned first = ech_shape_has(shape, ECH_AXIS_EXPERTS) ? 2 : 1; /* of one of a stack */
        for (int k = 0; k < p->statistics; k++) {
            const ech_statistic *s = &plan->statistic.at[p->first_statistic + k].is;
            if (s->round >= way->rounds) way->rounds = s->round + 1;
            way->folds_shards[s->round] |= way->sharded && s->over & first;
            for (int d = 0; d < shape->dims; d++)
                way->folds[s->round] |= s->fold != ECH_SHARDS_OWNER && s->over >> d & 1u &&
                                        ech_axis_shards(shape->axis[d], plan->layout->sharding) > 1;
        }
    }
}

/* Whether its parameters are layer states, as the model says. */
static bool is_of_states(const ech_plan *plan, int index)
{
    int first = plan->bucket_param.at[plan->bucket.at[index].first_param];
    return plan->model->param.at[first].commit != NULL;
}

/* Whether its parameters have such a state: of compressed gradients what is not sent, of those that
 * are sent as factors a basis. */
static bool keeps(const ech_plan *plan, int index, ech_state_role role)
{
    int first = plan->bucket_param.at[plan->bucket.at[index].first_param];
    return ech_plan_state_of(plan, first, role) >= 0;
}

/* Over whom: who adds to the gradients, and the tensor ranks that have shards of any of its
 * matrices. */
static ech_layout_group factored_over(const ech_plan *plan, int index)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    for (int i = 0; i < bucket->params && keeps(plan, index, ECH_STATE_BASIS); i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        const ech_shape *shape = &plan->model->param.at[param].shape;
        if (ech_shape_copies(shape, plan->layout->sharding) < plan->layout->tensor)
            return ech_layout_group_over(ech_layout_group_axes(bucket->group) | ECH_MESH_TENSOR);
    }
    return bucket->group;
}

static ech_bucket_way way_of(const ech_plan *plan, int index)
{
    ech_layout_group group = plan->bucket.at[index].group;
    ech_bucket_way way = {
        .shared = ech_layout_group_size(plan->layout, plan->model, plan->rank, group) > 1,
        .stashes = plan->versions > 1,
        .commits = is_of_states(plan, index),
        .compressed = keeps(plan, index, ECH_STATE_RESIDUAL),
        .chosen = keeps(plan, index, ECH_STATE_RESIDUAL) && !keeps(plan, index, ECH_STATE_BASIS),
        .factors_meet = ech_layout_group_size(plan->layout, plan->model, plan->rank,
                                              factored_over(plan, index)) > 1,
        .weights = plan->weights,
        .masters = ech_plan_has_masters(plan, &plan->bucket.at[index]),
        .last = true,
        .states = plan->states};
    if (way.commits) way.states = way.weights = ECH_SPACE_DEVICE;
    way.stages = ech_protocol_stages(plan);
    bool shared_out =
        plan->zero > 0 || plan->layout->servers || (plan->layout->protocol == ECH_PROTOCOL_CENTRAL);
    way.sharded = way.shared && shared_out && !way.commits;
    way.each = way.sharded && plan->zero > 1 && group != ECH_GROUP_TIED && !way.compressed;
    way.gathered = way.each && plan->zero > 2;
    find_rounds(plan, &plan->bucket.at[index], &way);
    return way;
}

/* ---- the way ---- */

/* The step sums a micro-batch's gradients, which have been written, once; the turn's first sum
 * overwrites. *before: the last step that writes them. */
static ech_status sum_instance(audit *a, int s, bucket_state *b, int *before)
{
    const ech_step *step = &a->list->step.at[s];
    instance *of = instance_of(a, s, step->index);
    if (!of || !of->step || of->summed)
        return ech_list_reject(a->plan, a->list, s, "sums gradients that are not there");
    if (step->adds != (b->summed > 0))
        return ech_list_reject(a->plan, a->list, s, "%s to what %d others have left",
                               step->adds ? "adds" : "does not add", b->summed);
    *before = of->step - 1;
    of->summed = true;
    b->summed++;
    if (!has_accesses(a)) return ECH_OK;
    return write_sum(a, s, step->index, ech_list_shard_sum(a->plan, a->list, step));
}

/* Whose group meets at that stage, if any does. */
static bool is_over(const audit *a, const ech_step *step, const ech_bucket_row *row)
{
    ech_layout_group group = a->plan->bucket.at[step->index].group;
    if (row->group == ECH_BUCKET_FACTORS) group = factored_over(a->plan, step->index);
    if (row->group < ECH_GROUPS) group = (ech_layout_group)row->group;
    return !ech_step_gathers(step) || step->group == group;
}

/* Of the gradients on the device; a stash and a gather are of weights, a fold of statistics, sums
 * of those that are compressed, and the norm of these, of factors or selections. */
static bool is_of_gradients(const bucket_state *b, ech_bucket_stage stage)
{
    if (stage == ECH_BUCKET_REDUCE_LEFT || stage == ECH_BUCKET_REDUCE_RIGHT ||
        stage == ECH_BUCKET_GATHER_CHOSEN)
        return false;
    if (stage == ECH_BUCKET_NORM) return !b->way.compressed;
    return stage < ECH_BUCKET_NORM || stage == ECH_BUCKET_GRADIENTS_OUT ||
           stage == ECH_BUCKET_DECOMPRESS || stage == ECH_BUCKET_STATISTICS ||
           stage == ECH_BUCKET_UPDATE || stage == ECH_BUCKET_ADD;
}

/* A server's gradients are the workers': they are there when a turn begins. */
static bool begin_served(const audit *a, bucket_state *b)
{
    if (!ech_layout_serves(a->plan->layout, a->plan->rank)) return false;
    b->now.at = (ech_bucket_place){.stage = ECH_BUCKET_WRITE};
    b->written = b->now.turn < a->list->turns;
    return true;
}

/* The gradients' way is over: they have left for the host, or the turn has ended. */
static void end_turn(const audit *a, bucket_state *b)
{
    memset(b->of, 0, (size_t)a->list->numbering.micro_batches * sizeof *b->of);
    b->summed = b->sum = 0;
    b->written = false;
    b->now.turn++;
    if (begin_served(a, b)) return;
    if (!b->written_in || b->now.turn >= a->list->turns || !b->written_in[b->now.turn]) return;
    b->now.at = (ech_bucket_place){.stage = ECH_BUCKET_WRITE};
    b->written = true;
    b->now.step = b->written_in[b->now.turn] - 1;
}

static int pieces_of(const audit *a, const ech_step *step)
{
    return a->plan->bucket.at[step->index].pieces;
}

/* A stage that comes once follows the last piece, and knows that the updates of all have ended. */
static ech_status join_pieces(audit *a, int s, const bucket_state *b, int *before)
{
    const ech_step *step = &a->list->step.at[s];
    int place = step->turn % 2;
    if (b->left[place] > 1)
        return ech_list_reject(a->plan, a->list, s,
                               "comes before the updates of %d other pieces of its bucket",
                               b->left[place] - 1);
    for (int k = 0; k < pieces_of(a, step); k++)
        if (b->away[place][k].step > *before) *before = b->away[place][k].step;
    return ECH_OK;
}

/* The step brings its bucket, or a piece, to the next place, and knows that the step of the
 * place before has ended. last: it is all of the bucket, or its last piece. */
static ech_status advance(audit *a, int s, bucket_state *b, course *on, bool last)
{
    const ech_step *step = &a->list->step.at[s];
    bool again = on == &b->now && b->summed && b->summed < a->list->numbering.micro_batches;
    ech_bucket_way way = b->way;
    way.last = last;
    ech_bucket_place next = again ? on->at : ech_bucket_next(&way, on->at);
    if (next.stage == ECH_BUCKET_STAGES)
        return ech_list_reject(a->plan, a->list, s, "is of a piece whose update has ended");
    const ech_bucket_row *row = ech_bucket_row_of(next.stage);
    bool of_piece = row->repeats == ECH_REPEATS_PIECE;
    int round = of_piece ? ech_step_piece(step) : next.round; /* pieces have their own courses */
    if (step->kind != row->kind || step->count != round || !is_over(a, step, row))
        return ech_list_reject(a->plan, a->list, s, "comes where its bucket's %s is next, round %d",
                               row->text, next.round);
    int before = on->step;
    if (on != &b->now && !of_piece) ECH_TRY(join_pieces(a, s, b, &before));
    ech_bucket_place behind = on->at;
    if (row->point == ECH_POINT_MICRO_BATCH) {
        behind = (ech_bucket_place){.stage = ECH_BUCKET_WRITE};
        ECH_TRY(sum_instance(a, s, b, &before));
    }
    ech_lane lane = a->list->step.at[before].lane;
    if (lane != step->lane && a->known.step[step->lane][lane] < before)
        return ech_list_reject(a->plan, a->list, s, "does not wait for the %s", text_of(behind));
    if (is_of_gradients(b, next.stage)) ECH_TRY(expect_access(a, s, step->index));
    if (is_of_gradients(b, next.stage) && row->point != ECH_POINT_MICRO_BATCH && b->sum &&
        step->accesses && ech_list_gradients(a->plan, a->list, step, step->index) != b->sum)
        return ech_list_reject(a->plan, a->list, s,
                               "works on gradients of bucket %d that are not their sum",
                               step->index);
    const ech_step *read = &a->list->step.at[a->read];
    if (step->lane == ECH_LANE_HOST &&
        (read->kind != ECH_STEP_READ_UPDATE || read->turn != step->turn ||
         a->known.step[step->lane][read->lane] < a->read))
        return ech_list_reject(a->plan, a->list, s, "does not wait for the turn's scalars");
    on->at = next;
    on->step = s;
    bool leaves = next.stage == ECH_BUCKET_GRADIENTS_OUT;
    bool ends = ech_bucket_next(&way, next).stage == ECH_BUCKET_STAGES;
    int place = step->turn % 2;
    if (leaves && b->left[place])
        return ech_list_reject(a->plan, a->list, s, "comes before the update of turn %d has ended",
                               b->away[place]->turn);
    for (int k = 0; leaves && k < pieces_of(a, step); k++) b->away[place][k] = b->now;
    if (leaves) b->left[place] = pieces_of(a, step);
    if (ends && on != &b->now) b->left[place]--;
    if (on == &b->now && (leaves || ends)) end_turn(a, b);
    return ECH_OK;
}

/* A push has come: its gradients are those of the turn. */
static ech_status serve(audit *a, int s)
{
    const ech_step *step = &a->list->step.at[s];
    for (size_t b = 0; b < a->plan->bucket.n; b++) {
        bucket_state *of = &a->bucket[b];
        if (step->turn != of->now.turn || of->now.at.stage != ECH_BUCKET_WRITE)
            return ech_list_reject(a->plan, a->list, s,
                                   "comes before the push of turn %d is served", of->now.turn);
        of->now.step = s;
    }
    return ECH_OK;
}

/* Behind a span all have the newest weights, by one step for each bucket. */
static ech_status meet(audit *a, int s)
{
    int b = a->list->step.at[s].index;
    if (b < 0 || b >= (int)a->plan->bucket.n || a->bucket[b].now.turn != a->list->turns)
        return ech_list_reject(a->plan, a->list, s, "comes before all pushes are served");
    if (a->bucket[b].met)
        return ech_list_reject(a->plan, a->list, s, "distributes a bucket's weights again");
    if (a->list->step.at[s].turn != 0)
        return ech_list_reject(a->plan, a->list, s, "is of a turn; the whole span's is turn 0");
    a->bucket[b].met = (a->plan->layout->sums == ECH_SUMS_SERVERS);
    return ECH_OK;
}

static bool is_meeting(const audit *a, const ech_step *step)
{
    if ((a->plan->layout->sums == ECH_SUMS_SERVERS)) return step->group == ECH_GROUP_SERVED;
    return step->kind == ECH_STEP_PULL && step->index >= 0 &&
           step->index < (int)a->plan->bucket.n &&
           a->bucket[step->index].now.turn == a->list->turns;
}

/* A step of an update whose gradients have left: of a piece, or of all after the last one. */
static ech_status update_piece(audit *a, int s, bucket_state *b)
{
    const ech_step *step = &a->list->step.at[s];
    int pieces = pieces_of(a, step), piece = ech_step_piece(step);
    bool once = pieces > 1 && !piece;
    if (piece < 0 || piece > pieces || (piece && pieces == 1))
        return ech_list_reject(a->plan, a->list, s, "is of piece %d; its bucket has %d", piece,
                               pieces);
    int at = once ? pieces - 1 : piece ? piece - 1 : 0;
    return advance(a, s, b, &b->away[step->turn % 2][at], at == pieces - 1);
}

static ech_status use_bucket(audit *a, int s)
{
    const ech_step *step = &a->list->step.at[s];
    if (step->kind == ECH_STEP_SERVE) return serve(a, s);
    if (!ech_step_has_bucket(step) || ech_step_brings_weights(step)) return ECH_OK;
    if (is_meeting(a, step)) return meet(a, s);
    if (step->index < 0 || step->index >= (int)a->plan->bucket.n)
        return ech_list_reject(a->plan, a->list, s, "is of a bucket that this rank does not have");
    bucket_state *b = &a->bucket[step->index];
    if (b->left[step->turn % 2] && step->turn == b->away[step->turn % 2]->turn)
        return update_piece(a, s, b);
    if (step->turn != b->now.turn)
        return ech_list_reject(a->plan, a->list, s, "is of turn %d; its bucket is in turn %d",
                               step->turn, b->now.turn);
    if (!b->written)
        return ech_list_reject(a->plan, a->list, s, "is of a bucket that nothing has written");
    return advance(a, s, b, &b->now, true);
}

/* Of how many turns the bucket's gradients have left and have not updated it. */
static int updates_left(const audit *a, size_t bucket)
{
    return (a->bucket[bucket].left[0] > 0) + (a->bucket[bucket].left[1] > 0);
}

static ech_status check_steps(audit *a)
{
    for (int s = 0; s < (int)a->list->step.n; s++) {
        ech_known_learn(&a->known, a->list, &a->list->step.at[s]);
        if (a->list->step.at[s].kind == ECH_STEP_READ_UPDATE) a->read = s;
        ECH_TRY(check_accesses(a, s));
        ECH_TRY(write_by_model(a, s));
        ECH_TRY(use_bucket(a, s));
    }
    for (size_t b = 0; b < a->plan->bucket.n; b++)
        if (a->bucket[b].now.turn != a->list->turns || a->bucket[b].written || updates_left(a, b))
            return ech_list_reject(a->plan, a->list, (int)a->list->step.n - 1,
                                   "ends a list without every update: bucket %zu had %d of %d", b,
                                   a->bucket[b].now.turn - updates_left(a, b), a->list->turns);
    for (size_t b = 0; b < a->plan->bucket.n && (a->plan->layout->sums == ECH_SUMS_SERVERS); b++)
        if (!a->bucket[b].met)
            return ech_list_reject(a->plan, a->list, (int)a->list->step.n - 1,
                                   "ends a list in which bucket %zu's last weights stay at servers",
                                   b);
    return ECH_OK;
}

/* Pieces cover what the rank updates of a bucket, each element once: the last one ends where that
 * ends. They cut no unit of the optimizer's, and no bucket whose optimizer must know all of it. */
static ech_status check_pieces(const ech_plan *plan, int index)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    ech_bucket_way way = way_of(plan, index);
    int64_t first, all = ech_bucket_updated(bucket, &first), end = 0;
    if (bucket->pieces == 1) return ECH_OK;
    bool may = bucket->pieces > 1 && way.states != ECH_SPACE_DEVICE && way.rounds == 0 &&
               bucket->piece % bucket->unit == 0;
    for (int k = 1; k <= bucket->pieces && may; k++) {
        int64_t n = ech_bucket_piece(bucket, k, &first);
        may = n > 0 && first == end;
        end += n;
    }
    if (may && end == all) return ECH_OK;
    ECH_FAIL(ECH_EINTERNAL,
             "schedule check, rank %d: bucket %d is cut into %d pieces of %lld elements, which do "
             "not make up the %lld that the rank updates, or may not be cut",
             plan->rank, index, bucket->pieces, (long long)bucket->piece, (long long)all);
}

/* Places for the courses of each bucket's pieces. */
static void begin_away(audit *a)
{
    size_t pieces = 0;
    for (size_t b = 0; b < a->plan->bucket.n; b++) pieces += (size_t)a->plan->bucket.at[b].pieces;
    course *next = a->away = ech_calloc(2 * pieces + 1, sizeof *a->away);
    for (size_t b = 0; b < a->plan->bucket.n; b++)
        for (int turn = 0; turn < 2; turn++) {
            a->bucket[b].away[turn] = next;
            next += a->plan->bucket.at[b].pieces;
        }
}

ech_status ech_check_buckets(const ech_plan *plan, const ech_list *list)
{
    ECH_TRY(check_params(plan));
    for (int b = 0; b < (int)plan->bucket.n; b++) ECH_TRY(check_pieces(plan, b));
    size_t buckets = plan->bucket.n, micro_batches = (size_t)list->numbering.micro_batches;
    audit a = {.plan = plan,
               .list = list,
               .known = ech_known_begin(),
               .bucket = ech_calloc(buckets, sizeof *a.bucket),
               .instance = ech_calloc(buckets * micro_batches + 1, sizeof *a.instance)};
    begin_away(&a);
    size_t turns = (size_t)list->turns;
    ECH_FREED int *written_in = ech_calloc(buckets * turns + 1, sizeof *written_in);
    for (size_t b = 0; b < buckets; b++) {
        a.bucket[b].way = way_of(plan, (int)b);
        if (a.bucket[b].way.commits) a.bucket[b].written_in = &written_in[b * turns];
        a.bucket[b].of = &a.instance[b * micro_batches];
        begin_served(&a, &a.bucket[b]);
    }
    ech_status status = check_steps(&a);
    free(a.bucket);
    free(a.away);
    free(a.instance);
    return status;
}

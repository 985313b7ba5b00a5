/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the frame pass for single buckets: it moves each along its path (bucket_stages.def),
 * from the completion of its gradients to its update, including copies for updates on the host.
 */
#include "schedule/framing.h"
#include "schedule/operands.h"
#include "schedule/states.h"

static int *gathered(const ech_framing *f, int bucket, int version)
{
    return &f->gathered[bucket * f->plan->versions + ech_plan_slot(f->plan, version)];
}

/* Makes the step being added, of the compute lane, wait for a gather whose result it reads, or
 * whose slot it overwrites. The gather lane ends its steps in order. */
static void await_gather(ech_framing *f, int gather)
{
    if (gather > f->known) ech_list_add_after(f->list, f->known = gather);
}

void ech_frame_await_weights(ech_framing *f, const ech_step *step)
{
    int last = -1;
    if (!f->gathered || ech_step_params(step) != ECH_PARAMS_READ) return;
    const ech_block *block = f->plan->model->block.at[step->block];
    for (int c = step->first_call; c < step->first_call + step->calls; c++) {
        const ech_block_call *call = &block->program[step->phase].at[c];
        for (const ech_operand *o = NULL; (o = ech_call_next(block, call, ECH_TRAIN, o));) {
            if (o->port != ECH_PORT_PARAM) continue;
            int gather = *gathered(f, f->plan->param[o->value].bucket, step->version);
            if (gather > last) last = gather;
        }
    }
    await_gather(f, last);
}

void ech_frame_await_leave(ech_framing *f, size_t s)
{
    for (int i = f->away ? f->first_begun[s] : -1; i >= 0; i = f->next_begun[i]) {
        int away = f->away[i % (int)f->plan->bucket.n];
        if (away >= 0) ech_list_add_after(f->list, away);
    }
}

/* ---- the path ---- */

static ech_bucket_way way_of(const ech_plan *plan, const ech_bucket *bucket)
{
    ech_bucket_way way = {.stages = ech_protocol_stages(plan, bucket),
                          .shared = ech_frame_is_shared(plan, bucket->group),
                          .sharded = ech_bucket_is_sharded(bucket),
                          .each = ech_bucket_scatters_each(bucket),
                          .gathered = ech_bucket_is_gathered(bucket),
                          .compressed = bucket->compressed,
                          .chosen = bucket->chosen > 0,
                          .factors_meet = ech_frame_is_shared(plan, bucket->factored),
                          .stashes = plan->versions > 1,
                          .commits = bucket->commits,
                          .weights = ech_bucket_is_fetched(bucket) ? bucket->of_weights.where
                                                                   : ECH_SPACE_DEVICE,
                          .states = bucket->of_states.where,
                          .masters = ech_plan_has_masters(plan, bucket),
                          .first = true,
                          .last = true,
                          .rounds = bucket->rounds};
    for (int i = 0; i < bucket->rounds; i++) {
        way.folds_shards[i] = bucket->folded[i][ECH_FOLD_SHARDS].bytes > 0;
        way.folds[i] = bucket->folded[i][ECH_FOLD_TENSOR].bytes > 0;
    }
    return way;
}

static ech_layout_group group_of(const ech_bucket *bucket, const ech_bucket_row *row)
{
    if (row->group == ECH_BUCKET_ADDENDS) return bucket->group;
    return row->group == ECH_BUCKET_FACTORS ? bucket->factored : (ech_layout_group)row->group;
}

/* Adds the step of that position. It waits for the previous one's step; a lane keeps its order. */
static int add_stage(ech_framing *f, const ech_turn_buckets *of, const ech_on_way *on,
                     ech_bucket_position at)
{
    const ech_bucket_row *row = ech_bucket_row_of(at.stage);
    int bucket = on->bucket, before = on->step;
    int here = ech_frame_add(f, row->kind, of->turn, bucket, -1);
    ech_step *step = &f->list->step.at[here];
    step->count = row->repeats == ECH_REPEATS_PIECE ? on->piece : at.round;
    step->version = row->version < 0 ? 0 : of->turn + row->version;
    step->group = group_of(&f->plan->bucket.at[bucket], row);
    if (step->lane != f->list->step.at[before].lane) ech_list_add_after(f->list, before);
    bool works_there = row->point == ECH_POINT_LEAVES || step->lane == ECH_LANE_HOST;
    bool needs_room = row->point == ECH_POINT_BRINGS || (works_there && !of->has_room);
    if (needs_room && on->room >= 0) ech_list_add_after(f->list, on->room);
    if (step->lane == ECH_LANE_HOST) ech_list_add_after(f->list, of->scalars);
    if (step->kind == ECH_STEP_SCATTER_GRADS && step->group == ECH_GROUP_PUSHED)
        f->away[bucket] = here;
    if (row->point < ECH_POINT_UPDATES) return here;
    if (ech_bucket_is_served(
            &f->plan->bucket
                 .at[bucket])) /* no update is between them and the readers of the weights */
        ech_list_add_after(f->list, ech_frame_last_compute(f->list));
    int gather = *gathered(f, bucket, of->turn + 1);
    if (at.stage == ECH_BUCKET_ADD && of->turn == 0 && f->met >= 0)
        ech_list_add_after(f->list, f->met);
    if (at.stage == ECH_BUCKET_GATHER || at.stage == ECH_BUCKET_PUBLISH)
        *gathered(f, bucket, step->version) = here;
    else if (step->lane == ECH_LANE_COMPUTE)
        await_gather(f, gather);
    else if (ech_step_params(step) == ECH_PARAMS_UPDATE && gather >= 0)
        ech_list_add_after(f->list, gather);
    return here;
}

/* Advances a bucket, or a piece, to the next stage if that occurs by the given point of the
 * turn. */
static bool advance_once(ech_framing *f, const ech_turn_buckets *of, ech_on_way *on,
                         ech_bucket_point point)
{
    ech_bucket_position next = ech_bucket_next(&on->way, on->at);
    if (next.stage == ECH_BUCKET_STAGES || ech_bucket_row_of(next.stage)->point > point)
        return false;
    on->step = add_stage(f, of, on, next);
    on->at = next;
    return true;
}

/* Advances it along its path up to that point. */
static void advance(ech_framing *f, const ech_turn_buckets *of, ech_on_way *on,
                    ech_bucket_point point)
{
    while (advance_once(f, of, on, point)) continue;
}

/* Number of instances of the bucket's gradients in a turn. */
static int instances_of(const ech_framing *f, int bucket)
{
    return ech_bucket_scatters_each(&f->plan->bucket.at[bucket]) ? f->list->numbering.micro_batches
                                                                 : 1;
}

void ech_frame_complete(ech_framing *f, int bucket, size_t writer)
{
    ech_turn_buckets *of = &f->buckets;
    ech_on_way *on = &of->on[bucket];
    int here = f->now[writer], first = (int)f->list->step.n;
    on->at = (ech_bucket_position){.stage = ECH_BUCKET_WRITE};
    on->step = here;
    advance(f, of, on, ECH_POINT_MICRO_BATCH);
    for (int s = first; s < (int)f->list->step.n; s++) {
        ech_step *step = &f->list->step.at[s];
        int micro = f->from[writer].micro;
        step->micro = micro - ech_micro_at(f->list->numbering, micro).sequence_chunk;
        step->adds = on->left < instances_of(f, bucket);
        f->scatter = s;
    }
    if (--on->left > 0) return;
    on->left = instances_of(f, bucket);
    of->order[of->ordered++] = bucket;
    advance(f, of, on, ECH_POINT_COMPLETE);
    ech_frame_leave(f, bucket);
}

int ech_frame_take_norm(ech_framing *f, int bucket)
{
    ech_on_way *on = &f->buckets.on[bucket];
    advance(f, &f->buckets, on, ECH_POINT_NORMS);
    return on->step;
}

void ech_frame_norms(ech_framing *f)
{
    ech_turn_buckets *of = &f->buckets;
    for (int i = 0; i < of->ordered; i++)
        advance(f, of, &of->on[of->order[i]], ECH_POINT_FACTORS);
    for (int i = 0; i < of->ordered; i++) ech_frame_take_norm(f, of->order[i]);
    ech_frame_forget_sums(f);
}

/* ---- updates ---- */

/* Number of matrices of a bucket with an owner, counting each matrix of a stack. */
static int owned_by(const ech_plan *plan, const ech_bucket *bucket)
{
    int n = 0;
    for (int i = 0; i < bucket->params; i++)
        n += plan->param[plan->bucket_param.at[bucket->first_param + i]].stacked;
    return n;
}

/* Cuts the turn's buckets into pieces. */
static void cut(const ech_framing *f, ech_turn_buckets *of)
{
    of->piece.n = 0;
    for (int i = 0; i < of->ordered; i++) {
        ech_on_way on = of->on[of->order[i]];
        int pieces = f->plan->bucket.at[on.bucket].pieces;
        for (int k = 1; k <= pieces; k++) {
            on.piece = pieces > 1 ? k : 0;
            on.way.first = k == 1;
            on.way.last = k == pieces;
            ECH_PUSH(of->piece, on);
        }
    }
}

static const ech_bucket *bucket_of(const ech_framing *f, const ech_turn_buckets *of, int piece)
{
    return &f->plan->bucket.at[of->piece.at[piece].bucket];
}

/* The end of the group of the turn's pieces, from number i on, that are updated together: if
 * members of their groups compute for each other, enough pieces to give all of them work. */
static int end_together(const ech_framing *f, const ech_turn_buckets *of, int i)
{
    int members = 1;
    for (int works = 0; i < (int)of->piece.n && works < members; i++) {
        const ech_bucket *bucket = bucket_of(f, of, i);
        if (bucket->owned) members = (int)(bucket->elements / bucket->shard);
        works += bucket->owned ? owned_by(f->plan, bucket) : works == 0;
    }
    return i;
}

/* Advances these along their paths, stage by stage. */
static void advance_together(ech_framing *f, ech_turn_buckets *of, int end, ech_bucket_point point)
{
    for (bool more = true; more;) {
        more = false;
        for (int k = of->next; k < end; k++) more |= advance_once(f, of, &of->piece.at[k], point);
    }
}

/* Begins the updates of the next group, and copies the inputs of the next `prefetch` pieces: the
 * host has room for no more at the same time. */
static void begin_updates(ech_framing *f, ech_turn_buckets *of)
{
    int end = of->end = end_together(f, of, of->next), pieces = (int)of->piece.n;
    for (; of->brought < pieces && of->brought < end + f->plan->prefetch; of->brought++) {
        ech_on_way *on = &of->piece.at[of->brought];
        const ech_bucket *bucket = &f->plan->bucket.at[on->bucket];
        on->room = of->room;
        advance(f, of, on, ECH_POINT_BRINGS);
        of->elements += (double)bucket->elements / bucket->pieces;
    }
    advance_together(f, of, end, ECH_POINT_UPDATES);
}

/* Ends them: there is room for more. */
static void end_updates(ech_framing *f, ech_turn_buckets *of)
{
    advance_together(f, of, of->end, ECH_POINT_ROOM);
    of->room = ech_frame_last_compute(f->list);
    of->next = of->end;
}

/* Ends the updates of a group, and begins the next. */
static void go_on(ech_framing *f, ech_turn_buckets *of)
{
    end_updates(f, of);
    if (of->next < (int)of->piece.n) begin_updates(f, of);
}

static void finish(ech_framing *f, ech_turn_buckets *of)
{
    while (of->next < (int)of->piece.n) go_on(f, of);
    of->piece.n = 0;
    of->ordered = of->next = 0;
}

/* FLOPs of a block's calls. */
static double work_of(const ech_framing *f, const ech_step *step)
{
    double multiplies = 0;
    if (step->lane != ECH_LANE_COMPUTE || step->block < 0) return 0;
    const ech_block *block = f->plan->model->block.at[step->block];
    for (int c = step->first_call; c < step->first_call + step->calls; c++)
        multiplies += ech_call_multiplies(block, &block->program[step->phase].at[c], step->phase,
                                          f->list->extent);
    return 2 * multiplies;
}

/* Copies the inputs of the updates to the host immediately, independently of the next turn's
 * compute. */
static void leave(ech_framing *f, ech_turn_buckets *of)
{
    for (size_t i = 0; i < of->piece.n; i++) advance(f, of, &of->piece.at[i], ECH_POINT_LEAVES);
}

void ech_frame_updates(ech_framing *f)
{
    ech_turn_buckets *of = &f->buckets;
    bool delayed = f->delays && of->turn + 1 < f->list->turns;
    cut(f, of);
    of->next = of->brought = 0;
    of->elements = 0;
    of->room = -1;
    of->has_room = delayed;
    if (delayed) leave(f, of);
    if (of->piece.n) begin_updates(f, of);
    if (!delayed) {
        finish(f, of);
        return;
    }
    ech_turn_buckets under_way = *of;
    *of = f->before;
    f->before = under_way;
    f->done = 0;
}

/* The compute lane waits for an update once its share of the turn's work equals the share of the
 * elements that are brought by then. So room becomes free at the pace of the compute, and a host
 * that is as fast is not waited for; the last updates are waited for at the turn's end. Buckets
 * whose group spans stages also begin there, since their members do not reach the same share of
 * their turns at the same time. */
void ech_frame_follow(ech_framing *f, const ech_step *step)
{
    ech_turn_buckets *of = &f->before;
    if (!f->delays || of->next >= (int)of->piece.n) return;
    f->done += work_of(f, step);
    while (of->brought < (int)of->piece.n && f->done * f->elements >= of->elements * f->work &&
           !ech_frame_comes_last(bucket_of(f, of, of->end)))
        go_on(f, of);
}

void ech_frame_catch_up(ech_framing *f)
{
    finish(f, &f->before);
}

/* ---- the whole turn ---- */

static void begin_turn(const ech_framing *f, ech_turn_buckets *of)
{
    size_t buckets = f->plan->bucket.n;
    of->order = ech_pool_alloc(f->pool, buckets * sizeof *of->order);
    of->on = ech_pool_alloc(f->pool, buckets * sizeof *of->on);
    for (size_t b = 0; b < buckets; b++) {
        of->on[b].bucket = (int)b;
        of->on[b].way = way_of(f->plan, &f->plan->bucket.at[b]);
        of->on[b].left = instances_of(f, (int)b);
    }
}

void ech_frame_begin_buckets(ech_framing *f)
{
    size_t buckets = f->plan->bucket.n, slots = buckets * (size_t)f->plan->versions;
    f->gathered = ech_pool_alloc(f->pool, slots * sizeof *f->gathered);
    for (size_t i = 0; i < slots; i++) f->gathered[i] = -1;
    f->delays = ech_list_is_delayed(f->plan, f->list);
    f->away = ech_pool_alloc(f->pool, buckets * sizeof *f->away);
    for (size_t b = 0; b < buckets; b++) {
        f->away[b] = -1;
        f->elements += (double)f->plan->bucket.at[b].elements;
    }
    begin_turn(f, &f->buckets);
    if (f->delays) begin_turn(f, &f->before);
    for (size_t s = 0; s < f->n && f->delays; s++)
        f->work += work_of(f, &f->from[s]) / f->list->turns;
}

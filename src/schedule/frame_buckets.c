/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the frame pass that goes bucket by bucket: it takes each along its way (bucket_stages.def), from when its
 * gradients are complete to its update, and what is updated on the host there and back.
 */
#include <stdlib.h>

#include "schedule/framing.h"

static int *gathered(const ech_framing *f, int bucket, int version)
{
    return &f->gathered[bucket * f->plan->versions + ech_plan_slot(f->plan, version)];
}

/* The step being added, of the compute lane, comes after a gather: it reads what that makes whole, or puts the next version
 * there. The lane of gathers ends them in order. */
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

/* ---- the way ---- */

static ech_bucket_way way_of(const ech_plan *plan, const ech_bucket *bucket)
{
    ech_bucket_way way = {.shared = ech_frame_is_shared(plan, bucket->group),
                          .sharded = bucket->sharded,
                          .each = bucket->each,
                          .gathered = bucket->gathered,
                          .fetched = bucket->fetched,
                          .stashes = plan->versions > 1,
                          .states = plan->states,
                          .rounds = bucket->rounds};
    for (int i = 0; i < bucket->rounds; i++) {
        way.folds_shards[i] = bucket->folded[i][ECH_FOLD_SHARDS].bytes > 0;
        way.folds[i] = bucket->folded[i][ECH_FOLD_TENSOR].bytes > 0;
    }
    return way;
}

/* The bucket's step of that place. It waits for the one before it; a lane keeps its order. */
static int add_stage(ech_framing *f, const ech_turn_buckets *of, int bucket, int before,
                     ech_bucket_place at)
{
    const ech_bucket_row *row = ech_bucket_row_of(at.stage);
    int here = ech_frame_add(f, row->kind, of->turn, bucket, -1);
    ech_step *step = &f->list->step.at[here];
    step->count = at.round;
    step->version = row->version < 0 ? 0 : of->turn + row->version;
    step->group =
        row->group < ECH_GROUPS ? (ech_layout_group)row->group : f->plan->bucket.at[bucket].group;
    if (step->lane != f->list->step.at[before].lane) ech_list_add_after(f->list, before);
    bool needs_room = row->point == ECH_POINT_LEAVES || row->point == ECH_POINT_BRINGS;
    if (needs_room && of->room >= 0) ech_list_add_after(f->list, of->room);
    if (at.stage == ECH_BUCKET_HOST_UPDATE) ech_list_add_after(f->list, of->scalars);
    if (row->point < ECH_POINT_UPDATES) return here;
    int gather = *gathered(f, bucket, of->turn + 1);
    if (at.stage == ECH_BUCKET_GATHER)
        *gathered(f, bucket, step->version) = here;
    else if (step->lane == ECH_LANE_COMPUTE)
        await_gather(f, gather);
    else if (ech_step_params(step) == ECH_PARAMS_UPDATE && gather >= 0)
        ech_list_add_after(f->list, gather);
    return here;
}

/* Takes a bucket to the next stage, if that comes by a point of the turn. */
static bool advance_once(ech_framing *f, ech_turn_buckets *of, int bucket, ech_bucket_point point)
{
    ech_on_way *on = &of->on[bucket];
    ech_bucket_place next = ech_bucket_next(&on->way, on->at);
    if (next.stage == ECH_BUCKET_STAGES || ech_bucket_row_of(next.stage)->point > point)
        return false;
    on->step = add_stage(f, of, bucket, on->step, next);
    on->at = next;
    return true;
}

/* Takes it along its way up to there. */
static void advance(ech_framing *f, ech_turn_buckets *of, int bucket, ech_bucket_point point)
{
    while (advance_once(f, of, bucket, point)) continue;
}

/* How many instances of the bucket's gradients a turn has. */
static int instances_of(const ech_framing *f, int bucket)
{
    return f->plan->bucket.at[bucket].each ? f->list->numbering.micro_batches : 1;
}

void ech_frame_complete(ech_framing *f, int bucket, size_t writer)
{
    ech_turn_buckets *of = &f->buckets;
    ech_on_way *on = &of->on[bucket];
    int here = f->now[writer], first = (int)f->list->step.n;
    on->at = (ech_bucket_place){.stage = ECH_BUCKET_WRITE};
    on->step = here;
    advance(f, of, bucket, ECH_POINT_MICRO_BATCH);
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
    advance(f, of, bucket, ECH_POINT_COMPLETE);
}

void ech_frame_norms(ech_framing *f)
{
    ech_turn_buckets *of = &f->buckets;
    for (int i = 0; i < of->ordered; i++) advance(f, of, of->order[i], ECH_POINT_NORMS);
}

/* ---- updates ---- */

/* The end of the buckets of the turn, from number i on, that are updated side by side: where members of their groups make
 * something for each other, as many as have work for all of them. */
static int end_together(const ech_framing *f, const ech_turn_buckets *of, int i)
{
    int members = 1;
    for (int works = 0; i < of->ordered && works < members; i++) {
        const ech_bucket *bucket = &f->plan->bucket.at[of->order[i]];
        if (bucket->owned) members = (int)(bucket->elements / bucket->shard);
        works += bucket->owned ? bucket->params : works == 0;
    }
    return i;
}

/* Takes those along their ways, stage by stage. */
static void advance_together(ech_framing *f, ech_turn_buckets *of, int end, ech_bucket_point point)
{
    for (bool more = true; more;) {
        more = false;
        for (int k = of->next; k < end; k++) more |= advance_once(f, of, of->order[k], point);
    }
}

/* Begins the updates of the next ones, and brings what the `prefetch` behind them need: the host has that of no more at
 * once. */
static void begin_updates(ech_framing *f, ech_turn_buckets *of)
{
    int end = of->end = end_together(f, of, of->next);
    for (; of->brought < of->ordered && of->brought < end + f->plan->prefetch; of->brought++)
        advance(f, of, of->order[of->brought], ECH_POINT_BRINGS);
    advance_together(f, of, end, ECH_POINT_UPDATES);
}

/* Ends them: there is room for more. */
static void end_updates(ech_framing *f, ech_turn_buckets *of)
{
    advance_together(f, of, of->end, ECH_POINT_ROOM);
    of->room = ech_frame_last_compute(f->list);
    of->next = of->end;
}

void ech_frame_updates(ech_framing *f)
{
    ech_turn_buckets *of = &f->buckets;
    of->next = of->brought = 0;
    of->room = -1;
    while (of->next < of->ordered) {
        begin_updates(f, of);
        end_updates(f, of);
    }
    of->ordered = 0;
}

/* ---- the whole ---- */

void ech_frame_begin_buckets(ech_framing *f)
{
    size_t buckets = f->plan->bucket.n;
    ech_turn_buckets *of = &f->buckets;
    f->gathered = ech_calloc(buckets * (size_t)f->plan->versions + 1, sizeof *f->gathered);
    for (size_t i = 0; i < buckets * (size_t)f->plan->versions; i++) f->gathered[i] = -1;
    of->order = ech_calloc(buckets + 1, sizeof *of->order);
    of->on = ech_calloc(buckets + 1, sizeof *of->on);
    for (size_t b = 0; b < buckets; b++) {
        of->on[b].way = way_of(f->plan, &f->plan->bucket.at[b]);
        of->on[b].left = instances_of(f, (int)b);
    }
}

void ech_frame_end_buckets(ech_framing *f)
{
    free(f->gathered);
    free(f->buckets.order);
    free(f->buckets.on);
}

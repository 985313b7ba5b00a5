/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that makes a list of block steps a whole training step, or several: the token count before
 * a turn, LOAD of each micro-batch one ahead of its first forward, what is done bucket by bucket as bucket_stages.def says:
 * from when a bucket is complete, with norms, clipping and updates after the turn's last backward. Where a group has one
 * member no communication is inserted.
 *
 * Synchronous: losses, flags and squares of all ranks are folded before the update, so the norm is
 * the whole model's. Asynchronous: a stage does not wait for others, so its norm is its own ranks', and
 * the fold of all turns comes at the end of the list, for READ.
 */
#include <stdlib.h>

#include "schedule/bucket_way.h"
#include "schedule/passes.h"

/* How far a bucket has come in its turn. */
typedef struct on_way {
    ech_bucket_way way;
    ech_bucket_place at;
    int step; /* of that place */
    int left; /* instances of its gradients that are not complete in this turn */
} on_way;

typedef struct framing {
    ech_plan *plan;
    ech_list *list;
    ech_step *from; /* the lowered steps, their waits, and where they are now */
    int *from_after, *now;
    size_t n;
    /* Instances of gradients by the lowered step that completes them, as instance * buckets + bucket: the step's first,
     * the next of the same step, descending; -1: none. */
    int *first_ready, *next_ready; /* [n], [instances * buckets] */
    bool *begins;                  /* [n] the lowered step is the first to write a micro-batch's */
    /* Of those: the last scatter of the lowered step that completed some last, and of the one before it; -1: none. */
    int scatter, settled;
    int *
        gathered; /* [buckets * versions] the last step that makes what lies in a slot whole; -1: none in this list */
    int known;       /* the last of these that the compute lane has waited for */
    int *last_ready; /* [turns]: the last such step */
    int *order;      /* [ordered] the turn's buckets, as they become complete */
    int ordered;
    on_way *on; /* [buckets] */
    int turn;   /* of the steps being added */
    int room; /* the step behind which the host has room for what is brought next; -1: the turn's beginning */
    bool loads; /* some block of the rank has values that LOAD writes */
    int loaded; /* micro-batches that are loaded, over all turns */
} framing;

static bool is_shared(const ech_plan *plan, ech_layout_group group)
{
    return ech_layout_group_size(plan->layout, plan->model, plan->rank, group) > 1;
}

int ech_plan_row(const ech_plan *plan)
{
    return (int)ECH_SCALARS + (int)plan->model->param.n;
}

static int add(framing *f, ech_step_kind kind, int index, int after)
{
    int step = ech_list_add(f->list, kind);
    f->list->step.at[step].index = index;
    f->list->step.at[step].turn = f->turn;
    if (after >= 0) ech_list_add_after(f->list, after);
    return step;
}

/* REDUCE of `count` scalars of this turn over a group, after `after`. Returns its index, or -1. */
static int add_reduce_over(framing *f, ech_layout_group group, ech_scalar first, int count,
                           int after)
{
    if (!is_shared(f->plan, group)) return -1;
    int reduce = add(f, ECH_STEP_REDUCE, (int)first, after);
    f->list->step.at[reduce].count = count;
    f->list->step.at[reduce].group = group;
    return reduce;
}

static int add_reduce(framing *f, ech_scalar first, int count, int after)
{
    return add_reduce_over(f, ECH_GROUP_WORLD, first, count, after);
}

/* Everything from STOP on: flags, losses, squares. */
static int add_reduce_turn(framing *f, int after)
{
    return add_reduce(f, ECH_SCALAR_STOP, ech_plan_row(f->plan) - (int)ECH_SCALAR_STOP, after);
}

static int last_compute(const ech_list *list)
{
    int step = (int)list->step.n - 1;
    while (step >= 0 && list->step.at[step].lane != ECH_LANE_COMPUTE) step--;
    return step;
}

static bool is_synchronous(const framing *f)
{
    return ech_weights_are_synchronous(f->plan->schedule->weights);
}

static bool loads_for(const ech_block *block, ech_purpose purpose)
{
    for (size_t i = 0; i < block->value.n; i++) {
        const ech_block_value *v = &block->value.at[i];
        if (v->source == ECH_FROM_BATCH && v->purposes & 1u << purpose) return true;
    }
    return false;
}

static bool loads(const ech_plan *plan, ech_purpose purpose)
{
    for (size_t b = 0; b < plan->model->block.n; b++)
        if (ech_layout_has_block(plan->layout, plan->rank, (int)b) &&
            loads_for(plan->model->block.at[b], purpose))
            return true;
    return false;
}

static void begin(framing *f, ech_plan *plan, ech_list *list)
{
    *f = (framing){.plan = plan,
                   .list = list,
                   .from = list->step.at,
                   .from_after = list->after.at,
                   .n = list->step.n,
                   .scatter = -1,
                   .settled = -1,
                   .known = -1,
                   .loads = loads(plan, list->purpose),
                   .now = ech_calloc(list->step.n + 1, sizeof *f->now)};
    list->step.at = NULL;
    list->step.n = list->step.capacity = 0;
    list->after.at = NULL;
    list->after.n = list->after.capacity = 0;
}

static void end(framing *f)
{
    free(f->from);
    free(f->from_after);
    free(f->now);
    free(f->first_ready);
    free(f->next_ready);
    free(f->begins);
    free(f->gathered);
    free(f->last_ready);
    free(f->order);
    free(f->on);
}

static int *gathered(const framing *f, int bucket, int version)
{
    return &f->gathered[bucket * f->plan->versions + ech_plan_slot(f->plan, version)];
}

/* The step being added, of the compute lane, comes after a gather: it reads what that makes whole, or puts the next version
 * there. The lane of gathers ends them in order. */
static void await_gather(framing *f, int gather)
{
    if (gather > f->known) ech_list_add_after(f->list, f->known = gather);
}

static void await_weights(framing *f, const ech_step *step)
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

static void copy_step(framing *f, size_t s)
{
    int here = ech_list_copy_step(f->list, &f->from[s], f->from_after, f->now);
    /* So instances under way are those being written, and of those being scattered the last step's. */
    if (f->begins && f->begins[s] && f->settled >= 0) ech_list_add_after(f->list, f->settled);
    await_weights(f, &f->from[s]);
    f->now[s] = here;
}

/* ---- a turn's beginning and end ---- */

static void begin_turn(framing *f)
{
    if (f->list->purpose != ECH_GENERATE) add(f, ECH_STEP_COUNT, -1, -1);
}

/* Before a micro-batch's first forward the next one is loaded, of the next turn, too. */
static void load_ahead(framing *f, const ech_step *step)
{
    ech_numbering numbering = f->list->numbering;
    if (step->kind != ECH_STEP_FORWARD) return;
    int ahead = ech_micro_whole(numbering, ech_micro_at(numbering, step->micro)) + 1;
    int all = f->list->turns * numbering.micro_batches;
    for (; f->loaded <= ahead && f->loaded < all; f->loaded++) {
        int first = f->loaded * numbering.sequence_chunks;
        ech_micro at = ech_micro_at(numbering, first);
        f->turn = at.turn;
        if (at.micro_batch == 0) begin_turn(f);
        if (!f->loads) continue;
        int load = add(f, ECH_STEP_LOAD, -1, -1);
        f->list->step.at[load].micro = first;
    }
}

/* ---- buckets ---- */

static ech_bucket_way way_of(const ech_plan *plan, const ech_bucket *bucket)
{
    ech_bucket_way way = {.shared = is_shared(plan, bucket->group),
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
static int add_stage(framing *f, int bucket, int before, ech_bucket_place at)
{
    const ech_bucket_row *row = ech_bucket_row_of(at.stage);
    int here = add(f, row->kind, bucket, -1);
    ech_step *step = &f->list->step.at[here];
    step->count = at.round;
    step->version = row->version < 0 ? 0 : f->turn + row->version;
    step->group =
        row->group < ECH_GROUPS ? (ech_layout_group)row->group : f->plan->bucket.at[bucket].group;
    if (step->lane != f->list->step.at[before].lane) ech_list_add_after(f->list, before);
    if (row->point == ECH_POINT_BRINGS && f->room >= 0) ech_list_add_after(f->list, f->room);
    if (row->point < ECH_POINT_UPDATES) return here;
    int gather = *gathered(f, bucket, f->turn + 1);
    if (at.stage == ECH_BUCKET_GATHER)
        *gathered(f, bucket, step->version) = here;
    else if (step->lane == ECH_LANE_COMPUTE)
        await_gather(f, gather);
    else if (ech_step_params(step) == ECH_PARAMS_UPDATE && gather >= 0)
        ech_list_add_after(f->list, gather);
    return here;
}

/* Takes a bucket to the next stage, if that comes by a point of the turn. */
static bool advance_once(framing *f, int bucket, ech_bucket_point point)
{
    on_way *on = &f->on[bucket];
    ech_bucket_place next = ech_bucket_next(&on->way, on->at);
    if (next.stage == ECH_BUCKET_STAGES || ech_bucket_row_of(next.stage)->point > point)
        return false;
    on->step = add_stage(f, bucket, on->step, next);
    on->at = next;
    return true;
}

/* Takes it along its way up to there. */
static void advance(framing *f, int bucket, ech_bucket_point point)
{
    while (advance_once(f, bucket, point)) continue;
}

/* How many instances of the bucket's gradients a turn has. */
static int instances_of(const framing *f, int bucket)
{
    return f->plan->bucket.at[bucket].each ? f->list->numbering.micro_batches : 1;
}

/* The lowered step has been the last to write an instance of the bucket's gradients. */
static void complete(framing *f, int bucket, size_t writer)
{
    on_way *on = &f->on[bucket];
    int here = f->now[writer], first = (int)f->list->step.n;
    on->at = (ech_bucket_place){.stage = ECH_BUCKET_WRITE};
    on->step = here;
    advance(f, bucket, ECH_POINT_MICRO_BATCH);
    for (int s = first; s < (int)f->list->step.n; s++) {
        ech_step *step = &f->list->step.at[s];
        int micro = f->from[writer].micro;
        step->micro = micro - ech_micro_at(f->list->numbering, micro).sequence_chunk;
        step->adds = on->left < instances_of(f, bucket);
        f->scatter = s;
    }
    if (--on->left > 0) return;
    on->left = instances_of(f, bucket);
    f->order[f->ordered++] = bucket;
    advance(f, bucket, ECH_POINT_COMPLETE);
}

/* The end of the buckets of the turn, from number i on, that are updated side by side: where members of their groups make
 * something for each other, as many as have work for all of them. */
static int end_together(const framing *f, int i)
{
    int members = 1;
    for (int works = 0; i < f->ordered && works < members; i++) {
        const ech_bucket *bucket = &f->plan->bucket.at[f->order[i]];
        if (bucket->owned) members = (int)(bucket->elements / bucket->shard);
        works += bucket->owned ? bucket->params : works == 0;
    }
    return i;
}

/* Updates, and ahead of each what the `prefetch` next ones need: the host has that of no more at once. */
static void update_all(framing *f)
{
    int brought = 0;
    f->room = -1;
    for (int i = 0, end; i < f->ordered; i = end) {
        end = end_together(f, i);
        for (; brought < f->ordered && brought < end + f->plan->prefetch; brought++)
            advance(f, f->order[brought], ECH_POINT_BRINGS);
        for (bool more = true; more;) {
            more = false;
            for (int k = i; k < end; k++) more |= advance_once(f, f->order[k], ECH_POINT_UPDATES);
        }
        f->room = last_compute(f->list);
    }
}

static void add_update(framing *f)
{
    int folded = -1;
    for (int i = 0; i < f->ordered; i++) advance(f, f->order[i], ECH_POINT_NORMS);
    if (is_synchronous(f)) folded = add_reduce_turn(f, last_compute(f->list));
    int summed = add(f, ECH_STEP_NORM_SUM, -1, folded);
    /* Of a stage alone: its ranks have counted shards. */
    if (!is_synchronous(f))
        folded = add_reduce_over(f, ECH_GROUP_PARTIAL, ECH_SCALAR_SQUARES_SUM, 1, summed);
    int clip = add(f, ECH_STEP_CLIP, -1, is_synchronous(f) ? -1 : folded);
    if (f->plan->states != ECH_SPACE_DEVICE) add(f, ECH_STEP_READ_UPDATE, -1, clip);
    update_all(f);
}

/* Reductions of what lowered step s completes. Those over several stages come after all others of
 * their turn: the stages become ready at different times, and a lane keeps its order. */
static void reduce_ready(framing *f, int turn, size_t s)
{
    int buckets = (int)f->plan->bucket.n, before = f->scatter;
    f->turn = turn;
    for (int i = f->first_ready[s]; i >= 0; i = f->next_ready[i]) {
        int b = i % buckets;
        if (f->plan->bucket.at[b].group != ECH_GROUP_TIED) complete(f, b, s);
    }
    if (f->scatter != before) f->settled = before;
    if (f->last_ready[turn] != (int)s) return;
    for (int b = 0; b < buckets; b++)
        if (f->plan->bucket.at[b].group == ECH_GROUP_TIED) complete(f, b, s);
    add_update(f);
    f->ordered = 0;
    f->list->updates++;
}

static void find_ready(framing *f, const int *first, const int *last)
{
    size_t buckets = f->plan->bucket.n, all = buckets * (size_t)f->list->instances;
    f->first_ready = ech_calloc(f->n + 1, sizeof *f->first_ready);
    f->next_ready = ech_calloc(all + 1, sizeof *f->next_ready);
    f->begins = ech_calloc(f->n + 1, sizeof *f->begins);
    f->gathered = ech_calloc(buckets * (size_t)f->plan->versions + 1, sizeof *f->gathered);
    for (size_t i = 0; i < buckets * (size_t)f->plan->versions; i++) f->gathered[i] = -1;
    f->last_ready = ech_calloc((size_t)f->list->turns, sizeof *f->last_ready);
    f->order = ech_calloc(buckets + 1, sizeof *f->order);
    f->on = ech_calloc(buckets + 1, sizeof *f->on);
    for (size_t b = 0; b < buckets; b++) {
        f->on[b].way = way_of(f->plan, &f->plan->bucket.at[b]);
        f->on[b].left = instances_of(f, (int)b);
    }
    for (size_t s = 0; s < f->n; s++) f->first_ready[s] = -1;
    for (size_t i = 0; i < all; i++) {
        if (last[i] < 0) continue; /* an instance of a turn, where others are of micro-batches */
        int *last_ready = &f->last_ready[f->from[last[i]].turn];
        if (last[i] > *last_ready) *last_ready = last[i];
        if (f->plan->bucket.at[i % buckets].each) f->begins[first[i]] = true;
        f->next_ready[i] = f->first_ready[last[i]];
        f->first_ready[last[i]] = (int)i;
    }
}

void ech_pass_frame_training(ech_plan *plan, ech_list *list)
{
    framing f;
    size_t all = plan->bucket.n * (size_t)list->instances;
    ECH_FREED int *first = ech_calloc(all + 1, sizeof *first);
    ECH_FREED int *last = ech_calloc(all + 1, sizeof *last);
    ech_list_writers(plan, list, first, last);
    begin(&f, plan, list);
    find_ready(&f, first, last);
    for (size_t s = 0; s < f.n; s++) {
        load_ahead(&f, &f.from[s]);
        copy_step(&f, s);
        reduce_ready(&f, f.from[s].turn, s);
    }
    int folded = -1;
    for (f.turn = 0; f.turn < list->turns && !is_synchronous(&f); f.turn++)
        folded = add_reduce_turn(&f, last_compute(list));
    f.turn = 0;
    add(&f, ECH_STEP_READ, -1, folded);
    end(&f);
}

void ech_pass_frame_validation(const ech_plan *plan, ech_list *list)
{
    framing f;
    begin(&f, (ech_plan *)plan, list);
    for (size_t s = 0; s < f.n; s++) {
        load_ahead(&f, &f.from[s]);
        copy_step(&f, s);
    }
    if (list->purpose == ECH_GENERATE) {
        add(&f, ECH_STEP_LOGITS, -1, -1);
    } else {
        int count = ECH_SCALAR_LOSS_WEIGHT - ECH_SCALAR_LOSS + 1;
        int folded = add_reduce(&f, ECH_SCALAR_LOSS, count, last_compute(list));
        add(&f, ECH_STEP_READ, -1, folded);
    }
    end(&f);
}

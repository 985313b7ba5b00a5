/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that completes a list of block steps to a whole training step, or to several. It adds
 * the token count before a turn, and LOAD of each micro-batch one ahead of its first forward. It
 * adds the stages of buckets (bucket_stages.def), from the completion of a bucket to norms,
 * gradient clipping and updates after the turn's last backward. A group with one member gets no
 * communication.
 *
 * Synchronous: losses, flags and squares of all ranks are folded before the update, so the norm is
 * the whole model's. Asynchronous: a stage does not wait for others, so its norm covers its own
 * ranks, and the fold of all turns comes at the end of the list, for READ.
 *
 * Diverging replicas each fold their own scalars before their update, and report the totals of all
 * replicas at the end, for READ.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/protocol/roles.h"
#include "schedule/operands.h"

bool ech_frame_is_shared(const ech_plan *plan, ech_layout_group group)
{
    return ech_layout_group_size(plan->layout, plan->model, plan->rank, group) > 1;
}

int ech_plan_row(const ech_plan *plan)
{
    return (int)ECH_SCALARS + (int)plan->model->param.n + (int)plan->model->reports;
}

int ech_frame_add(ech_framing *f, ech_step_kind kind, int turn, int index, int after)
{
    int step = ech_list_add(f->list, kind);
    f->list->step.at[step].index = index;
    f->list->step.at[step].turn = turn;
    if (after >= 0) ech_list_add_after(f->list, after);
    return step;
}

int ech_frame_last_compute(const ech_list *list)
{
    int step = (int)list->step.n - 1;
    while (step >= 0 && list->step.at[step].lane != ECH_LANE_COMPUTE) step--;
    return step;
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

static void begin(ech_framing *f, ech_plan *plan, ech_list *list)
{
    *f = (ech_framing){.plan = plan,
                       .list = list,
                       .from = list->step.at,
                       .from_after = list->after.at,
                       .n = list->step.n,
                       .role = ech_protocol_role(plan),
                       .scatter = -1,
                       .settled = -1,
                       .met = -1,
                       .passed = -1,
                       .known = -1,
                       .last_load = -1,
                       .loads = loads(plan, list->purpose),
                       .pool = ech_pool_create()};
    f->now = ech_pool_alloc(f->pool, f->n * sizeof *f->now);
    memset(&list->step, 0, sizeof list->step);
    memset(&list->after, 0, sizeof list->after);
}

static void end(ech_framing *f)
{
    free(f->from);
    free(f->from_after);
    free(f->buckets.piece.at);
    free(f->before.piece.at);
    ech_frame_end_gradients(f);
    ech_pool_destroy(f->pool);
}

/* ---- batches ---- */

static int micro_of(const ech_framing *f, const ech_step *step)
{
    return ech_micro_whole(f->list->numbering, ech_micro_at(f->list->numbering, step->micro));
}

static bool loads_aside(const ech_framing *f)
{
    return f->list->purpose != ECH_GENERATE && f->plan->loads != ECH_LANE_COMPUTE;
}

/* On a lane of its own it follows what may still read the last batch in its place. */
static int add_load(ech_framing *f, int turn)
{
    if (!loads_aside(f)) return ech_frame_add(f, ECH_STEP_LOAD, turn, -1, -1);
    int load = ech_frame_add(f, ECH_STEP_LOAD, turn, -1, ech_frame_last_compute(f->list));
    f->list->step.at[load].lane = f->plan->loads;
    return f->last_load = f->load[f->loaded % 2] = load;
}

/* Before a micro-batch's first forward the next one is loaded, across turns. */
static void load_ahead(ech_framing *f, const ech_step *step)
{
    ech_numbering numbering = f->list->numbering;
    if (step->kind != ECH_STEP_FORWARD) return;
    int ahead = micro_of(f, step) + 1;
    int all = f->list->turns * numbering.micro_batches;
    for (; f->loaded <= ahead && f->loaded < all; f->loaded++) {
        int first = f->loaded * numbering.sequence_chunks;
        ech_micro at = ech_micro_at(numbering, first);
        if (at.micro_batch == 0 && f->expect) f->expect(f, at.turn);
        if (!f->loads) continue;
        int load = add_load(f, at.turn);
        f->list->step.at[load].micro = first;
    }
}

/* The first forward that reads a batch waits for its LOAD, and those that follow wait for that. */
static void await_load(ech_framing *f, const ech_step *step)
{
    if (step->kind != ECH_STEP_FORWARD || f->last_load < 0 || micro_of(f, step) < f->awaited)
        return;
    f->awaited = micro_of(f, step) + 1;
    ech_list_add_after(f->list, f->load[(f->awaited - 1) % 2]);
}

/* ---- steps of blocks ---- */

/* A server's list has none of the lowered steps: its gradients are complete when the turn
 * begins. */
static void copy_step(ech_framing *f, size_t s)
{
    if (ech_layout_serves(f->plan->layout, f->plan->rank)) {
        f->now[s] = f->begun;
        return;
    }
    int here = ech_list_copy_step(f->list, &f->from[s], f->from_after, f->now);
    await_load(f, &f->from[s]);
    /* So the only instances in flight are those being written, and the last step's being
     * scattered. */
    if (f->begins && f->begins[s] && f->settled >= 0) ech_list_add_after(f->list, f->settled);
    ech_frame_await_weights(f, &f->from[s]);
    ech_frame_await_leave(f, s);
    ech_frame_await_gradients(f, s);
    f->now[s] = here;
}

/* ---- beginning and end of a turn ---- */

/* ---- buckets ---- */

bool ech_frame_comes_last(const ech_bucket *bucket)
{
    return !bucket->frozen && (bucket->group == ECH_GROUP_TIED || bucket->commits);
}

/* Adds reductions of what lowered step s completes. */
static void reduce_ready(ech_framing *f, int turn, size_t s)
{
    int buckets = (int)f->plan->bucket.n, before = f->scatter;
    f->buckets.turn = turn;
    for (int i = f->first_ready[s]; i >= 0; i = f->next_ready[i]) {
        int b = i % buckets;
        if (!ech_frame_comes_last(&f->plan->bucket.at[b])) ech_frame_complete(f, b, s);
    }
    if (f->scatter != before) f->settled = before;
    ech_frame_end_use(f, s);
    if (f->last_ready[turn] != (int)s) return;
    ech_frame_catch_up(f);
    for (int b = 0; b < buckets; b++)
        if (ech_frame_comes_last(&f->plan->bucket.at[b])) ech_frame_complete(f, b, s);
    ech_frame_norms(f);
    f->role->update(f, turn);
    f->list->updates++;
    if (f->role->end_turn) f->role->end_turn(f, turn);
}

static void find_ready(ech_framing *f, const int *first, const int *last)
{
    size_t buckets = f->plan->bucket.n, all = buckets * (size_t)f->list->instances;
    f->first_ready = ech_pool_alloc(f->pool, f->n * sizeof *f->first_ready);
    f->next_ready = ech_pool_alloc(f->pool, all * sizeof *f->next_ready);
    f->begins = ech_pool_alloc(f->pool, f->n * sizeof *f->begins);
    f->first_begun = ech_pool_alloc(f->pool, f->n * sizeof *f->first_begun);
    f->next_begun = ech_pool_alloc(f->pool, all * sizeof *f->next_begun);
    f->last_ready = ech_pool_alloc(f->pool, (size_t)f->list->turns * sizeof *f->last_ready);
    ech_frame_begin_buckets(f);
    for (size_t s = 0; s < f->n; s++) f->first_ready[s] = f->first_begun[s] = -1;
    for (int turn = 0; turn < f->list->turns; turn++) f->last_ready[turn] = -1;
    for (size_t i = 0; i < all; i++) {
        if (last[i] < 0) continue; /* an instance per turn, not per micro-batch */
        if (ech_bucket_scatters_each(&f->plan->bucket.at[i % buckets])) f->begins[first[i]] = true;
        f->next_ready[i] = f->first_ready[last[i]];
        f->first_ready[last[i]] = (int)i;
        f->next_begun[i] = f->first_begun[first[i]];
        f->first_begun[first[i]] = (int)i;
    }
    /* The update follows all steps that read the weights. Where the lowest parameters are frozen,
     * the last one writes no gradients. */
    for (int s = 0; s < (int)f->n; s++)
        if (f->from[s].lane == ECH_LANE_COMPUTE) f->last_ready[f->from[s].turn] = s;
    ech_frame_begin_gradients(f);
}

void ech_pass_frame_training(ech_plan *plan, ech_list *list)
{
    ech_framing f;
    size_t all = plan->bucket.n * (size_t)list->instances;
    ECH_FREED int *first = ech_calloc(all + 1, sizeof *first);
    ECH_FREED int *last = ech_calloc(all + 1, sizeof *last);
    ech_list_writers(plan, list, first, last);
    begin(&f, plan, list);
    find_ready(&f, first, last);
    f.expect = f.role->expect;
    if (f.role->begin) f.role->begin(&f);
    for (size_t s = 0; s < f.n; s++) {
        load_ahead(&f, &f.from[s]);
        bool begins = s == 0 || f.from[s].turn != f.from[s - 1].turn;
        if (begins && f.role->begin_turn) f.role->begin_turn(&f, f.from[s].turn);
        copy_step(&f, s);
        ech_frame_follow(&f, &f.from[s]);
        reduce_ready(&f, f.from[s].turn, s);
    }
    ech_frame_add(&f, ECH_STEP_READ, 0, -1, f.role->end ? f.role->end(&f) : -1);
    end(&f);
}

void ech_pass_frame_validation(const ech_plan *plan, ech_list *list)
{
    ech_framing f;
    begin(&f, (ech_plan *)plan, list);
    f.expect = list->purpose == ECH_GENERATE ? NULL : ech_frame_count;
    for (size_t s = 0; s < f.n; s++) {
        load_ahead(&f, &f.from[s]);
        copy_step(&f, s);
    }
    if (list->purpose == ECH_GENERATE) {
        ech_frame_add(&f, ECH_STEP_LOGITS, 0, -1, -1);
    } else {
        int count = ECH_SCALAR_HITS_OF_5 - ECH_SCALAR_STOP + 1; /* requests to stop, too */
        int folded = ech_frame_reduce(&f, ECH_GROUP_WORLD, 0, ECH_SCALAR_STOP, count,
                                      ech_frame_last_compute(list));
        ech_frame_add(&f, ECH_STEP_READ, 0, -1, folded);
    }
    end(&f);
}

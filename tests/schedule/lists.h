/* SPDX-License-Identifier: Apache-2.0
 *
 * Train lists of all ranks of a pipeline, made without the passes: steps in a given order, for a
 * made-up model. This file decides in other ways than the passes when receives are posted and which
 * steps wait for sends. So the checker and the simulator are tested on lists to which they were not
 * fitted.
 */
#ifndef ECH_TESTS_SCHEDULE_LISTS_H
#define ECH_TESTS_SCHEDULE_LISTS_H

#include "check/lists_writer.h"
#include "simulate/simulate.h"

/* ---- plans ---- */

static inline void lists_buckets(const lists *all, ech_plan *plan)
{
    ech_coordinates here = all->layout->coordinates[plan->rank];
    int members = all->layout->replicas[here.stage];
    plan->lineup[ECH_GROUP_DATA].size = members;
    plan->param = ech_calloc(all->model->param.n, sizeof *plan->param);
    for (size_t p = 0; p < all->model->param.n; p++) plan->param[p].bucket = -1;
    for (int chunk = all->layout->chunks - 1; chunk >= 0; chunk--) {
        int first, end;
        ech_layout_blocks(all->layout, plan->rank, chunk, &first, &end);
        for (int b = end - 1; b >= first; b--) {
            ech_plan_param *p = &plan->param[b];
            p->elements = 10 + b;
            p->bucket = (int)plan->bucket.n;
            int64_t shard = (p->elements + members - 1) / members;
            ECH_PUSH(plan->bucket, (ech_bucket){.first_param = (int)plan->bucket_param.n,
                                                .params = 1,
                                                .elements = p->elements,
                                                .shard = shard,
                                                .own = here.data * shard,
                                                .group = ECH_GROUP_DATA,
                                                .pieces = 1});
            ECH_PUSH(plan->bucket_param, b);
        }
    }
}

static inline void lists_order(const lists *all, const ech_list *list, int rank, ech_order *order)
{
    const ech_layout *layout = all->layout;
    int stage = layout->coordinates[rank].stage, behind = 0, own = layout->replicas[stage];
    for (int s = stage; s < layout->stages; s++) behind += layout->replicas[s];
    ech_pipe pipe = {.stages = layout->stages,
                     .stage = stage,
                     .chunks = layout->chunks,
                     .micro_batches = list->micro_batches,
                     .depth = (behind + own - 1) / own};
    if (all->spec.schedule)
        ech_generator_find(all->spec.schedule)->generate(&pipe, order);
    else
        for (size_t i = 0; i < all->spec.order[stage].n; i++)
            ECH_PUSH(*order, all->spec.order[stage].at[i]);
}

static inline ech_plan *lists_plan(lists *all, int rank)
{
    ech_plan *plan = ech_calloc(1, sizeof *plan);
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    bool stashed = all->spec.weights == ECH_WEIGHTS_STASHED && !all->spec.no_stashing;
    plan->rank = rank;
    plan->model = all->model;
    plan->layout = all->layout;
    plan->schedule = all->schedule;
    for (int space = 0; space < ECH_SPACES; space++) plan->alignment[space] = 32;
    plan->segment = ech_calloc(all->model->block.n + 1, sizeof *plan->segment);
    for (size_t b = 0; b < all->model->block.n; b++) plan->segment[b] = -1;
    plan->types = ech_types_of(ECH_F32);
    plan->versions = all->spec.weights == ECH_WEIGHTS_BUFFERED ? 2 : stashed ? all->spec.turns : 1;
    list->kind = ECH_LIST_TRAIN;
    list->purpose = ECH_TRAIN;
    list->turns = all->spec.turns;
    list->numbering = (ech_numbering){ech_layout_micro_batches(all->layout, rank), 1};
    list->micro_batches = list->turns * list->numbering.micro_batches;
    lists_buckets(all, plan);

    size_t items = (size_t)(all->spec.chunks * list->micro_batches);
    lists_writer w = {.all = all, .plan = plan, .list = list, .last = -1};
    w.version = ech_calloc(items, sizeof *w.version);
    w.left = ech_calloc((size_t)list->turns, sizeof *w.left);
    for (int t = 0; t < list->turns; t++)
        w.left[t] = 2 * all->spec.chunks * list->numbering.micro_batches;
    ech_order order = {0};
    lists_order(all, list, rank, &order);
    for (size_t i = 0; i < order.n; i++) {
        int turn = order.at[i].micro / list->numbering.micro_batches;
        lists_item(&w, &order.at[i]);
        if (order.at[i].action != ECH_F && --w.left[turn] == 0 && !all->spec.bare)
            lists_update(&w, turn);
    }
    free(order.at);
    free(w.version);
    free(w.left);
    free(w.pending.at);
    return plan;
}

/* blocks, chunks, turns 0: one block a virtual stage, one chunk, one turn. */
static inline lists lists_build(lists_spec spec)
{
    if (!spec.chunks) spec.chunks = 1;
    if (!spec.turns) spec.turns = 1;
    if (!spec.blocks) spec.blocks = spec.stages * spec.chunks;
    if (!spec.bytes) spec.bytes = 64;
    lists all = {.spec = spec, .model = lists_model(spec.blocks, spec.folded)};
    bool vee = spec.schedule && ech_generator_find(spec.schedule)->placement == ECH_PLACEMENT_VEE;
    all.layout =
        lists_layout(spec.stages, spec.chunks, spec.replicas, vee, spec.micro_batches, all.model);
    all.schedule = ech_calloc(1, sizeof *all.schedule);
    *all.schedule = (ech_schedule){.stages = spec.stages,
                                   .weights = spec.weights,
                                   .stashing = !spec.no_stashing,
                                   .vertical_sync = spec.vertical_sync,
                                   .turns = spec.turns};
    all.ranks = all.layout->world;
    all.plan = ech_calloc((size_t)all.ranks, sizeof *all.plan);
    for (int rank = 0; rank < all.ranks; rank++) all.plan[rank] = lists_plan(&all, rank);
    return all;
}

static inline void lists_free(lists *all)
{
    for (int rank = 0; rank < all->ranks; rank++) ech_plan_destroy(all->plan[rank]);
    free(all->plan);
    free(all->schedule);
    ech_layout_destroy(all->layout);
    ech_model_destroy(all->model);
}

static inline const ech_plan *const *lists_plans(const lists *all)
{
    return (const ech_plan *const *)all->plan;
}

static inline ech_list *lists_of(const lists *all, int rank)
{
    return &all->plan[rank]->list[ECH_LIST_TRAIN];
}

/* The first step of that kind (and micro-batch, unless it is -1) in a rank's list, or -1. */
static inline int lists_find(const ech_list *list, ech_step_kind kind, int micro)
{
    for (int s = 0; s < (int)list->step.n; s++)
        if (list->step.at[s].kind == kind && (micro < 0 || list->step.at[s].micro == micro))
            return s;
    return -1;
}

/* Takes step `drop` out (whoever waited for it now waits for what it waited for first), and lets
 * step `waiter` wait for `waited`, too; -1: neither. */
static inline void lists_edit(ech_list *list, int drop, int waiter, int waited)
{
    ech_step *steps = list->step.at;
    int *after = list->after.at, inherits = -1;
    size_t n = list->step.n;
    if (drop >= 0 && steps[drop].afters) inherits = after[steps[drop].first_after];
    list->step.at = NULL;
    list->after.at = NULL;
    list->step.n = list->step.capacity = list->after.n = list->after.capacity = 0;
    for (int s = 0; s < (int)n; s++) {
        if (s == drop) continue;
        lists_add(list, steps[s]);
        for (int i = 0; i < steps[s].afters; i++) {
            int other = after[steps[s].first_after + i];
            if (other == drop) other = inherits;
            lists_after(list, drop >= 0 && other > drop ? other - 1 : other);
        }
        if (s == waiter) lists_after(list, drop >= 0 && waited > drop ? waited - 1 : waited);
    }
    free(steps);
    free(after);
}

static inline void lists_drop(ech_list *list, int dropped)
{
    lists_edit(list, dropped, -1, -1);
}

/* Step `from` goes to where step `to`, an earlier one, stands, and that and all between move up.
 * False, and nothing is done, where it waits for one of them. */
static inline bool lists_move(ech_list *list, int from, int to)
{
    for (int i = 0; i < list->step.at[from].afters; i++)
        if (list->after.at[list->step.at[from].first_after + i] >= to) return false;
    ech_step moved = list->step.at[from];
    for (int s = from; s > to; s--) list->step.at[s] = list->step.at[s - 1];
    list->step.at[to] = moved;
    for (size_t i = 0; i < list->after.n; i++) {
        int *after = &list->after.at[i];
        *after = *after == from ? to : *after >= to && *after < from ? *after + 1 : *after;
    }
    return true;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes one rank's train list for lists.h: item by item of an order, then a turn's end.
 */
#ifndef ECH_TESTS_SCHEDULE_LISTS_WRITER_H
#define ECH_TESTS_SCHEDULE_LISTS_WRITER_H

#include "check/checker.h"
#include "schedule/lists_model.h"

typedef struct lists_spec {
    const char *schedule; /* a generator's name; NULL: `order` below */
    int stages, chunks, blocks;
    int micro_batches, turns; /* M of a turn, over all replicas */
    const int *replicas;      /* [stages]; NULL: one everywhere */
    const ech_order *order;   /* [stages] */
    ech_weights weights;
    bool no_stashing, vertical_sync;
    bool folded;   /* blocks have no W: B is the whole backward */
    bool late;     /* gradients are sent after W, not after B */
    bool bare;     /* F, B, W and messages alone: nothing is reduced, no updates */
    bool eager;    /* receives are posted first, not after the preceding compute step */
    bool blocking; /* whoever sends does nothing else until it is received */
    int64_t bytes; /* of an activation; gradients have one more */
} lists_spec;

typedef struct lists {
    lists_spec spec;
    ech_model *model;
    ech_layout *layout;
    ech_schedule *schedule;
    int ranks;
    ech_plan **plan;
} lists;

/* ---- steps ---- */

static inline int lists_add(ech_list *list, ech_step step)
{
    static const ech_lane lane_of[ECH_STEPS] = {
#define X(name, text, lane, ...) [ECH_STEP_##name] = ECH_LANE_##lane,
#include "schedule/steps.def"
#undef X
    };
    step.lane = lane_of[step.kind];
    step.first_after = (int)list->after.n;
    step.afters = 0;
    step.scratch = -1;
    step.tick = (int)list->step.n;
    ECH_PUSH(list->step, step);
    list->ticks = (int)list->step.n;
    return (int)list->step.n - 1;
}

/* The step added last waits for `step`, too; -1: for nothing. */
static inline void lists_after(ech_list *list, int step)
{
    if (step < 0) return;
    ECH_PUSH(list->after, step);
    list->step.at[list->step.n - 1].afters++;
}

/* A rank's list being written. */
typedef struct lists_writer {
    const lists *all;
    ech_plan *plan;
    ech_list *list;
    int last;              /* compute step, or -1 */
    ECH_LIST(int) pending; /* for the next compute step to wait for */
    int updates;
    int *version; /* [chunks * micro_batches], read by forwards */
    int *left;    /* [turns] last backwards that are missing */
} lists_writer;

/* The blocks' programs are one call each. */
static inline int lists_compute(lists_writer *w, ech_step step)
{
    if (ech_step_kind_phase(step.kind) >= 0) {
        step.phase = (ech_phase)ech_step_kind_phase(step.kind);
        step.calls = 1;
    }
    w->last = lists_add(w->list, step);
    for (size_t i = 0; i < w->pending.n; i++) lists_after(w->list, w->pending.at[i]);
    w->pending.n = 0;
    return w->last;
}

static inline void lists_message(lists_writer *w, ech_step_kind kind, const ech_step *of, int stage)
{
    const ech_layout *layout = w->all->layout;
    bool grad = kind == ECH_STEP_SEND_GRAD || kind == ECH_STEP_RECV_GRAD;
    bool sends = kind == ECH_STEP_SEND_ACT || kind == ECH_STEP_SEND_GRAD;
    if (stage < 0 || stage >= layout->stages * layout->chunks) return;
    ech_step step = *of;
    step.kind = kind;
    step.version = 0;
    step.bytes = w->all->spec.bytes + grad;
    int64_t q = ech_list_global_micro(w->plan, w->list, of->micro);
    step.peer = ech_layout_rank_of(layout, stage, q, w->plan->rank);
    if (step.peer == w->plan->rank) return;
    int added = lists_add(w->list, step);
    if (sends || !w->all->spec.eager) lists_after(w->list, w->last);
    for (size_t i = 0; i < w->pending.n; i++) lists_after(w->list, w->pending.at[i]);
    if (!sends || w->all->spec.blocking) ECH_PUSH(w->pending, added);
}

/* The version that the first stage's forward read for this micro-batch. */
static inline int lists_input_version(const lists_writer *w, int micro)
{
    const ech_layout *layout = w->all->layout;
    int of_turn = w->list->numbering.micro_batches, turn = micro / of_turn;
    int64_t q = ech_list_global_micro(w->plan, w->list, micro);
    int input = ech_layout_rank_of(layout, 0, q, w->plan->rank), r = layout->replicas[0];
    if (input == w->plan->rank) return w->updates;
    const ech_list *theirs = &w->all->plan[input]->list[ECH_LIST_TRAIN];
    int k = turn * theirs->numbering.micro_batches + (int)(q / r);
    for (size_t s = 0; s < theirs->step.n; s++)
        if (theirs->step.at[s].kind == ECH_STEP_FORWARD && theirs->step.at[s].micro == k)
            return theirs->step.at[s].version;
    return -1;
}

static inline int lists_version(lists_writer *w, ech_action action, int chunk, int micro)
{
    const lists_spec *spec = &w->all->spec;
    int *read = &w->version[chunk * w->list->micro_batches + micro];
    if (spec->weights == ECH_WEIGHTS_FLUSHED) return 0;
    if (spec->weights == ECH_WEIGHTS_BUFFERED) return micro / w->list->numbering.micro_batches - 1;
    if (action == ECH_F) *read = spec->vertical_sync ? lists_input_version(w, micro) : w->updates;
    return action == ECH_F || !spec->no_stashing ? *read : w->updates;
}

static inline void lists_item(lists_writer *w, const ech_order_item *item)
{
    const ech_layout *layout = w->all->layout;
    int first, end, stage = ech_layout_virtual_stage(layout, w->plan->rank, item->chunk);
    bool late = w->all->spec.late && !w->all->spec.folded;
    if (item->action == ECH_W && w->all->spec.folded) return;
    ech_layout_blocks(layout, w->plan->rank, item->chunk, &first, &end);
    ech_step step = {.chunk = item->chunk,
                     .micro = item->micro,
                     .turn = item->micro / w->list->numbering.micro_batches,
                     .version = lists_version(w, item->action, item->chunk, item->micro),
                     .peer = -1,
                     .index = -1};
    if (item->action == ECH_F) {
        step.block = first;
        lists_message(w, ECH_STEP_RECV_ACT, &step, stage - 1);
        step.kind = ECH_STEP_FORWARD;
        for (step.block = first; step.block < end; step.block++) lists_compute(w, step);
        step.block = end - 1;
        lists_message(w, ECH_STEP_SEND_ACT, &step, stage + 1);
        return;
    }
    step.block = end - 1;
    if (item->action == ECH_B) lists_message(w, ECH_STEP_RECV_GRAD, &step, stage + 1);
    step.kind = item->action == ECH_B ? ECH_STEP_BACKWARD_INPUT : ECH_STEP_BACKWARD_WEIGHT;
    for (step.block = end - 1; step.block >= first; step.block--) lists_compute(w, step);
    step.block = first;
    if ((item->action == ECH_W) == late) lists_message(w, ECH_STEP_SEND_GRAD, &step, stage - 1);
}

/* Adds the steps after the last backward of a turn: buckets are reduced (if there are replicas),
 * their norms are computed, and the weights are updated. */
static inline void lists_update(lists_writer *w, int turn)
{
    ech_plan *plan = w->plan;
    int buckets = (int)plan->bucket.n, last = w->last;
    bool shared = w->all->layout->replicas[w->all->layout->coordinates[plan->rank].stage] > 1;
    ech_step step = {.chunk = -1, .micro = -1, .block = -1, .peer = -1, .turn = turn};
    for (step.index = 0; step.index < buckets && shared; step.index++) {
        step.kind = ECH_STEP_REDUCE_GRADS;
        step.group = ECH_GROUP_DATA;
        int added = lists_add(w->list, step);
        lists_after(w->list, last);
        ECH_PUSH(w->pending, added);
    }
    step.kind = ECH_STEP_NORM;
    for (step.index = 0; step.index < buckets; step.index++) lists_compute(w, step);
    if (w->all->spec.weights == ECH_WEIGHTS_FLUSHED && w->all->ranks > 1) {
        step.kind = ECH_STEP_REDUCE;
        step.group = ECH_GROUP_WORLD;
        step.index = ECH_SCALAR_LOSS;
        step.count = 2;
        int folded = lists_add(w->list, step);
        lists_after(w->list, w->last);
        ECH_PUSH(w->pending, folded);
        step.count = 0;
    }
    step.kind = ECH_STEP_CLIP;
    step.index = -1;
    lists_compute(w, step);
    for (step.index = 0; step.index < buckets; step.index++) {
        step.kind = ECH_STEP_STASH;
        step.version = turn;
        if (plan->versions > 1) lists_compute(w, step);
        step.kind = ECH_STEP_UPDATE;
        step.version = turn + 1;
        lists_compute(w, step);
    }
    w->updates++;
    w->list->updates++;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The first pass: an order of F, B and W per chunk becomes steps per block. A W that directly
 * follows its B is interleaved with it block by block, so that gradients of activations die early.
 */
#include "schedule/passes.h"

static const ech_lane lane_of[ECH_STEPS] = {
#define X(name, text, lane, meaning) [ECH_STEP_##name] = ECH_LANE_##lane,
#include "schedule/steps.def"
#undef X
};

int ech_list_add(ech_list *list, ech_step_kind kind)
{
    ech_step step = {.kind = kind,
                     .lane = lane_of[kind],
                     .chunk = -1,
                     .micro = -1,
                     .block = -1,
                     .index = -1,
                     .first_after = (int)list->after.n,
                     .scratch = -1};
    ECH_PUSH(list->step, step);
    return (int)list->step.n - 1;
}

void ech_list_add_after(ech_list *list, int step)
{
    ECH_PUSH(list->after, step);
    list->step.at[list->step.n - 1].afters++;
}

ech_phase ech_step_phase(const ech_step *step)
{
    if (step->kind == ECH_STEP_BACKWARD_INPUT) return ECH_BACKWARD_INPUT;
    if (step->kind == ECH_STEP_BACKWARD_WEIGHT) return ECH_BACKWARD_WEIGHT;
    return ECH_FORWARD;
}

static void add_block(const ech_plan *plan, ech_list *list, ech_step_kind kind, int block,
                      const ech_order_item *item)
{
    ech_step probe = {.kind = kind};
    if (!plan->model->block.at[block]->program[ech_step_phase(&probe)].n) return;
    int added = ech_list_add(list, kind);
    ech_step *step = &list->step.at[added];
    step->block = block;
    step->chunk = item->chunk;
    step->micro = item->micro;
}

static bool is_weight_of(const ech_order_item *b, const ech_order_item *w)
{
    return w->action == ECH_W && w->chunk == b->chunk && w->micro == b->micro;
}

void ech_pass_lower(const ech_plan *plan, ech_list *list, const ech_order *order)
{
    const ech_place *place = &plan->layout->place[plan->rank];
    int first = place->first_block, last = first + place->blocks - 1;
    for (size_t i = 0; i < order->n; i++) {
        const ech_order_item *item = &order->at[i];
        bool joined = item->action == ECH_B && i + 1 < order->n && is_weight_of(item, item + 1);
        if (item->action == ECH_F)
            for (int b = first; b <= last; b++) add_block(plan, list, ECH_STEP_FORWARD, b, item);
        for (int b = last; b >= first; b--) {
            if (item->action == ECH_B) add_block(plan, list, ECH_STEP_BACKWARD_INPUT, b, item);
            if (item->action == ECH_W || joined)
                add_block(plan, list, ECH_STEP_BACKWARD_WEIGHT, b, item);
        }
        i += joined;
    }
}

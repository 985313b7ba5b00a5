/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps: made, and what their kinds say of them.
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
                     .peer = -1,
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

int ech_step_kind_phase(ech_step_kind kind)
{
    switch (kind) {
    case ECH_STEP_FORWARD:
        return ECH_FORWARD;
    case ECH_STEP_BACKWARD_INPUT:
        return ECH_BACKWARD_INPUT;
    case ECH_STEP_BACKWARD_WEIGHT:
        return ECH_BACKWARD_WEIGHT;
    default:
        return -1;
    }
}

ech_phase ech_step_phase(const ech_step *step)
{
    int phase = ech_step_kind_phase(step->kind);
    ECH_ASSERT(phase >= 0);
    return (ech_phase)phase;
}

bool ech_step_sends(const ech_step *step)
{
    return step->kind == ECH_STEP_SEND_ACT || step->kind == ECH_STEP_SEND_GRAD;
}

bool ech_step_receives(const ech_step *step)
{
    return step->kind == ECH_STEP_RECV_ACT || step->kind == ECH_STEP_RECV_GRAD;
}

bool ech_step_gathers(const ech_step *step)
{
    return step->lane == ECH_LANE_REDUCE || step->lane == ECH_LANE_COLLECTIVE;
}

int ech_step_boundary(const ech_step *step)
{
    bool before = step->kind == ECH_STEP_SEND_ACT || step->kind == ECH_STEP_RECV_GRAD;
    return step->block + before;
}

size_t ech_step_ports(const ech_step *step, const ech_block *block, const int **ports)
{
    switch (step->kind) {
    case ECH_STEP_SEND_ACT:
        *ports = block->output.at;
        return block->output.n;
    case ECH_STEP_RECV_ACT:
        *ports = block->input.at;
        return block->input.n;
    case ECH_STEP_SEND_GRAD:
        *ports = block->dinput.at;
        return block->dinput.n;
    case ECH_STEP_COLLECTIVE: /* that makes them whole */
        if (step->phase == ECH_FORWARD) {
            *ports = block->input.at;
            return block->input.n;
        }
        *ports = block->doutput.at;
        return block->doutput.n;
    default:
        *ports = block->doutput.at;
        return block->doutput.n;
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans as text.
 */

#include "schedule/schedule.h"

static void print_scalars(const ech_step *step, ech_text *out)
{
    ech_text_append(out, " %s", ech_scalar_name((ech_scalar)step->index));
    int last = step->index + step->count - 1;
    if (last >= ECH_SCALARS)
        ech_text_append(out, "..squares");
    else if (step->count > 1)
        ech_text_append(out, "..%s", ech_scalar_name((ech_scalar)last));
    ech_text_append(out, " %s over %s", step->maximum ? "maximum" : "sum",
                    ech_group_kind_name(step->group));
}

/* "[4-9]", "[4]". */
static void print_calls(const ech_step *step, ech_text *out)
{
    ech_text_append(out, "[%d", step->first_call);
    if (step->calls > 1) ech_text_append(out, "-%d", step->first_call + step->calls - 1);
    ech_text_append(out, "]");
}

static void print_collective(const ech_step *step, ech_text *out)
{
    static const char letters[ECH_PHASES + 1] = "FBW";
    ech_text_append(out, " %c%d.%d/%d", letters[step->phase], step->chunk, step->micro,
                    step->block);
    if (step->calls)
        print_calls(step, out);
    else
        ech_text_append(out, "[received]");
    ech_text_append(out, " %s over %s", ech_collective_name(step->collective),
                    ech_group_kind_name(step->group));
}

void ech_step_print(const ech_step *step, ech_text *out)
{
    ech_text_append(out, "%s", ech_step_name(step->kind));
    switch (step->kind) {
    case ECH_STEP_FORWARD:
    case ECH_STEP_BACKWARD_INPUT:
    case ECH_STEP_BACKWARD_WEIGHT:
        ech_text_append(out, "%d.%d/%d", step->chunk, step->micro, step->block);
        if (step->is_part) print_calls(step, out);
        break;
    case ECH_STEP_COLLECTIVE:
        print_collective(step, out);
        break;
    case ECH_STEP_SEND_ACT:
    case ECH_STEP_SEND_GRAD:
    case ECH_STEP_RECV_ACT:
    case ECH_STEP_RECV_GRAD:
        ech_text_append(out, " %d.%d/%d %s rank %d", step->chunk, step->micro, step->block,
                        ech_step_sends(step) ? "to" : "from", step->peer);
        break;
    case ECH_STEP_REDUCE:
        print_scalars(step, out);
        break;
    case ECH_STEP_REDUCE_GRADS:
        ech_text_append(out, " bucket %d over %s", step->index, ech_group_kind_name(step->group));
        break;
    case ECH_STEP_NORM:
    case ECH_STEP_STASH:
    case ECH_STEP_UPDATE:
        ech_text_append(out, " bucket %d", step->index);
        break;
    default:
        break;
    }
}

void ech_value_print(const ech_plan *plan, const ech_list *list, int value, ech_text *out)
{
    const ech_value *v = ech_plan_value(plan, list, value);
    if (v->block >= 0 && v->local >= 0) {
        const ech_block *block = plan->model->block.at[v->block];
        ech_text_append(out, "%s: %s, micro-batch %d", block->name, block->value.at[v->local].name,
                        v->micro);
    } else if (v->kind == ECH_MEMORY_PARAMETERS) {
        ech_text_append(out, "%s", plan->model->param.at[v->index].name);
    } else {
        ech_text_append(out, "%s", ech_memory_name(v->kind));
        if (v->index >= 0) ech_text_append(out, " %d", v->index);
    }
}

void ech_list_print(const ech_list *list, ech_text *out)
{
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        ech_text_append(out, "%5zu  %-10s ", s, ech_lane_name(step->lane));
        ech_step_print(step, out);
        for (int i = 0; i < step->afters; i++)
            ech_text_append(out, "%s%d", i ? " " : "  after ",
                            list->after.at[step->first_after + i]);
        ech_text_append(out, "\n");
    }
}

/* A W is part of its B's word where the two are one backward. */
static bool is_joined(const ech_step *before, const ech_step *step)
{
    return before && step->kind == ECH_STEP_BACKWARD_WEIGHT &&
           before->kind == ECH_STEP_BACKWARD_INPUT && before->chunk == step->chunk &&
           before->micro == step->micro;
}

void ech_list_print_row(const ech_list *list, ech_text *out)
{
    const ech_step *before = NULL;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->block < 0 || step->lane != ECH_LANE_COMPUTE || is_joined(before, step)) continue;
        bool same = before && before->kind == step->kind && before->chunk == step->chunk &&
                    before->micro == step->micro;
        before = step;
        if (same) continue;
        ech_text_append(out, "%s%s%d.%d", out->n ? " " : "", ech_step_name(step->kind), step->chunk,
                        step->micro);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans as text.
 */

#include "schedule/protocol/serving.h"
#include "schedule/operands.h"
#include "schedule/print.h"

void ech_value_print(const ech_plan *plan, const ech_list *list, int value, ech_text *out)
{
    const ech_value *v = ech_plan_value(plan, list, value);
    if (v->block >= 0 && v->local >= 0) {
        const ech_block *block = plan->model->block.at[v->block];
        ech_text_append(out, "%s: %s, micro-batch %d", block->name, block->value.at[v->local].name,
                        v->micro);
    } else {
        ech_text_append(out, "%s", ech_memory_name(v->kind));
        if (v->index >= 0) ech_text_append(out, " %d", v->index);
    }
}

void ech_list_print_step(const ech_list *list, const ech_step *step, ech_text *out)
{
    ech_step own = *step;
    own.peer = ech_list_peer(list, step);
    ech_step_print(&own, out);
    if (list->bound && (step->kind == ECH_STEP_SERVE || step->group == ECH_GROUP_PUSHED))
        ech_text_append(out, " of rank %d", list->bound[step->turn].worker);
}

void ech_list_print(const ech_list *list, ech_text *out)
{
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        ech_text_append(out, "%5zu  %-10s ", s, ech_lane_name(step->lane));
        ech_list_print_step(list, step, out);
        for (int i = 0; i < step->afters; i++)
            ech_text_append(out, "%s%d", i ? " " : "  after ",
                            list->after.at[step->first_after + i]);
        ech_text_append(out, "\n");
    }
}

/* True if a W, or the R of the next block, is part of its B's word because they are one
 * backward. */
static bool is_joined(const ech_step *before, const ech_step *step)
{
    bool joins = step->kind == ECH_STEP_BACKWARD_WEIGHT || step->kind == ECH_STEP_RECOMPUTE;
    return before && joins && before->kind == ECH_STEP_BACKWARD_INPUT &&
           before->chunk == step->chunk && before->micro == step->micro;
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that lets results reuse the offsets of values. A layer's backward may write the gradient
 * of an input in place of the input (ech_layer.overwrites), and its forward the output
 * (ech_layer.renews). If no later call reads that input, the input dies a tick early, and the
 * result, its successor, is at its offset. The order decides whether a later call reads it: a W
 * that comes after all of B does.
 *
 * A copy that brings data of a sequence chunk to the device reuses the offset of data that another
 * copy has removed, and waits for that copy. Both run at some time between the same two steps of
 * the compute lane; during that time the removed value is counted.
 */
#include "schedule/passes.h"
#include "schedule/operands.h"

/* NULL: it is not one of the list's own values. */
static ech_value *find_own(const ech_plan *plan, ech_list *list, const ech_step *step, int local)
{
    int value = ech_list_operand(plan, list, step, local);
    int own = value - (int)plan->persistent.n;
    return own < 0 ? NULL : &list->value.at[own];
}

static bool can_inherit(const ech_value *input, const ech_value *result, int tick)
{
    return input && result && input->kind == ECH_MEMORY_ACTIVATIONS &&
           (result->kind == ECH_MEMORY_ACTIVATIONS ||
            result->kind == ECH_MEMORY_ACTIVATION_GRADIENTS) &&
           input->bytes == result->bytes && input->dies == tick && result->born == tick &&
           input->born < tick && result->successor < 0;
}

static void inherit_call(const ech_plan *plan, ech_list *list, const ech_step *step, int index)
{
    const ech_block *block = plan->model->block.at[step->block];
    const ech_block_call *call = &block->program[step->phase].at[step->first_call + index];
    for (const ech_operand *o = NULL; (o = ech_call_next(block, call, list->purpose, o));) {
        int read = ech_operand_overwrites(block, call, o);
        if (read < 0) continue;
        ech_value *input = find_own(plan, list, step, read);
        ech_value *result = find_own(plan, list, step, o->value);
        if (!can_inherit(input, result, step->tick + index)) continue;
        input->successor = (int)(result - list->value.at);
        input->dies--;
    }
}

static ech_value *accessed(const ech_plan *plan, ech_list *list, const ech_step *step, int access)
{
    int value = list->access.at[step->first_access + access].value;
    return &list->value.at[value - (int)plan->persistent.n];
}

static bool carries(const ech_step *step, ech_step_kind kind)
{
    return step->kind == kind && step->resource != ECH_RESOURCE_WEIGHTS &&
           step->resource != ECH_RESOURCE_KEPT;
}

/* Value by value: keys reuse the offsets of keys. */
static void inherit_copy(const ech_plan *plan, ech_list *list, const ech_step *goes,
                         const ech_step *comes)
{
    if (goes->resource != comes->resource || goes->accesses != comes->accesses) return;
    for (int i = 0; i < comes->accesses; i += 2) {
        ech_value *from = accessed(plan, list, goes, i);
        ech_value *to = accessed(plan, list, comes, i + 1);
        bool meet = from->born < to->born && to->born <= from->dies && from->dies <= to->dies &&
                    !to->brought;
        if (!meet || from->bytes != to->bytes || from->successor >= 0) continue;
        from->successor = (int)(to - list->value.at);
        to->born = from->dies--;
        to->brought = true;
    }
}

void ech_pass_inherit(const ech_plan *plan, ech_list *list)
{
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool comes = carries(step, ECH_STEP_FETCH) && step->to == ECH_SPACE_DEVICE;
        for (int i = step->afters - 1; i >= 0 && comes; i--) { /* the last removed comes first */
            const ech_step *other = &list->step.at[list->after.at[step->first_after + i]];
            if (carries(other, ECH_STEP_OFFLOAD) && other->from == ECH_SPACE_DEVICE)
                inherit_copy(plan, list, other, step);
        }
        if (ech_step_kind_phase(step->kind) < 0) continue;
        for (int i = 0; i < step->calls; i++) inherit_call(plan, list, step, i);
    }
}

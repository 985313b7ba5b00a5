/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks up values of a list by their roles.
 */
#include "schedule/operands.h"

const ech_value *ech_plan_value(const ech_plan *plan, const ech_list *list, int value)
{
    size_t persistent = plan->persistent.n, v = (size_t)value;
    return v < persistent ? &plan->persistent.at[v] : &list->value.at[v - persistent];
}

int ech_list_instance(const ech_plan *plan, const ech_list *list, int value, ech_instance instance)
{
    int own = value - (int)plan->persistent.n;
    if (own < 0 || instance == ECH_INSTANCE_FORWARD) return value;
    return list->value.at[own].returned ? list->value.at[own].returned : value;
}

int ech_list_value_of(const ech_plan *plan, const ech_list *list, const ech_block *block, int local,
                      int micro, ech_instance instance)
{
    if (block->value.at[local].cached) micro -= ech_micro_at(list->numbering, micro).sequence_chunk;
    int slot = (list->first_local[block->index] + local) * list->micro_batches + micro;
    return ech_list_instance(plan, list, list->value_of[slot], instance);
}

int ech_list_operand(const ech_plan *plan, const ech_list *list, const ech_step *step, int local)
{
    const ech_block *block = plan->model->block.at[step->block];
    const ech_block_value *of = &block->value.at[local];
    if (!of->cached || of->source != ECH_FROM_NODE)
        return ech_list_value_of(plan, list, block, local, step->micro, ech_step_instance(step));
    for (int i = 0; i < step->accesses; i++) {
        int value = list->access.at[step->first_access + i].value;
        const ech_value *v = ech_plan_value(plan, list, value);
        if (v->kind == ECH_MEMORY_KV_CACHE && v->local == local) return value;
    }
    return -1;
}

bool ech_list_writes_first(const ech_plan *plan, const ech_list *list, const ech_step *step,
                           int call, int param)
{
    int instance =
        ech_list_gradient_instance(plan, list, plan->param[param].bucket, step->turn, step->micro);
    const ech_writer *first =
        &list->first_writer[(size_t)instance * plan->model->param.n + (size_t)param];
    return first->step == (int)(step - list->step.at) && first->call == call;
}

int ech_list_batch(const ech_list *list, ech_slot slot, int micro)
{
    ech_micro at = ech_micro_at(list->numbering, micro);
    return list->batch[slot] +
           (ech_slot_is_whole(slot) ? ech_micro_whole(list->numbering, at) : micro);
}

/* The first of the list's own values of that kind and bucket that the step accesses; -1: none. */
static int accessed(const ech_plan *plan, const ech_list *list, const ech_step *step,
                    ech_memory_kind kind, int bucket)
{
    for (int i = 0; i < step->accesses; i++) {
        int value = list->access.at[step->first_access + i].value;
        const ech_value *v = ech_plan_value(plan, list, value);
        if (value >= (int)plan->persistent.n && v->kind == kind && v->index == bucket) return value;
    }
    return -1;
}

bool ech_use_fits(ech_used_as use, ech_memory_kind kind)
{
    switch (use) {
    case ECH_USE_GRADIENTS:
    case ECH_USE_SUM:
        return kind == ECH_MEMORY_GRADIENTS || kind == ECH_MEMORY_GRADIENTS_ON_HOST;
    case ECH_USE_WEIGHTS: /* on the host an update may make them from masters */
    case ECH_USE_NEXT:
    case ECH_USE_INSTANCE:
        return ech_memory_is_weights(kind) || kind == ECH_MEMORY_PARAMETERS_ON_HOST ||
               kind == ECH_MEMORY_OPTIMIZER_ON_HOST;
    case ECH_USE_STATE:
        return kind == ECH_MEMORY_OPTIMIZER || kind == ECH_MEMORY_OPTIMIZER_ON_HOST;
    case ECH_USE_STATISTICS:
        return kind == ECH_MEMORY_STATISTICS || kind == ECH_MEMORY_STATISTICS_ON_HOST;
    case ECH_USE_FACTORS:
        return kind == ECH_MEMORY_FACTORS;
    case ECH_USE_OTHER:
    case ECH_USES:
        break;
    }
    return true;
}

int ech_step_uses(const ech_list *list, const ech_step *step, ech_used_as use, int number)
{
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &list->access.at[step->first_access + i];
        if (access->use == use && number-- == 0) return access->value;
    }
    return -1;
}

int ech_list_gradients(const ech_plan *plan, const ech_list *list, const ech_step *step, int bucket)
{
    int value = accessed(plan, list, step, ECH_MEMORY_GRADIENTS, bucket);
    int instance = ech_list_gradient_instance(plan, list, bucket, step->turn, step->micro);
    return value < 0 ? list->gradients[(size_t)instance * plan->bucket.n + (size_t)bucket] : value;
}

int ech_list_shard_sum(const ech_plan *plan, const ech_list *list, const ech_step *step)
{
    if (!ech_bucket_sums_shard(&plan->bucket.at[step->index])) return -1;
    int sum = ech_list_summed(plan, list, step->index, step->turn);
    for (int i = 0; i < step->accesses; i++) {
        int value = list->access.at[step->first_access + i].value;
        const ech_value *v = ech_plan_value(plan, list, value);
        if (v->kind == ECH_MEMORY_GRADIENTS && v->index == step->index && v->micro < 0) sum = value;
    }
    return sum;
}

int ech_list_weights(const ech_plan *plan, const ech_list *list, const ech_step *step, int bucket)
{
    if (!ech_bucket_is_brought(&plan->bucket.at[bucket]))
        return ech_plan_weights(plan, bucket, step->version);
    return accessed(plan, list, step, ECH_MEMORY_PARAMETERS, bucket);
}

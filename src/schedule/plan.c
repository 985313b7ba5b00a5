/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's plan: persistent values, then each list through the passes.
 */
#include <stdlib.h>

#include "schedule/passes.h"

static int add_persistent(ech_plan *plan, ech_memory_kind kind, int index, int64_t bytes)
{
    ech_value value = {.kind = kind,
                       .block = -1,
                       .local = -1,
                       .micro = -1,
                       .index = index,
                       .bytes = bytes,
                       .offset = plan->persistent_bytes};
    ECH_PUSH(plan->persistent, value);
    plan->persistent_bytes += ech_align(bytes);
    return (int)plan->persistent.n - 1;
}

static void plan_persistent(ech_plan *plan, bool forward_only)
{
    int64_t bytes = (int64_t)ech_dtype_bytes(plan->real);
    size_t params = plan->model->param.n;
    plan->param = ech_calloc(params, sizeof *plan->param);
    for (size_t i = 0; i < params; i++) {
        ech_param_plan *p = &plan->param[i];
        p->elements = ech_shape_count(&plan->model->param.at[i].shape, (ech_extent){1, 1});
        p->value = add_persistent(plan, ECH_MEMORY_PARAMETERS, (int)i, p->elements * bytes);
        p->first_step = -1;
        p->norm_first = plan->norm_partials;
        plan->norm_partials += (p->elements + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK;
    }
    for (size_t i = 0; i < params && !forward_only; i++)
        for (int s = 0; s < plan->states; s++)
            plan->param[i].state[s] =
                add_persistent(plan, ECH_MEMORY_OPTIMIZER, (int)i, plan->param[i].elements * bytes);
    plan->scalars =
        add_persistent(plan, ECH_MEMORY_SCALARS, 0, ECH_SCALARS * (int64_t)sizeof(double));
    plan->partials = forward_only ? -1
                                  : add_persistent(plan, ECH_MEMORY_SCALARS, 1,
                                                   plan->norm_partials * (int64_t)sizeof(double));
}

static void order_forwards(int micro_batches, ech_order *order)
{
    for (int micro = 0; micro < micro_batches; micro++)
        ECH_PUSH(*order, (ech_order_item){.action = ECH_F, .micro = micro});
}

static void begin(ech_plan *plan, ech_list_kind kind, ech_purpose purpose, ech_extent extent,
                  int micro_batches)
{
    ech_list *list = &plan->list[kind];
    list->kind = kind;
    list->purpose = purpose;
    list->extent = extent;
    list->micro_batches = micro_batches;
}

static void plan_training(ech_plan *plan, const ech_config *config)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    const ech_place *place = &plan->layout->place[plan->rank];
    ech_order order = {0};
    ech_generator_find(config->parallel.schedule)
        ->generate(plan->layout->stages, place->stage, list->micro_batches, &order);
    ech_pass_lower(plan, list, &order);
    ech_pass_bucket(plan, list, config->parallel.bucket_bytes);
    ech_pass_frame_training(plan, list);
    free(order.at);
}

static void plan_forwards(ech_plan *plan, ech_list *list)
{
    ech_order order = {0};
    order_forwards(list->micro_batches, &order);
    ech_pass_lower(plan, list, &order);
    ech_pass_frame_validation(plan, list);
    free(order.at);
}

static void plan_check(ech_plan *plan, ech_list *list)
{
    ech_list_add(list, ECH_STEP_HASH);
    if (ech_layout_group_size(plan->layout, plan->rank, ECH_GROUP_DATA) > 1) {
        int added = ech_list_add(list, ECH_STEP_REDUCE);
        ech_step *reduce = &list->step.at[added];
        reduce->index = ECH_SCALAR_HASH0;
        reduce->count = ECH_SCALAR_HASH7 - ECH_SCALAR_HASH0 + 1;
        reduce->group = ECH_GROUP_DATA;
        reduce->maximum = true;
        ech_list_add_after(list, 0);
    }
    int last = (int)list->step.n - 1;
    ech_list_add(list, ECH_STEP_READ);
    ech_list_add_after(list, last);
}

static void plan_lists(ech_plan *plan, const ech_config *config, bool forward_only)
{
    ech_extent extent = {plan->layout->micro_batch, config->data.sequence_length};
    ech_extent one = {1, config->data.sequence_length};
    int m = (int)plan->layout->micro_batches;
    begin(plan, ECH_LIST_INIT, ECH_TRAIN, extent, 1);
    begin(plan, ECH_LIST_TRAIN, ECH_TRAIN, extent, m);
    begin(plan, ECH_LIST_VALIDATE, ECH_EVALUATE, extent, m);
    begin(plan, ECH_LIST_CHECK, ECH_TRAIN, extent, 1);
    begin(plan, ECH_LIST_SAVE, ECH_TRAIN, extent, 1);
    begin(plan, ECH_LIST_GENERATE, ECH_GENERATE, one, 1);

    ech_list_add(&plan->list[ECH_LIST_INIT], ECH_STEP_INIT);
    ech_list_add(&plan->list[ECH_LIST_SAVE], ECH_STEP_SAVE);
    plan_check(plan, &plan->list[ECH_LIST_CHECK]);
    plan_forwards(plan, &plan->list[ECH_LIST_VALIDATE]);
    if (forward_only)
        plan_forwards(plan, &plan->list[ECH_LIST_GENERATE]);
    else
        plan_training(plan, config);
}

static ech_status finish_lists(ech_plan *plan)
{
    int64_t most = 0;
    for (int i = 0; i < ECH_LIST_KINDS; i++) {
        ech_list *list = &plan->list[i];
        ech_pass_access(plan, list);
        ech_pass_lifetime(plan, list);
        ech_pass_place(list, plan->persistent_bytes);
        if (list->bytes > most) most = list->bytes;
    }
    plan->arena_bytes = plan->persistent_bytes + most;
    for (int i = 0; i < ECH_LIST_KINDS; i++) ECH_TRY(ech_list_check(plan, &plan->list[i]));
    return ECH_OK;
}

ech_status ech_plan_create(const ech_plan_request *request, ech_plan **out)
{
    ech_plan *plan = ech_calloc(1, sizeof *plan);
    plan->rank = request->rank;
    plan->model = request->model;
    plan->layout = request->layout;
    plan->kernels = request->kernels;
    plan->real = request->kernels->dtype;
    plan->threads = request->threads;
    plan->optimizer = ech_optimizer_find(request->config->optimizer.name);
    plan->states = plan->optimizer->states(request->config, plan->state_name);
    ech_reduction_from_name(request->config->parallel.reduction, &plan->reduction);
    plan_persistent(plan, request->forward_only);
    plan_lists(plan, request->config, request->forward_only);
    ech_status status = finish_lists(plan);
    if (status != ECH_OK) {
        ech_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return ECH_OK;
}

static void free_list(ech_list *list)
{
    free(list->step.at);
    free(list->after.at);
    free(list->access.at);
    free(list->value.at);
    free(list->value_of);
    free(list->first_local);
}

void ech_plan_destroy(ech_plan *plan)
{
    if (!plan) return;
    for (int i = 0; i < ECH_LIST_KINDS; i++) free_list(&plan->list[i]);
    free(plan->persistent.at);
    free(plan->param);
    free(plan->bucket.at);
    free(plan->bucket_param.at);
    free(plan);
}

const ech_value *ech_plan_value(const ech_plan *plan, const ech_list *list, int value)
{
    size_t persistent = plan->persistent.n, v = (size_t)value;
    return v < persistent ? &plan->persistent.at[v] : &list->value.at[v - persistent];
}

int ech_list_value_of(const ech_list *list, const ech_block *block, int local, int micro)
{
    int base = ech_block_base(block, local);
    return list->value_of[(list->first_local[block->index] + base) * list->micro_batches + micro];
}

int64_t ech_plan_reduced_bytes(const ech_plan *plan)
{
    int64_t bytes = 0;
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int *members = ech_calloc((size_t)plan->layout->world, sizeof *members);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_REDUCE_GRADS) continue;
        int n = ech_layout_members(plan->layout, plan->rank, step->group, members), me = 0;
        while (members[me] != plan->rank) me++;
        bytes += ech_reduction_bytes(plan->reduction, plan->real,
                                     plan->bucket.at[step->index].elements, n, me);
    }
    free(members);
    return bytes;
}

void ech_plan_peaks(const ech_plan *plan, int64_t peak[ECH_MEMORY_KINDS])
{
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        int64_t always = 0, most = 0;
        for (size_t i = 0; i < plan->persistent.n; i++)
            if ((int)plan->persistent.at[i].kind == kind)
                always += ech_align(plan->persistent.at[i].bytes);
        for (int l = 0; l < ECH_LIST_KINDS; l++)
            if (plan->list[l].peak[kind] > most) most = plan->list[l].peak[kind];
        peak[kind] = always + most;
    }
}

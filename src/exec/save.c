/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters and states as tensors of checkpoints and of folders of weights: SNAPSHOT, and back.
 */
#include <stdio.h>
#include <stdlib.h>

#include "exec/state.h"

/* The weights before the newest, without which a run with buffered weights could not go on. */
static const char previous_name[] = "previous";
/* The weights as the run has them, where model/ has narrower ones. */
static const char master_name[] = "master";

/* Adds this rank's slices of a parameter, or of a tensor of its shape, as boxes of the whole tensor. */
static void add_slices(const ech_plan *plan, const ech_param *p, const ech_tensor *x,
                       ech_saved_tensor *saved)
{
    ech_slice slices[ECH_MOST_SLICES];
    int n = ech_shape_slices(&p->shape, plan->layout->sharding,
                             plan->layout->coordinates[plan->rank].tensor, slices);
    for (int i = 0; i < n; i++) {
        if (!slices[i].count) continue; /* a vocabulary with fewer shards than ranks */
        int64_t begin[ECH_MAX_DIMS] = {0};
        ech_tensor part = ech_tensor_narrow(x, slices[i].dim, slices[i].local, slices[i].count);
        begin[slices[i].dim] = slices[i].whole;
        ech_saved_add(saved, begin, &part);
    }
}

/* x: this rank's slices, of the type of the whole; without data: none. */
static ech_saved_tensor *add_tensor(const ech_exec *exec, ech_saved_list *list, int param,
                                    const char *state, ech_tensor x)
{
    const ech_param *p = &exec->plan->model->param.at[param];
    ech_saved_tensor saved = {
        .name = p->name, .is_state = state != NULL, .dtype = x.dtype, .dims = p->shape.dims};
    if (!list->pool) list->pool = ech_pool_create();
    if (state) saved.name = ech_pool_format(list->pool, "%s.%s", p->name, state);
    for (int d = 0; d < p->shape.dims; d++) saved.shape[d] = p->shape.size[d];
    if (x.data) add_slices(exec->plan, p, &x, &saved);
    ECH_PUSH(list->tensor, saved);
    return &list->tensor.at[list->tensor.n - 1];
}

void ech_saved_list_free(ech_saved_list *list)
{
    free(list->tensor.at);
    ech_pool_destroy(list->pool);
    *list = (ech_saved_list){0};
}

ech_dtype ech_exec_saved_dtype(const ech_exec *exec)
{
    switch (exec->config->checkpoint.dtype) {
    case ECH_SAVED_FP32:
        return ECH_F32;
    case ECH_SAVED_BF16:
        return ECH_BF16;
    default: /* auto */
        return exec->plan->types.compute;
    }
}

/* The weights, into model/ and where they are rounded there also in full. */
static void add_weights(const ech_exec *exec, ech_saved_list *list, int param, ech_tensor x)
{
    ech_saved_tensor *saved = add_tensor(exec, list, param, NULL, x);
    saved->narrow = ech_exec_saved_dtype(exec);
    saved->narrowed = saved->narrow != x.dtype;
    if (saved->narrowed) add_tensor(exec, list, param, master_name, x);
}

static bool keeps_previous(const ech_exec *exec)
{
    return exec->plan->partials >= 0 && exec->plan->schedule->weights == ECH_WEIGHTS_BUFFERED;
}

/* ---- what is saved of a parameter: its copies in the order of a plan's snapshots ---- */

static int count_copies(const ech_exec *exec)
{
    return 1 + (exec->plan->partials >= 0 ? exec->plan->states : 0) + keeps_previous(exec);
}

static bool is_state(const ech_exec *exec, int i)
{
    return i > 0 && i <= exec->plan->states;
}

/* The suffix to the parameter's name; of the states and previous weights. */
static const char *copy_name(const ech_exec *exec, int i)
{
    return is_state(exec, i) ? exec->plan->state_name[i - 1] : previous_name;
}

/* Where training has it; of a parameter that this rank holds. */
static int copy_value(const ech_exec *exec, int param, int i)
{
    const ech_plan_param *p = &exec->plan->param[param];
    if (is_state(exec, i)) return p->state[i - 1];
    return p->value + ech_exec_weight_slot(exec, i == 0 ? 0 : -1);
}

/* The copy without data. */
static ech_tensor copy_shape(const ech_exec *exec, int param, int i)
{
    ech_tensor x = exec->param_view[param];
    if (is_state(exec, i)) x.dtype = ech_plan_state_dtype(exec->plan, param);
    return x;
}

/* The copy, or its copy in the snapshot. step: that reads or writes it; NULL: none runs. */
static ech_tensor copy_at(const ech_exec *exec, const ech_step *step, int param, int i,
                          bool snapshot)
{
    ech_tensor x = copy_shape(exec, param, i);
    int value = snapshot ? exec->plan->param[param].snapshot + i : copy_value(exec, param, i);
    x.data = step ? ech_exec_address(exec, step, value) : ech_exec_look(exec, value);
    return x;
}

static bool is_written(const ech_exec *exec, int param)
{
    const ech_plan *plan = exec->plan;
    return plan->param[param].value >= 0 &&
           ech_layout_writes(plan->layout, plan->model, plan->rank, param);
}

ech_saved_list ech_exec_list_saved(const ech_exec *exec, const ech_step *step)
{
    ech_saved_list list = {0};
    for (int param = 0; param < (int)exec->plan->model->param.n; param++)
        for (int i = 0; i < count_copies(exec); i++) {
            ech_tensor x = copy_shape(exec, param, i);
            if (is_written(exec, param))
                x = copy_at(exec, step, param, i, exec->plan->snapshots > 0);
            if (i == 0)
                add_weights(exec, &list, param, x);
            else
                add_tensor(exec, &list, param, copy_name(exec, i), x);
        }
    return list;
}

void ech_snapshot_prepare(ech_exec *exec)
{
    for (size_t i = 0; i < exec->plan->persistent.n; i++) {
        const ech_value *v = &exec->plan->persistent.at[i];
        if (v->kind == ECH_MEMORY_SNAPSHOT)
            exec->device->fill(exec->arena + v->offset, 0, (size_t)v->bytes);
    }
}

ech_status ech_handle_SNAPSHOT(ech_exec *exec, const ech_step *step)
{
    ECH_TRY(ech_saver_wait(exec));
    for (int param = 0; param < (int)exec->plan->model->param.n; param++)
        for (int i = 0; is_written(exec, param) && i < count_copies(exec); i++) {
            ech_tensor from = copy_at(exec, step, param, i, false);
            ech_tensor to = copy_at(exec, step, param, i, true);
            exec->device->copy(to.data, from.data, ech_tensor_bytes(&from));
        }
    return ECH_OK;
}

/* ---- and back ---- */

/* Whether this rank has the parameter. */
static bool has_param(const ech_exec *exec, int param)
{
    return exec->plan->param[param].value >= 0;
}

/* The state that training goes on from instead of the weights in model/; NULL: from those. */
static const char *weights_of(const ech_exec *exec, const ech_checkpoint *checkpoint, int param)
{
    char name[512];
    if (exec->plan->partials < 0) return NULL;
    snprintf(name, sizeof name, "%s.%s", exec->plan->model->param.at[param].name, master_name);
    return ech_checkpoint_has_state(checkpoint, name) ? master_name : NULL;
}

/* Where the checkpoint has none, saved by another schedule, the newest weights stand for those before,
 * as at the start of a run. */
static ech_status restore_previous(ech_exec *exec, const ech_checkpoint *checkpoint)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list list = {0};
    for (int i = 0; i < (int)exec->plan->model->param.n; i++) {
        if (!has_param(exec, i)) continue;
        ech_exec_copy_weights(exec, i, 0, -1);
        add_tensor(exec, &list, i, previous_name, ech_exec_param_at(exec, i, -1));
    }
    if (!list.tensor.n || !ech_checkpoint_has_state(checkpoint, list.tensor.at[0].name))
        return ECH_OK;
    return ech_checkpoint_load(checkpoint, list.tensor.at, (int)list.tensor.n);
}

/* What this rank holds, but for previous weights, which some checkpoints lack. */
ech_status ech_exec_restore(ech_exec *exec, const ech_checkpoint *checkpoint)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list list = {0};
    for (int param = 0; param < (int)exec->plan->model->param.n; param++) {
        if (!has_param(exec, param)) continue;
        for (int i = 0; i < count_copies(exec) - keeps_previous(exec); i++)
            add_tensor(exec, &list, param,
                       i ? copy_name(exec, i) : weights_of(exec, checkpoint, param),
                       copy_at(exec, NULL, param, i, false));
    }
    ECH_TRY(ech_checkpoint_load(checkpoint, list.tensor.at, (int)list.tensor.n));
    *exec->updates = (double)ech_checkpoint_get_info(checkpoint)->optimizer_count;
    return keeps_previous(exec) ? restore_previous(exec, checkpoint) : ECH_OK;
}

/* ---- folders of weights ---- */

ech_status ech_exec_check_weights(const ech_exec *exec, const ech_shards *weights)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list all = {0};
    for (int i = 0; i < (int)exec->plan->model->param.n; i++)
        add_tensor(exec, &all, i, NULL, exec->param_view[i]);
    ECH_TRY(ech_shards_check(weights, all.tensor.at, (int)all.tensor.n));
    return exec->plan->rank == 0 ? ech_shards_check_head(weights) : ECH_OK;
}

ech_status ech_exec_take_weights(ech_exec *exec, const ech_shards *weights)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list held = {0};
    int params = (int)exec->plan->model->param.n;
    for (int i = 0; i < params; i++)
        if (has_param(exec, i)) add_tensor(exec, &held, i, NULL, ech_exec_param(exec, i));
    ECH_TRY(ech_shards_load(weights, held.tensor.at, (int)held.tensor.n));
    for (int i = 0; i < params; i++)
        for (int v = 1; has_param(exec, i) && v < exec->plan->versions; v++)
            ech_exec_copy_weights(exec, i, 0, v);
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters and states as tensors of checkpoints and of folders of weights: SNAPSHOT, and loading.
 */
#include <stdio.h>
#include <string.h>

#include "exec/holding.h"
#include "schedule/states.h"

/* ---- as tensors of a file ---- */

/* data: this rank's part; NULL: no boxes. in_file: the type there. */
static void add_tensor_as(const ech_exec *exec, ech_saved_list *list, int param,
                          const ech_holding *of, void *data, ech_dtype in_file)
{
    const ech_param *p = &exec->plan->model->param.at[param];
    ech_saved_tensor tensor = {.file = of->name ? ECH_FILE_STATE : ECH_FILE_MODEL,
                               .dtype = of->dtype,
                               .narrowed = in_file != of->dtype,
                               .narrow = in_file,
                               .dims = of->shape.dims};
    for (int d = 0; d < of->shape.dims; d++) tensor.shape[d] = of->shape.size[d];
    if (data) {
        tensor.data = data;
        tensor.boxes = of->held.boxes;
        memcpy(tensor.box, of->held.box, sizeof tensor.box);
    }
    ech_saved_list_add(list, p, of->name, &tensor);
}

static void add_tensor(const ech_exec *exec, ech_saved_list *list, int param, const ech_holding *of,
                       void *data)
{
    add_tensor_as(exec, list, param, of, data, of->dtype);
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

/* Adds the weights to model/, and if they are rounded there also to state/ in full precision. */
static void add_weights(const ech_exec *exec, ech_saved_list *list, int param, ech_holding of,
                        void *data)
{
    ech_dtype in_file =
        ech_saved_weight_dtype(&exec->plan->model->param.at[param], ech_exec_saved_dtype(exec));
    add_tensor_as(exec, list, param, &of, data, in_file);
    if (in_file == of.dtype) return;
    of.name = ech_holding_master;
    add_tensor(exec, list, param, &of, data);
}

/* The number of updates, for the rank that saves the first numbers of the state that it counts. */
static void add_counter(const ech_exec *exec, ech_saved_list *list, const ech_param *param,
                        const ech_holding *of)
{
    if (!param->counter) return;
    ech_saved_tensor count = {.name = param->counter, .file = ECH_FILE_MODEL, .dtype = ECH_I64};
    for (int b = 0; b < of->held.boxes; b++)
        if (of->held.writes && of->held.box[b].begin[0] == 0 && of->held.box[b].size[0] > 0) {
            ech_tensor number = ech_tensor_view((void *)&exec->saver.updates, ECH_I64, 0, NULL);
            ech_saved_add(&count, (const int64_t[1]){0}, &number);
        }
    ECH_PUSH(list->tensor, count);
}

ech_saved_list ech_exec_list_saved(const ech_exec *exec, const ech_step *step)
{
    ech_saved_list list = {.copier = exec->plan->snapshots ? NULL : ech_exec_copier(exec, 1)};
    ech_holding of[ECH_MOST_HOLDINGS];
    for (int param = 0; param < (int)exec->plan->model->param.n; param++)
        for (int i = 0, n = ech_exec_list_kept(exec, param, of); i < n; i++) {
            void *data = NULL;
            ech_holding_leave_to_others(&of[i].held);
            if (of[i].held.writes)
                data = exec->plan->snapshots ? ech_exec_address(exec, step, of[i].snapshot)
                                             : ech_exec_kept_data(exec, step, &of[i]);
            if (of[i].name)
                add_tensor(exec, &list, param, &of[i], data);
            else
                add_weights(exec, &list, param, of[i], data);
            if (!of[i].name) add_counter(exec, &list, &exec->plan->model->param.at[param], &of[i]);
        }
    return list;
}

/* Data on disk is read by this thread: the disk has all of it when a list begins. */
static ech_status copy_saved(ech_exec *exec, const ech_step *step, const ech_holding *of)
{
    int64_t offset;
    char *to = ech_exec_address(exec, step, of->snapshot),
         *from = ech_exec_kept_data(exec, step, of);
    if (ech_disk_has(exec->disk, from, &offset))
        return ech_disk_get(exec->disk, offset, to, of->bytes);
    exec->device->copy(ech_exec_queue(exec, step), to, from, of->bytes);
    return ECH_OK;
}

ech_status ech_handle_SNAPSHOT(ech_exec *exec, const ech_step *step)
{
    ECH_TRY(ech_saver_wait(exec));
    ech_holding of[ECH_MOST_HOLDINGS];
    for (int param = 0; param < (int)exec->plan->model->param.n; param++)
        for (int i = 0, n = ech_exec_list_kept(exec, param, of); i < n; i++)
            if (of[i].held.writes) ECH_TRY(copy_saved(exec, step, &of[i]));
    return ECH_OK;
}

/* ---- loading ---- */

/* The state from which training resumes, and which an evaluator validates, instead of the weights
 * in model/; NULL: use model/. */
static const char *weights_of(const ech_exec *exec, const ech_checkpoint *checkpoint, int param)
{
    if (!ech_exec_trains(exec) && !exec->plan->validates) return NULL;
    ECH_CLEANUP(ech_pool_destroy_at) ech_pool *pool = ech_pool_create();
    const char *name =
        ech_saved_name(pool, &exec->plan->model->param.at[param], ech_holding_master);
    return ech_checkpoint_has_state(checkpoint, name) ? ech_holding_master : NULL;
}

/* If the checkpoint has none, because another schedule saved it, the newest weights replace the
 * previous ones, as at the start of a run. */
static ech_status restore_previous(ech_exec *exec, const ech_checkpoint *checkpoint)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list list = {.copier = ech_exec_copier(exec, 0)};
    for (int i = 0; i < (int)exec->plan->model->param.n; i++) {
        if (!ech_exec_has_param(exec, i)) continue;
        ech_holding of = ech_exec_weights_kept(exec, i, ech_holding_previous, -1);
        ech_exec_copy_weights(exec, i, 0, -1);
        add_tensor(exec, &list, i, &of, ech_exec_kept_data(exec, NULL, &of));
    }
    if (!list.tensor.n || !ech_checkpoint_has_state(checkpoint, list.tensor.at[0].name))
        return ECH_OK;
    return ech_checkpoint_load(checkpoint, list.tensor.at, (int)list.tensor.n);
}

/* Adds the weights of an ech_exec_loads_rounded. name: of their masters. */
static void add_rounded(const ech_exec *exec, ech_saved_list *list, int param, const char *name)
{
    if (!ech_exec_loads_rounded(exec, param)) return;
    ech_holding weights = ech_exec_weights_kept(exec, param, name, 0);
    add_tensor(exec, list, param, &weights, ech_exec_kept_data(exec, NULL, &weights));
}

/* The number of replicas in the checkpoint; 0: it has no such state. */
static int64_t replicas_in(const ech_exec *exec, const ech_checkpoint *checkpoint, int param,
                           const ech_holding *of)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list list = {0};
    add_tensor(exec, &list, param, of, NULL);
    return ech_checkpoint_state_size(checkpoint, list.tensor.at[0].name);
}

/* With equal numbers of replicas: loads this rank's replica. */
static ech_status load_replica(const ech_exec *exec, const ech_checkpoint *checkpoint, int param,
                               const ech_holding *own, int64_t replicas, int64_t replica)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list list = {.copier = ech_exec_copier(exec, 0)};
    ech_holding of = *own;
    int d = ech_shape_replicas(&of.shape);
    of.shape.size[d] = replicas;
    for (int b = 0; b < of.held.boxes; b++) of.held.box[b].begin[d] = replica;
    add_tensor(exec, &list, param, &of, ech_exec_kept_data(exec, NULL, &of));
    return ech_checkpoint_load(checkpoint, list.tensor.at, (int)list.tensor.n);
}

/* With other numbers of replicas: each gets an equal share of residuals, since gradients are sums
 * over them, and the mean of the optimizer states of diverging replicas. */
static ech_status restore_share(ech_exec *exec, const ech_checkpoint *checkpoint, int param,
                                const ech_holding *of, int64_t replicas)
{
    const ech_plan_param *p = &exec->plan->param[param];
    ech_tensor own = ech_exec_state(exec, param, of->state);
    int64_t n = ech_tensor_count(&own), now = of->shape.size[ech_shape_replicas(&of->shape)];
    bool adds = exec->plan->state.at[p->first_state + of->state].is.role == ECH_STATE_RESIDUAL;
    ECH_FREED double *sum = ech_calloc((size_t)n + 1, sizeof *sum);
    ECH_FREED double *one = ech_calloc((size_t)n + 1, sizeof *one);
    for (int64_t r = 0; r < replicas; r++) {
        ECH_TRY(load_replica(exec, checkpoint, param, of, replicas, r));
        ech_exec_read(exec, &own, one);
        for (int64_t i = 0; i < n; i++) sum[i] += one[i];
    }
    for (int64_t i = 0; i < n; i++) sum[i] /= (double)(adds ? now : replicas);
    ech_exec_write(exec, &own, sum);
    return ECH_OK;
}

/* True: it was restored from another number of replicas. */
static ech_status restore_replicas(ech_exec *exec, const ech_checkpoint *checkpoint, int param,
                                   const ech_holding *of, bool *restored)
{
    int d = ech_shape_replicas(&of->shape);
    int64_t replicas = d < 0 ? 0 : replicas_in(exec, checkpoint, param, of);
    *restored = replicas > 0 && replicas != of->shape.size[d];
    return *restored ? restore_share(exec, checkpoint, param, of, replicas) : ECH_OK;
}

/* True for a state of compressed gradients that the checkpoint does not have in this shape, since
 * another parallel.compression or rank saved it: the state keeps its initial value. A residual of
 * another number of replicas has been restored before. */
static bool begins_anew(const ech_exec *exec, const ech_checkpoint *checkpoint, int param,
                        const ech_holding *of)
{
    if (of->kind != ECH_HELD_STATE || !of->name) return false;
    ech_state_role role =
        exec->plan->state.at[exec->plan->param[param].first_state + of->state].is.role;
    if (role != ECH_STATE_RESIDUAL && role != ECH_STATE_BASIS) return false;
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list list = {0};
    add_tensor(exec, &list, param, of, NULL);
    return !ech_checkpoint_fits(checkpoint, &list.tensor.at[0]);
}

/* Loads what this rank holds, except previous weights, which some checkpoints lack. */
ech_status ech_exec_restore(ech_exec *exec, const ech_checkpoint *checkpoint)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list list = {.copier = ech_exec_copier(exec, 0)};
    ech_holding of[ECH_MOST_HOLDINGS];
    for (int param = 0; param < (int)exec->plan->model->param.n; param++) {
        if (!ech_exec_has_param(exec, param)) continue;
        int n = ech_exec_list_kept(exec, param, of) - ech_exec_keeps_previous(exec);
        of[0].name = weights_of(exec, checkpoint, param);
        for (int i = 0; i < n; i++) {
            bool restored;
            ECH_TRY(restore_replicas(exec, checkpoint, param, &of[i], &restored));
            if (!restored && !begins_anew(exec, checkpoint, param, &of[i]))
                add_tensor(exec, &list, param, &of[i], ech_exec_kept_data(exec, NULL, &of[i]));
        }
        add_rounded(exec, &list, param, of[0].name);
    }
    ECH_TRY(ech_checkpoint_load(checkpoint, list.tensor.at, (int)list.tensor.n));
    for (int param = 0; param < (int)exec->plan->model->param.n; param++)
        if (ech_exec_has_param(exec, param)) ech_exec_round_weights(exec, param, 0);
    const ech_checkpoint_info *info = ech_checkpoint_get_info(checkpoint);
    exec->updates = info->optimizer_count;
    ech_exec_set_clocks(exec, info->clock, info->clocks, info->step);
    if (info->has_scaler && ech_scaler_is_dynamic(exec->config)) exec->scaler = info->scaler;
    ECH_TRY(ech_exec_meet_in_shared(exec));
    return ech_exec_keeps_previous(exec) ? restore_previous(exec, checkpoint) : ECH_OK;
}

/* ---- folders of weights ---- */

static bool is_adapter(const ech_exec *exec, int param)
{
    return exec->plan->model->param.at[param].adapter != ECH_ADAPTER_NONE;
}

static void list_weights(const ech_exec *exec, bool adapters, ech_saved_list *out)
{
    for (int i = 0; i < (int)exec->plan->model->param.n; i++) {
        ech_holding of = ech_exec_weights_kept(exec, i, NULL, 0);
        if (is_adapter(exec, i) == adapters) add_tensor(exec, out, i, &of, NULL);
    }
}

ech_status ech_exec_check_weights(const ech_exec *exec, const ech_shards *weights,
                                  const ech_peft *adapters)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list own = {0}, added = {0};
    list_weights(exec, false, &own);
    ECH_TRY(ech_shards_check(weights, own.tensor.at, (int)own.tensor.n));
    list_weights(exec, true, &added);
    if (adapters) ECH_TRY(ech_peft_check(adapters, added.tensor.at, (int)added.tensor.n));
    return exec->plan->rank == 0 ? ech_shards_check_head(weights) : ECH_OK;
}

static void list_held(const ech_exec *exec, bool adapters, ech_saved_list *out)
{
    ech_holding of[ECH_MOST_HOLDINGS];
    out->copier = ech_exec_copier(exec, 0);
    for (int i = 0; i < (int)exec->plan->model->param.n; i++) {
        if (is_adapter(exec, i) != adapters) continue;
        ech_exec_list_kept(exec, i, of);
        if (!ech_exec_has_param(exec, i)) continue;
        add_tensor(exec, out, i, of, ech_exec_kept_data(exec, NULL, of));
        add_rounded(exec, out, i, NULL);
    }
}

ech_status ech_exec_take_weights(ech_exec *exec, const ech_shards *weights,
                                 const ech_peft *adapters)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list own = {0}, added = {0};
    int params = (int)exec->plan->model->param.n;
    list_held(exec, false, &own);
    ECH_TRY(ech_shards_load(weights, own.tensor.at, (int)own.tensor.n));
    list_held(exec, true, &added);
    if (adapters) ECH_TRY(ech_peft_load(adapters, added.tensor.at, (int)added.tensor.n));
    for (int i = 0; i < params; i++) {
        if (!ech_exec_has_param(exec, i)) continue;
        ech_exec_round_weights(exec, i, 0);
        for (int v = 1; v < exec->plan->versions; v++) ech_exec_copy_weights(exec, i, 0, v);
    }
    ech_exec_begin_apart(exec);
    return ech_exec_meet_in_shared(exec);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters and states to checkpoints (SAVE) and back.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "exec/state.h"

/* The weights before the newest, without which a run with buffered weights could not go on. */
static const char previous_name[] = "previous";
/* The weights as the run has them, where model/ has narrower ones. */
static const char master_name[] = "master";

typedef struct tensors {
    const ech_exec *exec;
    ech_pool *pool; /* of the names */
    ECH_LIST(ech_saved_tensor) list;
} tensors;

/* The part of x along slice.dim that is the slice. */
static ech_tensor part_of(const ech_tensor *x, const ech_slice *slice)
{
    ech_tensor part = *x;
    part.shape[slice->dim] = slice->count;
    part.data = (char *)x->data +
                (size_t)(slice->local * x->stride[slice->dim]) * ech_dtype_bytes(x->dtype);
    return part;
}

void ech_exec_add_slices(const ech_plan *plan, const ech_param *p, const ech_tensor *x,
                         ech_saved_tensor *saved)
{
    ech_slice slices[ECH_MOST_SLICES];
    int n = ech_shape_slices(&p->shape, plan->layout->sharding,
                             plan->layout->coordinates[plan->rank].tensor, slices);
    for (int i = 0; i < n; i++) {
        if (!slices[i].count) continue; /* a vocabulary with fewer shards than ranks */
        int64_t begin[ECH_MAX_DIMS] = {0};
        ech_tensor part = part_of(x, &slices[i]);
        begin[slices[i].dim] = slices[i].whole;
        ech_saved_add(saved, begin, &part);
    }
}

static ech_saved_tensor *add_tensor(tensors *t, int param, const char *state, ech_tensor x)
{
    const ech_plan *plan = t->exec->plan;
    const ech_param *p = &plan->model->param.at[param];
    ech_saved_tensor saved = {.name = state ? ech_pool_format(t->pool, "%s.%s", p->name, state)
                                            : p->name,
                              .is_state = state != NULL,
                              .dtype = plan->real,
                              .dims = p->shape.dims};
    for (int d = 0; d < p->shape.dims; d++) saved.shape[d] = p->shape.size[d];
    if (x.data) ech_exec_add_slices(plan, p, &x, &saved);
    ECH_PUSH(t->list, saved);
    return &t->list.at[t->list.n - 1];
}

ech_dtype ech_exec_saved_dtype(const ech_exec *exec)
{
    switch (exec->config->checkpoint.dtype) {
    case ECH_SAVED_FP32:
        return ECH_F32;
    case ECH_SAVED_BF16:
        return ECH_BF16;
    default: /* auto */
        return exec->plan->real;
    }
}

/* The weights, into model/ and where they are rounded there also in full. */
static void add_weights(tensors *t, int param, ech_tensor x)
{
    ech_dtype dtype = ech_exec_saved_dtype(t->exec);
    ech_saved_tensor *saved = add_tensor(t, param, NULL, x);
    saved->narrow = dtype;
    saved->narrowed = dtype != t->exec->plan->real;
    if (saved->narrowed) add_tensor(t, param, master_name, x);
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

/* Behind the parameter's name; of the states and previous weights. */
static const char *copy_name(const ech_exec *exec, int i)
{
    return i <= exec->plan->states ? exec->plan->state_name[i - 1] : previous_name;
}

/* Where training has it; of a parameter that this rank holds. */
static int copy_value(const ech_exec *exec, int param, int i)
{
    const ech_plan_param *p = &exec->plan->param[param];
    if (i > 0 && i <= exec->plan->states) return p->state[i - 1];
    return p->value + ech_exec_weight_slot(exec, i == 0 ? 0 : -1);
}

static ech_tensor copy_at(const ech_exec *exec, int param, int i)
{
    ech_tensor x = exec->param_view[param];
    x.data = ech_exec_look(exec, copy_value(exec, param, i));
    return x;
}

/* Likewise, or its copy in the snapshot; for a step. */
static ech_tensor saved_at(const ech_exec *exec, const ech_step *step, int param, int i,
                           bool snapshot)
{
    ech_tensor x = exec->param_view[param];
    int value = snapshot ? exec->plan->param[param].snapshot + i : copy_value(exec, param, i);
    x.data = ech_exec_address(exec, step, value);
    return x;
}

static bool is_written(const ech_exec *exec, int param)
{
    const ech_plan *plan = exec->plan;
    return plan->param[param].value >= 0 &&
           ech_layout_writes(plan->layout, plan->model, plan->rank, param);
}

/* All ranks list the same when they save, also what they do not write. */
static tensors list_to_save(const ech_exec *exec, const ech_step *step)
{
    tensors t = {.exec = exec, .pool = ech_pool_create()};
    for (int param = 0; param < (int)exec->plan->model->param.n; param++)
        for (int i = 0; i < count_copies(exec); i++) {
            ech_tensor x = {0};
            if (is_written(exec, param))
                x = saved_at(exec, step, param, i, exec->plan->snapshots > 0);
            if (i == 0)
                add_weights(&t, param, x);
            else
                add_tensor(&t, param, copy_name(exec, i), x);
        }
    return t;
}

/* The state that training goes on from instead of the weights in model/; NULL: from those. */
static const char *weights_of(const ech_exec *exec, const ech_checkpoint *checkpoint, int param)
{
    char name[512];
    if (exec->plan->partials < 0) return NULL;
    snprintf(name, sizeof name, "%s.%s", exec->plan->model->param.at[param].name, master_name);
    return ech_checkpoint_has_state(checkpoint, name) ? master_name : NULL;
}

/* What this rank holds, but for previous weights, which some checkpoints lack. */
static tensors list_to_restore(const ech_exec *exec, const ech_checkpoint *checkpoint)
{
    tensors t = {.exec = exec, .pool = ech_pool_create()};
    for (int param = 0; param < (int)exec->plan->model->param.n; param++) {
        if (exec->plan->param[param].value < 0) continue;
        add_tensor(&t, param, weights_of(exec, checkpoint, param), copy_at(exec, param, 0));
        for (int i = 1; i < count_copies(exec) - keeps_previous(exec); i++)
            add_tensor(&t, param, copy_name(exec, i), copy_at(exec, param, i));
    }
    return t;
}

static void free_tensors(tensors *t)
{
    free(t->list.at);
    ech_pool_destroy(t->pool);
}

/* ---- SNAPSHOT and SAVE ---- */

void ech_exec_set_save(ech_exec *exec, const char *directory, const ech_checkpoint_info *info,
                       int64_t keep, int64_t proven)
{
    ech_save_request_free(&exec->saver.next);
    exec->saver.next =
        (ech_save_request){ech_strdup(directory), keep, proven, ech_checkpoint_info_copy(info)};
}

void ech_exec_gate_saves(ech_exec *exec, ech_save_gate *gate, void *context)
{
    exec->saver.gate = gate;
    exec->saver.gate_context = context;
}

/* For the checkpoint before: its thread works on what the next one is about to change. */
static ech_status wait_for_last(ech_exec *exec)
{
    double start = ech_clock_now();
    bool waits = exec->saver.under_way;
    ech_status status = ech_saver_join(&exec->saver);
    exec->saver.waited = waits ? ech_clock_now() - start : 0;
    return status;
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
    ECH_TRY(wait_for_last(exec));
    for (int param = 0; param < (int)exec->plan->model->param.n; param++)
        for (int i = 0; is_written(exec, param) && i < count_copies(exec); i++) {
            ech_tensor from = saved_at(exec, step, param, i, false);
            ech_tensor to = saved_at(exec, step, param, i, true);
            exec->device->copy(to.data, from.data, ech_tensor_bytes(&from));
        }
    return ECH_OK;
}

/* Hands the saver what it works on. */
static void fill_saver(ech_exec *exec, const ech_step *step)
{
    ech_saver *saver = &exec->saver;
    tensors t = list_to_save(exec, step);
    ech_pool_destroy(saver->pool);
    free(saver->tensors);
    ech_save_request_free(&saver->now);
    saver->now = saver->next;
    saver->next = (ech_save_request){0};
    saver->pool = t.pool;
    saver->tensors = t.list.at;
    saver->n = (int)t.list.n;
    saver->comm = exec->comm;
    saver->group = exec->channel[ECH_GROUP_WORLD][ECH_LANE_DISK];
    saver->rank = exec->plan->layout->world > 1 ? exec->plan->rank : -1;
}

ech_status ech_handle_SAVE(ech_exec *exec, const ech_step *step)
{
    ECH_ASSERT(exec->saver.next.directory);
    if (!exec->plan->snapshots) ECH_TRY(wait_for_last(exec));
    fill_saver(exec, step);
    ECH_TRY(ech_saver_start(&exec->saver));
    return exec->plan->snapshots ? ECH_OK : ech_saver_join(&exec->saver);
}

/* ---- and back ---- */

/* Where the checkpoint has none, saved by another schedule, the newest weights stand for those before,
 * as at the start of a run. */
static ech_status restore_previous(ech_exec *exec, const ech_checkpoint *checkpoint)
{
    tensors t = {.exec = exec, .pool = ech_pool_create()};
    for (int i = 0; i < (int)exec->plan->model->param.n; i++) {
        if (exec->plan->param[i].value < 0) continue;
        ech_tensor newest = ech_exec_param(exec, i), before = ech_exec_param_at(exec, i, -1);
        exec->device->copy(before.data, newest.data, ech_tensor_bytes(&newest));
        add_tensor(&t, i, previous_name, before);
    }
    ech_status status = ECH_OK;
    if (t.list.n > 0 && ech_checkpoint_has_state(checkpoint, t.list.at[0].name))
        status = ech_checkpoint_load(checkpoint, t.list.at, (int)t.list.n);
    free_tensors(&t);
    return status;
}

ech_status ech_exec_restore(ech_exec *exec, const ech_checkpoint *checkpoint)
{
    tensors t = list_to_restore(exec, checkpoint);
    ech_status status = ech_checkpoint_load(checkpoint, t.list.at, (int)t.list.n);
    free_tensors(&t);
    ECH_TRY(status);
    ech_exec_set_updates(exec, ech_checkpoint_get_info(checkpoint)->optimizer_count);
    return keeps_previous(exec) ? restore_previous(exec, checkpoint) : ECH_OK;
}

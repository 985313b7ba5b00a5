/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters and states to checkpoints (SAVE) and back.
 */
#include <stdlib.h>

#include "exec/state.h"

/* The weights before the newest, without which a run with buffered weights could not go on. */
static const char previous_name[] = "previous";

typedef struct tensors {
    const ech_exec *exec;
    ech_pool *pool; /* of the names */
    bool mine;      /* boxes only of what this rank writes; otherwise whole */
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

/* This rank's slices of a parameter, or of something of its shape, as boxes of the whole. */
static void add_slices(const ech_plan *plan, const ech_param *p, const ech_tensor *x,
                       ech_saved_tensor *saved)
{
    ech_slice slices[ECH_MOST_SLICES];
    int n = ech_shape_slices(&p->shape, plan->layout->cut, plan->layout->place[plan->rank].tensor,
                             slices);
    for (int i = 0; i < n; i++) {
        if (!slices[i].count) continue; /* a vocabulary with fewer shares than ranks */
        int64_t begin[ECH_MAX_DIMS] = {0};
        ech_tensor part = part_of(x, &slices[i]);
        begin[slices[i].dim] = slices[i].whole;
        ech_saved_add(saved, begin, &part);
    }
}

static void add_tensor(tensors *t, int param, const char *state, ech_tensor x)
{
    const ech_plan *plan = t->exec->plan;
    const ech_param *p = &plan->model->param.at[param];
    ech_saved_tensor saved = {.name = state ? ech_pool_format(t->pool, "%s.%s", p->name, state)
                                            : p->name,
                              .is_state = state != NULL,
                              .dtype = plan->real,
                              .dims = p->shape.dims};
    bool writes = !t->mine || ech_layout_writes(plan->layout, plan->model, plan->rank, param);
    for (int d = 0; d < p->shape.dims; d++) saved.shape[d] = p->shape.size[d];
    if (writes && x.data) add_slices(plan, p, &x, &saved);
    ECH_PUSH(t->list, saved);
}

static bool keeps_previous(const ech_exec *exec)
{
    return exec->plan->partials >= 0 && exec->plan->schedule->weights == ECH_WEIGHTS_BUFFERED;
}

/* A parameter and its states. Those that this rank does not hold are listed without data when
 * saving, since all ranks list the same. */
static void add_param(tensors *t, int param)
{
    const ech_exec *exec = t->exec;
    bool holds = exec->plan->param[param].value >= 0;
    int states = exec->plan->partials >= 0 ? exec->plan->states : 0;
    ech_tensor none = {0};
    if (!holds && !t->mine) return;
    add_tensor(t, param, NULL, holds ? ech_exec_param(exec, param) : none);
    for (int s = 0; s < states; s++)
        add_tensor(t, param, exec->plan->state_name[s],
                   holds ? ech_exec_state(exec, param, s) : none);
    if (keeps_previous(exec) && t->mine)
        add_tensor(t, param, previous_name, holds ? ech_exec_param_at(exec, param, -1) : none);
}

static tensors list_tensors(const ech_exec *exec, bool mine)
{
    tensors t = {.exec = exec, .pool = ech_pool_create(), .mine = mine};
    for (int i = 0; i < (int)exec->plan->model->param.n; i++) add_param(&t, i);
    return t;
}

static void free_tensors(tensors *t)
{
    free(t->list.at);
    ech_pool_destroy(t->pool);
}

void ech_exec_set_save(ech_exec *exec, const char *directory, const ech_checkpoint_info *info)
{
    exec->save_directory = directory;
    exec->save_info = info;
}

ech_status ech_handle_SAVE(ech_exec *exec, const ech_step *step)
{
    (void)step;
    tensors t = list_tensors(exec, true);
    ech_status status =
        ech_checkpoint_save(exec->group[ECH_GROUP_WORLD], exec->save_directory, exec->save_info,
                            t.list.at, (int)t.list.n, &exec->saved_bytes);
    free_tensors(&t);
    return status;
}

int64_t ech_exec_saved_bytes(const ech_exec *exec)
{
    return exec->saved_bytes;
}

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
    tensors t = list_tensors(exec, false);
    ech_status status = ech_checkpoint_load(checkpoint, t.list.at, (int)t.list.n);
    free_tensors(&t);
    ECH_TRY(status);
    ech_exec_set_updates(exec, ech_checkpoint_get_info(checkpoint)->optimizer_count);
    return keeps_previous(exec) ? restore_previous(exec, checkpoint) : ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters and states to checkpoints (SAVE) and back.
 */
#include <stdlib.h>

#include "exec/state.h"

/* Everything that training state is made of; `mine`: boxes only of what this rank writes, otherwise
 * whole. The list's names live in `pool`. */
static int list_tensors(const ech_exec *exec, bool mine, ech_pool *pool, ech_saved_tensor **out)
{
    const ech_plan *plan = exec->plan;
    int states = plan->partials >= 0 ? plan->states : 0, n = 0;
    ech_saved_tensor *tensors =
        ech_calloc(plan->model->param.n * (size_t)(1 + states), sizeof *tensors);
    for (int i = 0; i < (int)plan->model->param.n; i++) {
        for (int s = -1; s < states; s++) {
            const ech_param *param = &plan->model->param.at[i];
            ech_tensor x = s < 0 ? ech_exec_param(exec, i) : ech_exec_state(exec, i, s);
            ech_saved_tensor *t = &tensors[n++];
            t->name = s < 0 ? param->name
                            : ech_pool_format(pool, "%s.%s", param->name, plan->state_name[s]);
            t->is_state = s >= 0;
            t->dtype = x.dtype;
            t->dims = x.dims;
            t->data = x.data;
            bool writes = !mine || ech_layout_writer(plan->layout, plan->model, i) == plan->rank;
            for (int d = 0; d < x.dims; d++) {
                t->shape[d] = x.shape[d];
                t->size[d] = writes ? x.shape[d] : 0;
            }
        }
    }
    *out = tensors;
    return n;
}

void ech_exec_set_save(ech_exec *exec, const char *directory, const ech_checkpoint_info *info)
{
    exec->save_directory = directory;
    exec->save_info = info;
}

ech_status ech_handle_SAVE(ech_exec *exec, const ech_step *step)
{
    (void)step;
    ech_pool *pool = ech_pool_create();
    ech_saved_tensor *tensors;
    int n = list_tensors(exec, true, pool, &tensors);
    ech_status status = ech_checkpoint_save(exec->group[ECH_GROUP_WORLD], exec->save_directory,
                                            exec->save_info, tensors, n, &exec->saved_bytes);
    free(tensors);
    ech_pool_destroy(pool);
    return status;
}

int64_t ech_exec_saved_bytes(const ech_exec *exec)
{
    return exec->saved_bytes;
}

ech_status ech_exec_restore(ech_exec *exec, const ech_checkpoint *checkpoint)
{
    ech_pool *pool = ech_pool_create();
    ech_saved_tensor *tensors;
    int n = list_tensors(exec, false, pool, &tensors);
    ech_status status = ech_checkpoint_load(checkpoint, tensors, n);
    if (status == ECH_OK)
        ech_exec_set_updates(exec, ech_checkpoint_get_info(checkpoint)->optimizer_count);
    free(tensors);
    ech_pool_destroy(pool);
    return status;
}

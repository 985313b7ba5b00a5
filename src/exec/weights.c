/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters from a folder of weights.
 */
#include <stdlib.h>

#include "exec/state.h"

typedef ECH_LIST(ech_saved_tensor) tensors;

/* The model's parameter as it is on disk, this rank's slices of it being in `x` (NULL: none). */
static ech_saved_tensor describe(const ech_exec *exec, int param, const ech_tensor *x)
{
    const ech_param *p = &exec->plan->model->param.at[param];
    ech_saved_tensor saved = {.name = p->name, .dtype = exec->plan->real, .dims = p->shape.dims};
    for (int d = 0; d < p->shape.dims; d++) saved.shape[d] = p->shape.size[d];
    if (x) ech_exec_add_slices(exec->plan, p, x, &saved);
    return saved;
}

/* Where weights have several versions, the first is all that there is. */
static void copy_versions(ech_exec *exec, int param)
{
    ech_tensor newest = ech_exec_param(exec, param);
    for (int v = 1; v < exec->plan->versions; v++) {
        ech_tensor other = ech_exec_param_at(exec, param, v);
        exec->device->copy(other.data, newest.data, ech_tensor_bytes(&newest));
    }
}

ech_status ech_exec_check_weights(const ech_exec *exec, const ech_shards *weights)
{
    tensors all = {0};
    for (int i = 0; i < (int)exec->plan->model->param.n; i++)
        ECH_PUSH(all, describe(exec, i, NULL));
    ech_status st = ech_shards_check(weights, all.at, (int)all.n);
    if (st == ECH_OK && exec->plan->rank == 0) st = ech_shards_check_head(weights);
    free(all.at);
    return st;
}

ech_status ech_exec_take_weights(ech_exec *exec, const ech_shards *weights)
{
    tensors held = {0};
    for (int i = 0; i < (int)exec->plan->model->param.n; i++) {
        if (exec->plan->param[i].value < 0) continue;
        ech_tensor x = ech_exec_param(exec, i);
        ECH_PUSH(held, describe(exec, i, &x));
    }
    ech_status st = ech_shards_load(weights, held.at, (int)held.n);
    for (int i = 0; i < (int)exec->plan->model->param.n && st == ECH_OK; i++)
        if (exec->plan->param[i].value >= 0) copy_versions(exec, i);
    free(held.at);
    return st;
}

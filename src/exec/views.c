/* SPDX-License-Identifier: Apache-2.0
 *
 * The shapes of tensors, computed once per list: their addresses depend on the micro-batch, their shapes do not.
 */
#include <stdlib.h>

#include "exec/state.h"

/* Values of the rank's own blocks: as many as value_of has rows. */
static size_t count_locals(const ech_plan *plan, const ech_list *list)
{
    size_t n = 0;
    for (size_t b = 0; b < plan->model->block.n; b++)
        if (list->first_local[b] >= 0) n += plan->model->block.at[b]->value.n;
    return n;
}

static bool runs_blocks(const ech_list *list)
{
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].block >= 0) return true;
    return false;
}

static ech_view view_of(const ech_plan *plan, const ech_list *list, const ech_block *block,
                        int local)
{
    static char somewhere; /* asked where a view begins in its base, which lies nowhere yet */
    ech_tensor at = ech_block_tensor(block, local, list->extent, plan->real, &somewhere);
    return (ech_view){.tensor = at, .skip = (char *)at.data - &somewhere};
}

static ech_view *make_views(const ech_plan *plan, const ech_list *list)
{
    if (!runs_blocks(list)) return NULL;
    ech_view *views = ech_calloc(count_locals(plan, list) + 1, sizeof *views);
    for (size_t b = 0; b < plan->model->block.n; b++) {
        const ech_block *block = plan->model->block.at[b];
        for (int i = 0; list->first_local[b] >= 0 && i < (int)block->value.n; i++)
            views[list->first_local[b] + i] = view_of(plan, list, block, i);
    }
    return views;
}

void ech_views_create(ech_exec *exec)
{
    const ech_plan *plan = exec->plan;
    for (int l = 0; l < ECH_LIST_KINDS; l++) exec->view[l] = make_views(plan, &plan->list[l]);
    exec->param_view = ech_calloc(plan->model->param.n + 1, sizeof *exec->param_view);
    for (size_t i = 0; i < plan->model->param.n; i++) {
        const ech_shape *shape = &plan->model->param.at[i].shape;
        int64_t size[ECH_MAX_DIMS];
        ech_shape_resolve(shape, ech_extent_of_params(plan->layout->sharding), size);
        exec->param_view[i] = ech_tensor_view(NULL, plan->real, shape->dims, size);
    }
}

void ech_views_destroy(ech_exec *exec)
{
    for (int l = 0; l < ECH_LIST_KINDS; l++) free(exec->view[l]);
    free(exec->param_view);
}

void ech_exec_view(const ech_exec *exec, const ech_block *block, int local, void *data,
                   ech_tensor *out)
{
    const ech_list *list = exec->list;
    const ech_view *view = &exec->view[list->kind][list->first_local[block->index] + local];
    *out = view->tensor;
    out->data = (char *)data + view->skip;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduce lane: sums over ranks between blocks. REDUCE, REDUCE_GRADS.
 */
#include "exec/state.h"

/* Squares count once for each slice of the model's parameters: on one rank. */
static void keep_own_squares(ech_exec *exec, double *squares)
{
    const ech_plan *plan = exec->plan;
    for (int i = 0; i < (int)plan->model->param.n; i++)
        if (!ech_layout_counts(plan->layout, plan->model, plan->rank, i)) squares[i] = 0;
}

/* Tensor ranks have the same loss. */
static void keep_own_loss(const ech_exec *exec, double *row)
{
    if (exec->plan->layout->place[exec->plan->rank].tensor > 0)
        row[ECH_SCALAR_LOSS] = row[ECH_SCALAR_LOSS_WEIGHT] = 0;
}

ech_status ech_handle_REDUCE(ech_exec *exec, const ech_step *step)
{
    double *row = ech_exec_row(exec, step->turn);
    bool counts = step->group == ECH_GROUP_WORLD && step->index <= ECH_SCALAR_LOSS &&
                  step->index + step->count > ECH_SCALAR_LOSS;
    if (counts) keep_own_loss(exec, row);
    if (step->index + step->count > ECH_SCALARS) keep_own_squares(exec, row + ECH_SCALARS);
    return ech_group_fold(exec->group[step->group], step->maximum ? ECH_FOLD_MAX : ECH_FOLD_SUM,
                          &row[step->index], step->count);
}

ech_status ech_handle_REDUCE_GRADS(ech_exec *exec, const ech_step *step)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    ech_tensor gradients =
        ech_tensor_1d(ech_exec_address(exec, bucket->value), exec->plan->real, bucket->elements);
    void *scratch = step->scratch < 0 ? NULL : ech_exec_address(exec, step->scratch);
    return ech_group_reduce(exec->group[step->group], exec->plan->reduction, &gradients, scratch);
}

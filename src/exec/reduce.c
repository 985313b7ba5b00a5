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
    if (exec->plan->layout->coordinates[exec->plan->rank].tensor > 0)
        row[ECH_SCALAR_LOSS] = row[ECH_SCALAR_LOSS_WEIGHT] = 0;
}

ech_status ech_handle_REDUCE(ech_exec *exec, const ech_step *step)
{
    double *row = (double *)ech_exec_address(exec, step, exec->plan->scalars) +
                  (size_t)step->turn * (size_t)ech_plan_row(exec->plan);
    bool counts = step->group == ECH_GROUP_WORLD && step->index <= ECH_SCALAR_LOSS &&
                  step->index + step->count > ECH_SCALAR_LOSS;
    if (counts) keep_own_loss(exec, row);
    if (step->index + step->count > ECH_SCALARS) keep_own_squares(exec, row + ECH_SCALARS);
    return ech_group_fold(exec->channel[step->group][step->lane],
                          step->maximum ? ECH_FOLD_MAX : ECH_FOLD_SUM, &row[step->index],
                          step->count);
}

/* ---- gradients ---- */

static ech_status begin_sum(ech_exec *exec, const ech_step *step, ech_sum *out)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    ech_tensor gradients = ech_tensor_1d(ech_exec_address(exec, step, bucket->value),
                                         exec->plan->real, bucket->elements);
    void *scratch = step->scratch < 0 ? NULL : ech_exec_address(exec, step, step->scratch);
    return ech_sum_begin(exec->channel[step->group][step->lane], exec->plan->reduction, &gradients,
                         scratch, out);
}

/* The lane's next step, if it is a reduction, too, and need not wait; or NULL. */
static const ech_step *find_next(ech_exec *exec, const ech_step *step)
{
    const ech_step *end = exec->list->step.at + exec->list->step.n;
    do {
        if (++step == end) return NULL;
    } while (step->lane != ECH_LANE_REDUCE);
    bool may = step->kind == ECH_STEP_REDUCE_GRADS && !ech_exec_has_failed(exec) &&
               ech_exec_may_begin(exec, step);
    return may ? step : NULL;
}

/* A bucket's last messages are followed at once by the next bucket's, so that a slow link is never idle. */
ech_status ech_handle_REDUCE_GRADS(ech_exec *exec, const ech_step *step)
{
    ech_sum sum = exec->begun;
    if (exec->begun_step != step) ECH_TRY(begin_sum(exec, step, &sum));
    ECH_TRY(ech_sum_run(&sum));
    exec->begun_step = find_next(exec, step);
    if (exec->begun_step) ECH_TRY(begin_sum(exec, exec->begun_step, &exec->begun));
    return ech_sum_end(&sum);
}

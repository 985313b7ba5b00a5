/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient clipping: NORM computes the squares of gradients, NORM_SUM adds them up, and CLIP
 * computes the clip factor of the turn, by which updates multiply gradients, from the norm and
 * optimizer.clip_norm. An update is withheld if the norm or the loss is not finite.
 */
#include "exec/state.h"

static ech_tensor number(double *at)
{
    return ech_tensor_view(at, ECH_F64, 0, NULL);
}

/* The squares of each element of a gradient count on one rank only. A NaN or infinity counts on all
 * that see it, since it might be on this rank alone, and all must know. Loss scales are powers of
 * two, so dividing by one rounds nothing. */
void ech_scalars_count_squares(ech_exec *exec, int turn, int param, const ech_tensor *sums,
                               bool counts)
{
    const ech_plan *plan = exec->plan;
    ech_scalar_row *row = ech_exec_row(exec, turn);
    ech_tensor scale = number(&row->loss_scale), squares = number(&row->squares[param]);
    plan->kernels->total(exec->context, sums, &scale, counts, &squares);
}

void ech_scalars_count_rank(ech_exec *exec, int turn, const ech_tensor *right, int64_t terms)
{
    ech_tensor sums = ech_tensor_1d(ech_exec_row(exec, turn)->ranks, ECH_F64, ECH_RANK_SUMS);
    exec->plan->kernels->wide->count_columns(exec->context, right, terms, &sums);
}

/* In the model's order. */
ech_status ech_handle_NORM_SUM(ech_exec *exec, const ech_step *step)
{
    ech_scalar_row *row = ech_exec_row(exec, step->turn);
    ech_tensor squares = ech_tensor_1d(row->squares, ECH_F64, (int64_t)exec->plan->model->param.n);
    ech_tensor sum = number(&row->squares_sum);
    exec->plan->kernels->total(exec->context, &squares, NULL, true, &sum);
    return ECH_OK;
}

/* Under asynchronous schedules the loss is of this replica only; squares are of the stage. */
ech_status ech_handle_CLIP(ech_exec *exec, const ech_step *step)
{
    ech_scalar_row *s = ech_exec_row(exec, step->turn);
    ech_tensor squares = number(&s->squares_sum), loss = number(&s->loss);
    ech_tensor scale = number(&s->loss_scale), norm = number(&s->grad_norm);
    ech_tensor withheld = number(&s->withheld), factor = number(&s->clip);
    bool stages = !ech_weights_are_synchronous(exec->plan->schedule->weights);
    exec->plan->kernels->clip(exec->context, &squares, stages ? NULL : &loss, &scale,
                              exec->clip_norm, &norm, &withheld, &factor);
    return ECH_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The search for a NaN or infinity: the training step is run a second time, and every tensor that
 * its calls write is checked, to name the tensor, block, micro-batch and rank of the first NaN or
 * infinity. There is no update.
 */
#include <math.h>
#include <stdio.h>

#include "exec/state.h"

/* The same for tensors on disk, one piece at a time. */
static int64_t find_on_disk(ech_exec *exec, const ech_tensor *x, double *value)
{
    enum { PIECE = 1 << 14 };
    double number[PIECE];
    for (int64_t at = 0, n, all = ech_tensor_count(x); at < all; at += n) {
        n = all - at < PIECE ? all - at : PIECE;
        ech_tensor piece =
            ech_tensor_1d((char *)x->data + (size_t)at * ech_dtype_bytes(x->dtype), x->dtype, n);
        ech_exec_read(exec, &piece, number);
        for (int64_t i = 0; i < n; i++) {
            *value = number[i];
            if (!isfinite(number[i])) return at + i;
        }
    }
    return -1;
}

/* The first element, row-major, that is not finite; -1: all are finite. Views are checked row by
 * row. */
static int64_t find_first(ech_exec *exec, const ech_tensor *x, double *value)
{
    int64_t rows = 1, width = 1;
    ech_tensor found = ech_tensor_view(&ech_exec_row(exec, 0)->found, ECH_F64, 0, NULL);
    int64_t offset_on_disk;
    if (ech_disk_has(exec->disk, x->data, &offset_on_disk)) return find_on_disk(exec, x, value);
    bool whole = ech_tensor_is_contiguous(x);
    for (int d = 0; d < x->dims; d++) *(d < 2 && !whole ? &rows : &width) *= x->shape[d];
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = 0;
        double at = -1;
        if (!whole) offset = row / x->shape[1] * x->stride[0] + row % x->shape[1] * x->stride[1];
        ech_tensor part = ech_tensor_1d(
            (char *)x->data + (size_t)offset * ech_dtype_bytes(x->dtype), x->dtype, width);
        exec->plan->kernels->find_nonfinite(exec->context, &part, &found);
        ech_exec_read(exec, &found, &at);
        if (at < 0) continue;
        ech_tensor element = ech_tensor_rows(&part, (int64_t)at, 1);
        ech_exec_read(exec, &element, value);
        return row * width + (int64_t)at;
    }
    return -1;
}

void ech_scan_tensor(ech_exec *exec, const ech_step *step, const char *what, const char *name,
                     const ech_tensor *x)
{
    const ech_types *types = &exec->plan->types;
    bool is_looked_at = x->dtype == types->compute || x->dtype == types->wide;
    if (!x->data || exec->finding.rank >= 0 || !is_looked_at) return;
    double value = 0;
    int64_t at = find_first(exec, x, &value);
    if (at < 0) return;
    ech_micro micro = ech_micro_at(exec->list->numbering, step->micro);
    ECH_FREED_TEXT text = {0};
    ech_step_print(step, &text);
    exec->finding = (ech_finding){.rank = exec->plan->rank,
                                  .step = (int)(step - exec->list->step.at),
                                  .block = step->block,
                                  .micro = step->micro < 0 ? -1 : micro.micro_batch,
                                  .summed = step->kind == ECH_STEP_NORM};
    snprintf(exec->finding.what, sizeof exec->finding.what, "%s %s, element %lld is %g, in step %s",
             what, name, (long long)at, ech_unsigned_nan(value), text.at);
}

/* A parameter that is not finite already explains the rest. */
static void scan_params(ech_exec *exec)
{
    const ech_step *step = exec->plan->list[ECH_LIST_TRAIN].step.at;
    exec->list = &exec->plan->list[ECH_LIST_TRAIN];
    while (step->kind != ECH_STEP_COUNT) step++; /* receives may be posted before it */
    for (int i = 0; i < (int)exec->plan->model->param.n; i++) {
        if (exec->plan->param[i].bucket < 0) continue;
        ech_tensor param = ech_exec_param(exec, i);
        ech_scan_tensor(exec, step, "parameter", exec->plan->model->param.at[i].name, &param);
    }
}

/* The finding's position in the order in which data flows through a step, over all ranks:
 * parameters, then micro-batch by micro-batch, up the blocks and down. Within a block the list's
 * steps decide: ranks that share it have equal lists. */
static double position_of(const ech_exec *exec)
{
    const ech_step *step = &exec->list->step.at[exec->finding.step];
    double blocks = (double)exec->plan->model->block.n;
    if (exec->finding.summed) return 0x1p60; /* after all that has a micro-batch */
    if (step->micro < 0) return 0;
    double q =
        (double)ech_layout_global_micro(exec->plan->layout, exec->plan->rank, exec->finding.micro);
    double within = step->kind == ECH_STEP_FORWARD ? step->block : 2 * blocks - step->block;
    return 1 + q * (2 * blocks + 1) + within;
}

ech_status ech_exec_find_nonfinite(ech_exec *exec, int64_t step, ech_finding *out)
{
    ECH_ASSERT(exec->plan->versions == 1 && exec->plan->list[ECH_LIST_TRAIN].turns == 1);
    exec->finding = (ech_finding){.rank = -1};
    scan_params(exec);
    exec->scanning = true;
    ech_status status = ech_exec_run(exec, ECH_LIST_TRAIN, step);
    exec->scanning = false;
    ECH_TRY(status);

    /* The first position over all ranks, the lowest rank among equals. */
    int world = exec->plan->layout->world;
    ech_group *all = ech_exec_world(exec);
    double own = exec->finding.rank < 0 ? -INFINITY : -position_of(exec), first = own;
    ECH_TRY(ech_group_fold(all, ECH_FOLD_MAX, &first, 1));
    bool tied = isfinite(first) && own >= first;
    double among = tied ? -((double)exec->finding.step * world + exec->finding.rank) : -INFINITY;
    ECH_TRY(ech_group_fold(all, ECH_FOLD_MAX, &among, 1));
    if (isfinite(among))
        ECH_TRY(ech_group_broadcast(all, (int)((int64_t)-among % world), &exec->finding,
                                    sizeof exec->finding));
    *out = exec->finding;
    return ECH_OK;
}

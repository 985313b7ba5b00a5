/* SPDX-License-Identifier: Apache-2.0
 *
 * Synchronization of diverged replicas (Stich 2019, arXiv:1805.09767; Douillard et al. 2023,
 * arXiv:2311.08105). For a bucket, with w its full-precision weights, and the anchor a, the weights
 * at the replicas' last synchronization:
 *
 *     DIFFERENCE    d = a - w; REDUCE_GRADS sums d over replicas
 *     OUTER_UPDATE  the protocol's (ech_protocol.outer), on w, a, d and an outer momentum
 *     EXCHANGE      w, a = a, w, where replicas continue from weights of their own
 *
 * All three are rows of tensor sums (ech_protocol_meeting). A bucket of layer states has no anchor,
 * and other rows: d = w / replicas, and w becomes the sum.
 *
 * Averaging with the neighbours in a ring (Lian et al. 2017, arXiv:1705.09056):
 *
 *     NEIGHBOURS    sends w to the next and the previous replica, and receives theirs
 *     MIX           w = (w + both) / 3; with two replicas both are the other one's
 */
#include "exec/state.h"
#include "schedule/operands.h"
#include "schedule/states.h"

/* All elements of a bucket, in the order of memory; on a server its shard. */
static ech_tensor flat(const ech_exec *exec, int bucket, ech_dtype dtype, void *data)
{
    return ech_tensor_2d(data, dtype, 1, ech_bucket_kept(&exec->plan->bucket.at[bucket]));
}

/* Without data: the bucket has no such state. */
static ech_tensor state_of(const ech_exec *exec, int bucket, ech_state_role role)
{
    const ech_plan *plan = exec->plan;
    int value = ech_plan_bucket_state_of(plan, bucket, role);
    return flat(exec, bucket, plan->types.wide, value < 0 ? NULL : ech_exec_look(exec, value));
}

/* The tensor that UPDATE works on: masters, or the weights themselves. */
static ech_tensor in_full(const ech_exec *exec, int bucket)
{
    const ech_plan *plan = exec->plan;
    int masters = ech_plan_masters(plan, bucket);
    int value = masters < 0 ? ech_plan_weights(plan, bucket, 0) : masters;
    return flat(exec, bucket, plan->types.wide, ech_exec_look(exec, value));
}

/* y = alpha x + beta y, where beta is 0 if one of the two has the type of layer states' sums and
 * the other does not. */
static void add(ech_exec *exec, const ech_tensor *x, double alpha, double beta, const ech_tensor *y)
{
    const ech_kernels *kernels = exec->plan->kernels;
    const ech_update always = {0};
    ech_tensor from = ech_tensor_view(x->data, x->dtype, 1, &x->shape[1]);
    ech_tensor to = ech_tensor_view(y->data, y->dtype, 1, &y->shape[1]);
    if (x->dtype == y->dtype) {
        kernels->scaled_sum(exec->context, x, alpha, beta, 0, NULL, NULL, y);
        return;
    }
    ECH_ASSERT(beta == 0 && (y->dtype == ECH_F64 || alpha == 1));
    if (y->dtype == ECH_F64)
        kernels->batch_norm_partial(exec->context, x, alpha, false, &to);
    else
        kernels->batch_norm_commit(exec->context, &from, 1, &always, &to);
}

static void copy(ech_exec *exec, const ech_tensor *from, const ech_tensor *to)
{
    exec->device->copy(exec->on[ECH_LANE_COMPUTE].queue, to->data, from->data,
                       ech_tensor_bytes(from));
}

/* The exchanged data. */
static ech_tensor exchanged(ech_exec *exec, const ech_step *step, ech_dtype dtype)
{
    return flat(exec, step->index, dtype, ech_exec_used(exec, step, ECH_USE_SUM, 0));
}

/* The step must have declared the value that it works on; -1: none. */
static void expect(const ech_exec *exec, const ech_step *step, int value)
{
    if (value >= 0) ech_ledger_expect(exec, step, value);
}

static void expect_weights(const ech_exec *exec, const ech_step *step)
{
    expect(exec, step, ech_plan_masters(exec->plan, step->index));
    expect(exec, step, ech_plan_weights(exec->plan, step->index, 0));
}

static ech_tensor expect_state(const ech_exec *exec, const ech_step *step, ech_state_role role)
{
    expect(exec, step, ech_plan_bucket_state_of(exec->plan, step->index, role));
    return state_of(exec, step->index, role);
}

/* Without data: the run lacks it. */
static ech_tensor tensor_of(ech_exec *exec, const ech_step *step, ech_meeting_tensor tensor)
{
    switch (tensor) {
    case ECH_MEETING_SUM:
        return exchanged(exec, step, exec->plan->bucket.at[step->index].dtype);
    case ECH_MEETING_ANCHOR:
        return expect_state(exec, step, ECH_STATE_ANCHOR);
    case ECH_MEETING_MOMENTUM:
        return expect_state(exec, step, ECH_STATE_OUTER_MOMENTUM);
    case ECH_MEETING_WEIGHTS:
        expect_weights(exec, step);
        return in_full(exec, step->index);
    case ECH_MEETING_TENSORS:
        break;
    }
    return (ech_tensor){0};
}

/* The rows of the step (schedule/protocol), in order. */
static void run_rows(ech_exec *exec, const ech_step *step)
{
    const ech_meeting meeting = ech_protocol_meeting(exec->plan, step);
    int replicas = exec->plan->layout->replicas[0];
    for (int i = 0; i < meeting.rows; i++) {
        const ech_meeting_row *row = &meeting.row[i];
        double keep = row->keep ? row->keep(exec->config, replicas) : 0;
        ech_tensor from = tensor_of(exec, step, row->from), to = tensor_of(exec, step, row->to);
        if (!from.data || !to.data) continue;
        add(exec, &from, row->by(exec->config, replicas), keep, &to);
    }
}

static void round_weights(ech_exec *exec, const ech_step *step)
{
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    for (int i = 0; i < n; i++) ech_exec_round_weights(exec, params[i], 0);
}

ech_status ech_handle_DIFFERENCE(ech_exec *exec, const ech_step *step)
{
    run_rows(exec, step);
    return ECH_OK;
}

static ech_status change_weights(ech_exec *exec, const ech_step *step)
{
    run_rows(exec, step);
    round_weights(exec, step);
    return ECH_OK;
}

ECH_HANDLE_BY(OUTER_UPDATE, change_weights)
ECH_HANDLE_BY(EXCHANGE, change_weights)

void ech_exec_begin_apart(ech_exec *exec)
{
    for (int b = 0; b < (int)exec->plan->bucket.n; b++) {
        ech_tensor anchor = state_of(exec, b, ECH_STATE_ANCHOR);
        if (!anchor.data) continue;
        ech_tensor w = in_full(exec, b);
        copy(exec, &w, &anchor);
    }
}

/* ---- neighbours ---- */

static ech_status shift(ech_exec *exec, const ech_step *step)
{
    ech_group *group = exec->channel[step->group][step->lane];
    char *to = ech_exec_used(exec, step, ECH_USE_SUM, 0);
    expect_weights(exec, step);
    ech_tensor w = in_full(exec, step->index);
    size_t bytes = ech_tensor_bytes(&w);
    ECH_TRY(ech_group_shift(group, 1, w.data, to, bytes));
    return ech_group_shift(group, ech_group_size(group) - 1, w.data, to + bytes, bytes);
}

ECH_HANDLE_BY(NEIGHBOURS, shift)

ech_status ech_handle_MIX(ech_exec *exec, const ech_step *step)
{
    expect_weights(exec, step);
    ech_tensor before = exchanged(exec, step, exec->plan->types.wide), second = before;
    ech_tensor w = in_full(exec, step->index);
    second.data = (char *)before.data + ech_tensor_bytes(&before);
    add(exec, &before, 1.0 / 3, 1.0 / 3, &w);
    add(exec, &second, 1.0 / 3, 1, &w);
    round_weights(exec, step);
    return ECH_OK;
}

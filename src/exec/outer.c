/* SPDX-License-Identifier: Apache-2.0
 *
 * Synchronization of diverged replicas (Stich 2019, arXiv:1805.09767; Douillard et al. 2023,
 * arXiv:2311.08105). For a bucket, with w its full-precision weights, and the anchor a, the weights
 * at the replicas' last synchronization:
 *
 *     DIFFERENCE    d = a - w; REDUCE_GRADS sums d over replicas
 *     OUTER_UPDATE  the rows of the protocol (ech_protocol.outer), on w, a, d and an outer momentum
 *     EXCHANGE      w, a = a, w, where replicas continue from weights of their own
 *
 * A bucket of layer states has no anchor: d = w / replicas, and w becomes the sum.
 *
 * Averaging with the neighbours in a ring (Lian et al. 2017, arXiv:1705.09056):
 *
 *     NEIGHBOURS    sends w to the next and the previous replica, and receives theirs
 *     MIX           w = (w + both) / 3; with two replicas both are the other one's
 */
#include "exec/state.h"
#include "schedule/operands.h"
#include "schedule/states.h"

/* All elements of a bucket, in the order of memory. */
static ech_tensor flat(const ech_exec *exec, int bucket, ech_dtype dtype, void *data)
{
    return ech_tensor_2d(data, dtype, 1, exec->plan->bucket.at[bucket].elements);
}

static ech_tensor state_of(const ech_exec *exec, int bucket, ech_state_role role)
{
    const ech_plan *plan = exec->plan;
    return flat(exec, bucket, plan->types.wide,
                ech_exec_look(exec, ech_plan_bucket_state_of(plan, bucket, role)));
}

/* The tensor that UPDATE works on: masters, or the weights themselves. */
static ech_tensor in_full(const ech_exec *exec, int bucket)
{
    const ech_plan *plan = exec->plan;
    int masters = ech_plan_masters(plan, bucket);
    int value = masters < 0 ? ech_plan_weights(plan, bucket, 0) : masters;
    return flat(exec, bucket, plan->types.wide, ech_exec_look(exec, value));
}

/* y = alpha x + beta y */
static void add(ech_exec *exec, const ech_tensor *x, double alpha, double beta, const ech_tensor *y)
{
    exec->plan->kernels->scaled_sum(exec->context, x, alpha, beta, 0, NULL, NULL, y);
}

static void copy(ech_exec *exec, const ech_tensor *from, const ech_tensor *to)
{
    exec->device->copy(exec->on[ECH_LANE_COMPUTE].queue, to->data, from->data,
                       ech_tensor_bytes(from));
}

/* The exchanged data: differences, or the weights of the first neighbour. */
static ech_tensor differences(ech_exec *exec, const ech_step *step)
{
    char *data = ech_exec_used(exec, step, ECH_USE_SUM, 0);
    return flat(exec, step->index, exec->plan->types.wide, data);
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

static void expect_all(const ech_exec *exec, const ech_step *step)
{
    expect(exec, step, ech_plan_bucket_state_of(exec->plan, step->index, ECH_STATE_ANCHOR));
    expect_weights(exec, step);
}

/* Layer states as one row of numbers, and their partials, which have the type of sums. */
static ech_tensor partials(ech_exec *exec, const ech_step *step)
{
    int64_t size[] = {exec->plan->bucket.at[step->index].elements};
    return ech_tensor_view(ech_exec_used(exec, step, ECH_USE_SUM, 0), ECH_F64, 1, size);
}

static void divide_states(ech_exec *exec, const ech_step *step)
{
    ech_tensor d = partials(exec, step), w = in_full(exec, step->index);
    double share = 1 / (double)exec->plan->layout->replicas[0];
    exec->plan->kernels->batch_norm_partial(exec->context, &w, share, false, &d);
}

/* The mean replaces the states. */
static void average_states(ech_exec *exec, const ech_step *step)
{
    const ech_update always = {0};
    ech_tensor d = partials(exec, step), w = in_full(exec, step->index);
    ech_tensor states = ech_tensor_view(w.data, w.dtype, 1, d.shape);
    exec->plan->kernels->batch_norm_commit(exec->context, &d, 1, &always, &states);
}

static bool has_states(const ech_exec *exec, const ech_step *step)
{
    return exec->plan->bucket.at[step->index].commits;
}

ech_status ech_handle_DIFFERENCE(ech_exec *exec, const ech_step *step)
{
    expect_all(exec, step);
    if (has_states(exec, step)) {
        divide_states(exec, step);
        return ECH_OK;
    }
    ech_tensor d = differences(exec, step), w = in_full(exec, step->index);
    ech_tensor anchor = state_of(exec, step->index, ECH_STATE_ANCHOR);
    add(exec, &anchor, 1, 0, &d);
    add(exec, &w, -1, 1, &d);
    return ECH_OK;
}

static void round_weights(ech_exec *exec, const ech_step *step)
{
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    for (int i = 0; i < n; i++) ech_exec_round_weights(exec, params[i], 0);
}

/* The rows of the step (schedule/protocol), in order. */
static void run_rows(ech_exec *exec, const ech_step *step)
{
    const ech_meeting meeting = ech_protocol_meeting(exec->plan, step->kind);
    int momentum = ech_plan_bucket_state_of(exec->plan, step->index, ECH_STATE_OUTER_MOMENTUM);
    int replicas = exec->plan->layout->replicas[0];
    expect_all(exec, step);
    expect(exec, step, momentum);
    ech_tensor tensor[ECH_MEETING_TENSORS] = {[ECH_MEETING_SUM] = differences(exec, step),
                                              [ECH_MEETING_ANCHOR] =
                                                  state_of(exec, step->index, ECH_STATE_ANCHOR),
                                              [ECH_MEETING_WEIGHTS] = in_full(exec, step->index)};
    if (momentum >= 0)
        tensor[ECH_MEETING_MOMENTUM] = state_of(exec, step->index, ECH_STATE_OUTER_MOMENTUM);
    for (int i = 0; i < meeting.rows; i++) {
        const ech_meeting_row *row = &meeting.row[i];
        double keep = row->keep ? row->keep(exec->config, replicas) : 0;
        if (!tensor[row->from].data || !tensor[row->to].data) continue;
        add(exec, &tensor[row->from], row->by(exec->config, replicas), keep, &tensor[row->to]);
    }
    round_weights(exec, step);
}

ech_status ech_handle_OUTER_UPDATE(ech_exec *exec, const ech_step *step)
{
    if (has_states(exec, step)) {
        expect_all(exec, step);
        average_states(exec, step);
    } else {
        run_rows(exec, step);
    }
    return ECH_OK;
}

ech_status ech_handle_EXCHANGE(ech_exec *exec, const ech_step *step)
{
    run_rows(exec, step);
    return ECH_OK;
}

void ech_exec_begin_apart(ech_exec *exec)
{
    bool apart = exec->plan->list[ECH_LIST_SYNC].step.n > 0;
    for (int b = 0; b < (int)exec->plan->bucket.n && apart; b++) {
        if (exec->plan->bucket.at[b].frozen || exec->plan->bucket.at[b].commits) continue;
        ech_tensor w = in_full(exec, b), anchor = state_of(exec, b, ECH_STATE_ANCHOR);
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
    ech_tensor before = differences(exec, step), w = in_full(exec, step->index), second = before;
    second.data = (char *)before.data + ech_tensor_bytes(&before);
    add(exec, &before, 1.0 / 3, 1.0 / 3, &w);
    add(exec, &second, 1.0 / 3, 1, &w);
    round_weights(exec, step);
    return ECH_OK;
}

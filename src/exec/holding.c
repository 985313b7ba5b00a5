/* SPDX-License-Identifier: Apache-2.0
 *
 * What this rank keeps of each parameter, and where.
 */
#include "exec/holding.h"

#include <string.h>

#include "schedule/states.h"

const char ech_holding_previous[] = "previous";
const char ech_holding_master[] = "master";
const char ech_holding_gradient[] = "gradient";

bool ech_exec_keeps_previous(const ech_exec *exec)
{
    return ech_exec_trains(exec) && ech_weights_keep_previous(exec->plan->schedule->weights);
}

ech_holding ech_exec_weights_kept(const ech_exec *exec, int param, const char *name, int version)
{
    const ech_plan *plan = exec->plan;
    const ech_plan_param *p = &plan->param[param];
    int64_t first = 0, before = p->bucket_offset, n = p->elements;
    ech_holding of = {.name = name,
                      .shape = plan->model->param.at[param].shape,
                      .dtype = ech_plan_param_dtype(plan, param),
                      .value = -1,
                      .snapshot = version ? p->previous : p->snapshot,
                      .kind = ECH_HELD_WEIGHTS};
    if (p->bucket >= 0) {
        const ech_bucket *bucket = &plan->bucket.at[p->bucket];
        if (ech_bucket_holds_shard(bucket)) {
            n = ech_plan_own(plan, param, &first);
            before = n ? before + first - ech_bucket_first_kept(bucket) : 0;
        }
        of.value = bucket->weights + ech_exec_weight_slot(exec, bucket, version);
        of.at = (size_t)before * ech_dtype_bytes(of.dtype);
        of.bytes = (size_t)n * ech_dtype_bytes(of.dtype);
    }
    of.held = ech_plan_held(plan, plan->rank, param, ECH_HELD_WEIGHTS, -1);
    return of;
}

static ech_holding state_at(const ech_exec *exec, int param, const ech_state *state, int index)
{
    const ech_plan *plan = exec->plan;
    const ech_plan_param *p = &plan->param[param];
    ech_holding of = {.name = state->name,
                      .shape = state->shape,
                      .state = index,
                      .dtype = ech_plan_state_dtype(plan, state),
                      .value = -1,
                      .snapshot = -1,
                      .kind = ECH_HELD_STATE};
    if (p->bucket < 0) return of;
    const ech_plan_state *planned = &plan->state.at[p->first_state + index];
    of.value = planned->value;
    of.at = (size_t)planned->first * ech_dtype_bytes(of.dtype);
    of.bytes = (size_t)planned->elements * ech_dtype_bytes(of.dtype);
    of.snapshot = planned->snapshot;
    of.held = ech_plan_held(plan, plan->rank, param, ECH_HELD_STATE, index);
    return of;
}

int ech_exec_count_kept(const ech_exec *exec, int param)
{
    if (!ech_exec_trains(exec)) return 1;
    ech_optimizer_needs needs =
        ech_optimizer_needs_of(exec->config, &exec->plan->model->param.at[param]);
    return 1 + needs.states - (needs.master >= 0) + ech_exec_keeps_previous(exec);
}

int ech_exec_list_kept(const ech_exec *exec, int param, ech_holding out[ECH_MOST_HOLDINGS])
{
    int n = 1;
    out[0] = ech_exec_weights_kept(exec, param, NULL, 0);
    if (!ech_exec_trains(exec)) return n;
    ech_optimizer_needs needs =
        ech_optimizer_needs_of(exec->config, &exec->plan->model->param.at[param]);
    for (int i = 0; i < needs.states; i++) {
        ech_holding of = state_at(exec, param, &needs.state[i], i);
        out[i == needs.master ? 0 : n++] = of;
    }
    out[0].name = NULL;
    if (ech_exec_keeps_previous(exec))
        out[n++] = ech_exec_weights_kept(exec, param, ech_holding_previous, -1);
    return n;
}

/* ---- where it is ---- */

const ech_saved_copier *ech_exec_copier(const ech_exec *exec, int thread)
{
    const ech_device *device = exec->device;
    bool sees = device->is_immediate && !device->reach && !exec->disk;
    return sees ? NULL : &exec->copier[thread];
}

char *ech_exec_kept_data(const ech_exec *exec, const ech_step *step, const ech_holding *of)
{
    char *data = step ? ech_exec_address(exec, step, of->value) : ech_exec_look(exec, of->value);
    return data + of->at;
}

void ech_holding_leave_to_others(ech_held *held)
{
    held->boxes -= held->others;
    memmove(held->box, held->box + held->others, (size_t)held->boxes * sizeof *held->box);
}

bool ech_exec_has_param(const ech_exec *exec, int param)
{
    return exec->plan->param[param].bucket >= 0;
}

bool ech_exec_loads_rounded(const ech_exec *exec, int param)
{
    const ech_plan_param *p = &exec->plan->param[param];
    const ech_bucket *bucket = &exec->plan->bucket.at[p->bucket];
    bool in_memory = exec->plan->states != ECH_SPACE_DISK && exec->plan->weights != ECH_SPACE_DISK;
    bool of_shard = ech_bucket_is_sharded(bucket) && !ech_bucket_holds_shard(bucket);
    return p->master >= 0 && (!in_memory || of_shard);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * PADDING between parameters of a bucket is zero: of gradients when their norm is taken, of weights
 * of all versions and of element-wise states after every training list.
 */
#include <stdlib.h>

#include "app/probe.h"

/* Who keeps a shard has no place for what is between; what is offloaded may be on disk. */
static bool applies(const ech_design *design)
{
    const ech_config *config = design->config;
    return config->parallel.zero == 0 && design->layout->protocol != ECH_PROTOCOL_CENTRAL &&
           config->memory.offload_optimizer == ECH_OFFLOAD_NONE &&
           config->memory.offload_parameters == ECH_OFFLOAD_NONE;
}

/* Whether the state is laid out like its bucket. */
static bool is_flat(const ech_plan *plan, int param, int state)
{
    const ech_bucket *bucket = &plan->bucket.at[plan->param[param].bucket];
    int value = plan->state.at[plan->param[param].first_state + state].value;
    for (int s = 0; s < bucket->states; s++)
        if (bucket->state[s].value == value) return true;
    return false;
}

static void look_behind(const probe_run *run, const ech_tensor *x, int param, const char *what)
{
    const ech_plan *plan = run->session->plan;
    int64_t bytes = plan->param[param].padding * (int64_t)ech_dtype_bytes(x->dtype);
    if (bytes == 0 || ech_tensor_count(x) != plan->param[param].elements) return;
    ECH_FREED char *end = ech_calloc((size_t)bytes, 1);
    ech_exec_copy(run->session->exec, end, (const char *)x->data + ech_tensor_bytes(x),
                  (size_t)bytes);
    for (int64_t b = 0; b < bytes; b++)
        if (end[b])
            probe_fail("rank %d: %s of %s: byte %lld of %lld between parameters is not zero",
                       run->rank, what, plan->model->param.at[param].name, (long long)b,
                       (long long)bytes);
}

static void look_at_gradients(const probe_run *run)
{
    const ech_plan *plan = run->session->plan;
    const ech_bucket *bucket = &plan->bucket.at[run->step->index];
    if (run->step->turn > 0 || ech_bucket_scatters_each(bucket) || ech_bucket_serves(bucket))
        return;
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        ech_tensor x = ech_exec_gradient(run->session->exec, param);
        look_behind(run, &x, param, "gradient");
    }
}

static void look_at_kept(const probe_run *run)
{
    const ech_plan *plan = run->session->plan;
    for (int i = 0; i < (int)plan->model->param.n; i++) {
        const ech_plan_param *p = &plan->param[i];
        if (p->bucket < 0 || ech_bucket_serves(&plan->bucket.at[p->bucket])) continue;
        for (int v = 0; v < plan->versions; v++) {
            ech_tensor x = ech_exec_param_at(run->session->exec, i, v);
            look_behind(run, &x, i, "weights");
        }
        for (int s = 0; s < p->states; s++) {
            ech_tensor x = ech_exec_state(run->session->exec, i, s);
            if (is_flat(plan, i, s)) look_behind(run, &x, i, "state");
        }
    }
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    (void)state;
    if (moment == PROBE_STEP && run->step->kind == ECH_STEP_NORM) look_at_gradients(run);
    if (moment == PROBE_AFTER && run->list == ECH_LIST_TRAIN) look_at_kept(run);
}

const probe probe_padding = {
    .name = "padding", .applies = applies, .observe = observe, .steps = true};

/* SPDX-License-Identifier: Apache-2.0
 *
 * What runs are compared by that keep the same elsewhere: the bits of their weights, and what has lived with what is planned.
 */
#ifndef ECH_TESTS_APP_KEPT_RUN_H
#define ECH_TESTS_APP_KEPT_RUN_H

#include "app/fixture.h"

static inline void kept_run_add(uint64_t *digest, const ech_device *device, const ech_tensor *x)
{
    const unsigned char *at = ech_device_reach(device, x->data);
    for (size_t i = 0; i < ech_tensor_bytes(x); i++)
        *digest = (*digest ^ at[i]) * UINT64_C(0x100000001b3);
}

/* Of the weights that the rank has. */
static inline uint64_t kept_run_digest(const ech_session *s, const ech_device *device)
{
    uint64_t digest = 0;
    for (int p = 0; p < (int)s->plan->model->param.n; p++) {
        if (s->plan->param[p].bucket < 0) continue;
        ech_tensor weights = ech_exec_param(s->exec, p);
        kept_run_add(&digest, device, &weights);
    }
    return digest;
}

/* What has lived is what is planned, to the byte. */
static inline void kept_run_compare_peaks(const ech_session *s)
{
    int64_t planned[ECH_MEMORY_KINDS] = {0}, measured[ECH_MEMORY_KINDS];
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        for (int l = 0; l <= ECH_LIST_TRAIN; l++)
            if (s->plan->list[l].peak[kind] > planned[kind])
                planned[kind] = s->plan->list[l].peak[kind];
    for (size_t i = 0; i < s->plan->persistent.n; i++) {
        const ech_value *v = &s->plan->persistent.at[i];
        planned[v->kind] += ech_plan_align(s->plan, v->kind, v->bytes);
    }
    ech_exec_peaks(s->exec, measured);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        if (measured[kind] != planned[kind])
            fail_msg("%s: %lld bytes, planned are %lld", ech_memory_name((ech_memory_kind)kind),
                     (long long)measured[kind], (long long)planned[kind]);
}

#endif

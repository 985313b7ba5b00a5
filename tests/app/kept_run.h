/* SPDX-License-Identifier: Apache-2.0
 *
 * What runs are compared by that keep the same elsewhere: the bits of their weights.
 */
#ifndef ECH_TESTS_APP_KEPT_RUN_H
#define ECH_TESTS_APP_KEPT_RUN_H

#include "app/fixture.h"
#include "app/verify/verify.h"

static inline void kept_run_add(uint64_t *digest, const ech_device *device, const ech_tensor *x)
{
    const unsigned char *at = ech_device_reach(device, x->data);
    for (size_t i = 0; i < ech_tensor_bytes(x); i++)
        *digest = (*digest ^ at[i]) * UINT64_C(0x100000001b3);
}

/* Of the weights that the rank has. */
static inline uint64_t kept_run_digest(const ech_session *s, const ech_config *config)
{
    const ech_device *device = ech_device_find(ech_config_name(config, "parallel.device"));
    uint64_t digest = 0;
    for (int p = 0; p < (int)s->plan->model->param.n; p++) {
        if (s->plan->param[p].bucket < 0) continue;
        ech_tensor weights = ech_exec_param(s->exec, p);
        kept_run_add(&digest, device, &weights);
    }
    return digest;
}

/* Opens a run and trains `runs` lists. run: to be closed, also after an error. */
static inline ech_status kept_run_train(ech_compared_run *run, ech_comm *comm, int runs)
{
    ECH_TRY(ech_compared_run_open(run, comm));
    for (int64_t i = 0; i < runs; i++)
        ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, i * run->design->schedule->turns));
    return ECH_OK;
}

#endif

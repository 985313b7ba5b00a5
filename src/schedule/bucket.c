/* SPDX-License-Identifier: Apache-2.0
 *
 * Buckets: gradients that are reduced together. Parameters enter in the order in which their
 * gradients become complete (so: from the last layer to the first), and a bucket closes when it
 * holds about bucket_bytes. Li et al. 2020, arXiv:2006.15704, §3.2.3.
 */
#include <stdlib.h>

#include "schedule/passes.h"

void ech_list_last_writers(const ech_plan *plan, const ech_list *list, int *last)
{
    size_t params = plan->model->param.n;
    for (size_t i = 0; i < params * (size_t)list->turns; i++) last[i] = -1;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        int phase = ech_step_kind_phase(step->kind);
        if (phase <= ECH_FORWARD) continue;
        const ech_block *block = plan->model->block.at[step->block];
        for (int c = step->first_call; c < step->first_call + step->calls; c++) {
            const ech_block_call *call = &block->program[phase].at[c];
            for (const ech_operand *o = NULL; (o = ech_call_next(block, call, ECH_TRAIN, o));)
                if (o->port == ECH_PORT_DPARAM)
                    last[(size_t)step->turn * params + (size_t)o->value] = (int)s;
        }
    }
}

static void put(ech_plan *plan, int param, const ech_config *config)
{
    ech_plan_param *p = &plan->param[param];
    ech_layout_group group = ech_layout_addends(plan->layout, plan->model, param);
    ech_dtype dtype = ech_plan_gradient_dtype(plan, param);
    int last = (int)plan->bucket.n - 1;
    ech_bucket *bucket = last < 0 ? NULL : &plan->bucket.at[last];
    if (!bucket || bucket->group != group || bucket->dtype != dtype ||
        ech_plan_bucket_bytes(plan, last) >= config->parallel.bucket_bytes) {
        ECH_PUSH(plan->bucket, (ech_bucket){.first_param = (int)plan->bucket_param.n,
                                            .dtype = dtype,
                                            .wire = ech_layout_wire(config, dtype),
                                            .group = group,
                                            .value = -1});
        bucket = &plan->bucket.at[plan->bucket.n - 1];
    }
    ECH_PUSH(plan->bucket_param, param);
    p->bucket = (int)plan->bucket.n - 1;
    p->bucket_offset = bucket->elements;
    bucket->params++;
    bucket->elements += p->elements;
}

typedef struct readiness {
    int step, param;
} readiness;

/* By step; of one step, from the last parameter to the first. */
static int by_step(const void *a, const void *b)
{
    const readiness *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return x->param > y->param ? -1 : x->param < y->param;
}

void ech_pass_bucket(ech_plan *plan, const ech_list *list, const ech_config *config)
{
    size_t params = plan->model->param.n, n = 0;
    int *last = ech_calloc(params * (size_t)list->turns + 1, sizeof *last);
    readiness *ready = ech_calloc(params + 1, sizeof *ready);
    ech_list_last_writers(plan, list, last);
    for (size_t p = 0; p < params; p++)
        if (last[p] >= 0) ready[n++] = (readiness){last[p], (int)p};
    qsort(ready, n, sizeof *ready, by_step);
    for (size_t i = 0; i < n; i++) put(plan, ready[i].param, config);
    free(ready);
    free(last);
}

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

/* The last bucket of the type, if it is of the group and not full; otherwise a new one. So matrices and vectors, whose
 * gradients may be of two types, fill buckets side by side. */
static int find_open(ech_plan *plan, ech_layout_group group, ech_dtype dtype,
                     const ech_config *config)
{
    int last = (int)plan->bucket.n - 1;
    while (last >= 0 && plan->bucket.at[last].dtype != dtype) last--;
    bool open = last >= 0 && plan->bucket.at[last].group == group &&
                ech_plan_bucket_bytes(plan, last) < config->parallel.bucket_bytes;
    if (open) return last;
    ECH_PUSH(plan->bucket, (ech_bucket){.dtype = dtype,
                                        .wire = ech_layout_wire(config, dtype),
                                        .group = group,
                                        .value = -1});
    return (int)plan->bucket.n - 1;
}

int64_t ech_plan_padding(const ech_plan *plan, int param)
{
    enum { NARROWEST = 2 }; /* bytes of an element */
    int64_t elements = plan->param[param].elements;
    return ech_align(elements, plan->part / NARROWEST) - elements;
}

static void put(ech_plan *plan, int param, const ech_config *config)
{
    ech_plan_param *p = &plan->param[param];
    p->bucket = find_open(plan, ech_layout_addends(plan->layout, plan->model, param),
                          ech_plan_gradient_dtype(plan, param), config);
    ech_bucket *bucket = &plan->bucket.at[p->bucket];
    p->bucket_offset = bucket->elements;
    bucket->params++;
    bucket->elements += p->elements + ech_plan_padding(plan, param);
    bucket->padding += ech_plan_padding(plan, param);
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

/* Numbers the buckets by when they are complete, and lists their parameters one bucket after the other. */
static void order_buckets(ech_plan *plan, const readiness *ready, size_t n)
{
    size_t buckets = plan->bucket.n;
    ECH_FREED int *left = ech_calloc(buckets + 1, sizeof *left);
    ECH_FREED int *number = ech_calloc(buckets + 1, sizeof *number);
    ECH_FREED ech_bucket *old = ech_calloc(buckets + 1, sizeof *old);
    int complete = 0, params = 0;
    for (size_t b = 0; b < buckets; b++) {
        old[b] = plan->bucket.at[b];
        left[b] = old[b].params;
    }
    for (size_t i = 0; i < n; i++) {
        int b = plan->param[ready[i].param].bucket;
        if (--left[b] > 0) continue;
        old[b].first_param = params;
        params += old[b].params;
        number[b] = complete;
        plan->bucket.at[complete++] = old[b];
    }
    for (size_t i = 0; i < n; i++) ECH_PUSH(plan->bucket_param, -1);
    for (size_t i = 0; i < n; i++) {
        ech_plan_param *p = &plan->param[ready[i].param];
        ech_bucket *bucket = &old[p->bucket];
        plan->bucket_param.at[bucket->first_param++] = ready[i].param;
        p->bucket = number[p->bucket];
    }
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
    order_buckets(plan, ready, n);
    free(ready);
    free(last);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes in from the host and goes back to it: LOAD, SCALE, READ, LOGITS.
 */
#include <string.h>

#include "exec/state.h"

/* Micro-batch k of a slot, copied to its value. */
static void load_slot(ech_exec *exec, ech_batch_slot slot, const void *from)
{
    const ech_list *list = exec->list;
    if (list->batch[slot] < 0) return;
    for (int k = 0; k < list->micro_batches; k++) {
        int value = list->batch[slot] + k;
        size_t bytes = (size_t)ech_plan_value(exec->plan, list, value)->bytes;
        exec->device->copy(ech_exec_touch(exec, value), (const char *)from + (size_t)k * bytes,
                           bytes);
    }
}

static double sum_weights(const ech_list *list, const ech_batch *batch)
{
    int64_t n = list->micro_batches * list->extent.batch * list->extent.tokens;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)batch->weights[i];
    return sum;
}

ech_status ech_handle_LOAD(ech_exec *exec, const ech_step *step)
{
    (void)step;
    exec->scalars[ECH_SCALAR_LOSS] = exec->scalars[ECH_SCALAR_LOSS_WEIGHT] = 0;
    if (exec->list->purpose == ECH_GENERATE) {
        load_slot(exec, ECH_TOKENS, exec->prompt);
        return ECH_OK;
    }
    const ech_batch *batch;
    ECH_TRY(ech_loader_next(exec->loader[exec->list->purpose], exec->step, &batch));
    load_slot(exec, ECH_TOKENS, batch->tokens);
    load_slot(exec, ECH_TARGETS, batch->targets);
    load_slot(exec, ECH_WEIGHTS, batch->weights);
    exec->scalars[ECH_SCALAR_TOKENS] = sum_weights(exec->list, batch);
    exec->scalars[ECH_SCALAR_STOP] = exec->ask_stop;
    exec->scalars[ECH_SCALAR_SAVE_NOW] = exec->ask_save;
    return ECH_OK;
}

ech_status ech_handle_SCALE(ech_exec *exec, const ech_step *step)
{
    (void)step;
    double tokens = exec->scalars[ECH_SCALAR_TOKENS];
    exec->scalars[ECH_SCALAR_LOSS_SCALE] = tokens > 0 ? 1 / tokens : 0;
    return ECH_OK;
}

ech_status ech_handle_READ(ech_exec *exec, const ech_step *step)
{
    (void)step;
    const double *s = exec->scalars;
    ech_readings *r = &exec->readings;
    if (exec->list->kind == ECH_LIST_CHECK) {
        r->hash_differs = false;
        for (int i = 0; i < 4; i++)
            r->hash_differs |= s[ECH_SCALAR_HASH0 + i] != -s[ECH_SCALAR_HASH4 + i];
        return ECH_OK;
    }
    r->loss_sum = s[ECH_SCALAR_LOSS];
    r->tokens = s[ECH_SCALAR_LOSS_WEIGHT];
    r->loss = r->tokens > 0 ? r->loss_sum / r->tokens : 0;
    if (exec->list->kind != ECH_LIST_TRAIN) return ECH_OK;
    r->grad_norm = s[ECH_SCALAR_GRAD_NORM];
    r->learning_rate = s[ECH_SCALAR_LEARNING_RATE];
    r->clip = s[ECH_SCALAR_CLIP];
    r->updates = (int64_t)s[ECH_SCALAR_UPDATES];
    r->withheld = s[ECH_SCALAR_WITHHELD] > 0;
    r->stop = s[ECH_SCALAR_STOP] > 0;
    r->save_now = s[ECH_SCALAR_SAVE_NOW] > 0;
    return ECH_OK;
}

void ech_exec_set_prompt(ech_exec *exec, const int32_t *tokens, int64_t position)
{
    int64_t T = exec->plan->list[ECH_LIST_GENERATE].extent.tokens;
    memcpy(exec->prompt, tokens, (size_t)T * sizeof *tokens);
    exec->position = position;
}

ech_status ech_handle_LOGITS(ech_exec *exec, const ech_step *step)
{
    (void)step;
    const void *logits = ech_exec_touch(exec, exec->list->logits);
    for (int64_t i = 0; i < exec->plan->model->vocabulary; i++)
        exec->logits[i] = exec->plan->real == ECH_F64 ? ((const double *)logits)[i]
                                                      : (double)((const float *)logits)[i];
    return ECH_OK;
}

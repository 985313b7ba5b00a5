/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches in, logits out: LOAD, LOGITS.
 */
#include "exec/state.h"

/* One step's rows of samples of T tokens each: their positions. */
static void load_rows(ech_exec *exec, ech_queue *queue, int micro, char *to, const char *from,
                      size_t item)
{
    const ech_list *list = exec->list;
    ech_rows rows = ech_exec_rows(exec, micro);
    size_t first = (size_t)rows.split * item, second = (size_t)(rows.tokens - rows.split) * item;
    for (int64_t b = 0; b < list->extent.batch; b++) {
        const char *sample = from + (size_t)(b * rows.whole) * item;
        exec->device->copy(queue, to, sample + (size_t)rows.start[0] * item, first);
        if (second)
            exec->device->copy(queue, to + first, sample + (size_t)rows.start[1] * item, second);
        to += first + second;
    }
}

/* The step's micro-batch, by sequence chunks or of whole samples, copied to its values. */
static void load_slot(ech_exec *exec, const ech_step *step, ech_slot slot, const void *from)
{
    const ech_list *list = exec->list;
    if (list->batch[slot] < 0) return;
    size_t item = ech_dtype_bytes(slot == ECH_WEIGHTS ? ECH_F32 : ECH_I32);
    size_t samples = (size_t)(list->extent.batch * list->extent.sequence) * item;
    size_t before = (size_t)ech_micro_at(list->numbering, step->micro).micro_batch;
    const char *read = (const char *)from + before * samples;
    bool whole = ech_slot_is_whole(slot);
    ech_queue *queue = ech_exec_queue(exec, step);
    for (int c = 0; c < (whole ? 1 : list->numbering.sequence_chunks); c++) {
        char *to = ech_exec_touch(exec, ech_list_batch(list, slot, step->micro + c));
        if (whole)
            exec->device->copy(queue, to, read, samples);
        else
            load_rows(exec, queue, step->micro + c, to, read, item);
    }
}

ech_status ech_exec_find_batch(ech_exec *exec, const ech_step *step, const ech_batch **out)
{
    return ech_loader_next(exec->loader[exec->list->purpose], exec->step + step->turn, out);
}

ech_status ech_handle_LOAD(ech_exec *exec, const ech_step *step)
{
    if (exec->list->purpose == ECH_GENERATE) {
        int value = exec->list->batch[ECH_TOKENS];
        ech_queue *queue = ech_exec_queue(exec, step);
        exec->device->copy(queue, ech_exec_touch(exec, value), &exec->token, sizeof exec->token);
        exec->device->copy(queue, &ech_exec_row(exec, 0)->position, &exec->position,
                           sizeof exec->position);
        return ECH_OK;
    }
    const ech_batch *batch;
    ECH_TRY(ech_exec_find_batch(exec, step, &batch));
    load_slot(exec, step, ECH_TOKENS, batch->tokens);
    load_slot(exec, step, ECH_TARGETS, batch->targets);
    load_slot(exec, step, ECH_WEIGHTS, batch->weights);
    load_slot(exec, step, ECH_STARTS, batch->starts);
    return ECH_OK;
}

void ech_exec_set_token(ech_exec *exec, int32_t token, int64_t position)
{
    ECH_ASSERT(position < exec->plan->list[ECH_LIST_GENERATE].extent.sequence);
    exec->token = token;
    exec->position = position;
}

static ech_dtype dtype_of_logits(const ech_plan *plan)
{
    const ech_block *last = plan->model->block.at[plan->model->block.n - 1];
    return ech_block_value_dtype(last, plan->model->logits, plan->types);
}

ech_status ech_handle_LOGITS(ech_exec *exec, const ech_step *step)
{
    size_t item = ech_dtype_bytes(dtype_of_logits(exec->plan));
    exec->device->copy(ech_exec_queue(exec, step), exec->staged_logits,
                       ech_exec_touch(exec, exec->list->logits),
                       (size_t)exec->plan->model->vocabulary * item);
    return ECH_OK;
}

void ech_logits_take(ech_exec *exec)
{
    if (exec->list->kind == ECH_LIST_GENERATE)
        ech_convert(exec->staged_logits, dtype_of_logits(exec->plan), exec->logits, ECH_F64,
                    exec->plan->model->vocabulary);
}

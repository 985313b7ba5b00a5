/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches in, logits out: LOAD, LOGITS.
 */
#include <string.h>

#include "exec/state.h"
#include "schedule/operands.h"

/* A value that a LOAD fills, and where it is staged. */
typedef struct part {
    ech_slot slot;
    int micro, value;
    char *staged;
    ech_queue *queue; /* of its copy */
} part;

/* Calls `does` for each. batch NULL: sampling's token. */
static void each_part(ech_exec *exec, const ech_step *step, const ech_batch *batch,
                      void (*does)(ech_exec *exec, const part *p, const ech_batch *batch))
{
    const ech_list *list = exec->list;
    if (step->scratch < 0) return;
    part p = {.staged = ech_exec_address(exec, step, step->scratch),
              .queue = ech_exec_queue(exec, step)};
    for (; p.slot < ECH_BATCH_SLOTS; p.slot++) {
        int chunks = ech_slot_is_whole(p.slot) ? 1 : list->numbering.sequence_chunks;
        for (int c = 0; list->batch[p.slot] >= 0 && c < chunks; c++) {
            p.micro = step->micro + c;
            p.value = ech_list_batch(list, p.slot, p.micro);
            does(exec, &p, batch);
            p.staged += ech_plan_value(exec->plan, list, p.value)->bytes;
        }
    }
}

/* Gathers one step's rows of samples of T tokens each by position. */
static void gather_rows(const ech_exec *exec, const part *p, const char *from, size_t item)
{
    char *to = p->staged;
    ech_rows rows = ech_exec_rows(exec, p->micro);
    size_t first = (size_t)rows.split * item, second = (size_t)(rows.tokens - rows.split) * item;
    for (int64_t b = 0; b < exec->list->extent.batch; b++) {
        const char *sample = from + (size_t)(b * rows.whole) * item;
        memcpy(to, sample + (size_t)rows.start[0] * item, first);
        if (second) memcpy(to + first, sample + (size_t)rows.start[1] * item, second);
        to += first + second;
    }
}

/* Gathers n numbers of whole samples, in the type of the list's value. */
static void gather_samples(const ech_exec *exec, const part *p, const char *from, int64_t n)
{
    ech_dtype have = ech_slot_dtype(p->slot);
    ech_dtype dtype = ech_type_dtype(ech_slot_type(p->slot), have, exec->plan->types);
    if (dtype == have)
        memcpy(p->staged, from, (size_t)n * ech_dtype_bytes(have));
    else
        ech_convert(from, have, p->staged, dtype, n);
}

/* Gathers the step's micro-batch, by sequence chunks or of whole samples. */
static void gather_part(ech_exec *exec, const part *p, const ech_batch *batch)
{
    const ech_list *list = exec->list;
    if (!batch) {
        memcpy(p->staged, &exec->token, sizeof exec->token);
        return;
    }
    const ech_block_options *options = &exec->plan->model->options;
    ech_shape shape = ech_slot_shape(options->samples, p->slot, options->image);
    size_t item = ech_dtype_bytes(ech_slot_dtype(p->slot));
    size_t before = (size_t)ech_micro_at(list->numbering, p->micro).micro_batch;
    const char *from = batch->slot[p->slot];
    if (ech_slot_is_whole(p->slot) || !ech_shape_has(&shape, ECH_AXIS_TOKENS)) {
        int64_t n = ech_shape_count(&shape, list->extent);
        gather_samples(exec, p, from + before * (size_t)n * item, n);
        return;
    }
    gather_rows(exec, p,
                from + before * (size_t)(list->extent.batch * list->extent.sequence) * item, item);
}

static void put_part(ech_exec *exec, const part *p, const ech_batch *batch)
{
    (void)batch;
    exec->device->copy(p->queue, ech_exec_touch(exec, p->value), p->staged,
                       (size_t)ech_plan_value(exec->plan, exec->list, p->value)->bytes);
}

ech_status ech_exec_find_batch(ech_exec *exec, const ech_step *step, const ech_batch **out)
{
    return ech_loader_next(exec->loader[exec->list->purpose], ech_exec_clock(exec, step->turn),
                           out);
}

static ech_status gather(ech_exec *exec, const ech_step *step)
{
    const ech_batch *batch = NULL;
    if (exec->list->purpose != ECH_GENERATE) ECH_TRY(ech_exec_find_batch(exec, step, &batch));
    each_part(exec, step, batch, gather_part);
    return ECH_OK;
}

/* The host's gathering is put on the queue like copies: the staging and the loader's batch are free
 * for the next micro-batch when the queue gets there, and the thread that puts steps on queues
 * never waits. */
ech_status ech_handle_LOAD(ech_exec *exec, const ech_step *step)
{
    if (step->scratch >= 0) ech_exec_touch(exec, step->scratch);
    ech_exec_put(exec, step, gather);
    each_part(exec, step, NULL, put_part);
    if (exec->list->purpose == ECH_GENERATE) ech_scalars_put_position(exec, step);
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
    exec->device->copy(ech_exec_queue(exec, step), ech_exec_look(exec, exec->plan->logits + 1),
                       ech_exec_touch(exec, exec->list->logits),
                       (size_t)exec->plan->model->vocabulary * item);
    return ECH_OK;
}

void ech_logits_take(ech_exec *exec)
{
    if (exec->list->kind == ECH_LIST_GENERATE)
        ech_convert(ech_exec_look(exec, exec->plan->logits + 1), dtype_of_logits(exec->plan),
                    ech_exec_look(exec, exec->plan->logits), ECH_F64,
                    exec->plan->model->vocabulary);
}

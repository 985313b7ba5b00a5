/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes in from the host and goes back to it: LOAD, LOGITS.
 */
#include "schedule/step/step.h"

/* Values of a batch slot, for all turns. */
static void make_batch(ech_accessor *a, int block, int local)
{
    const ech_block_value *v = &a->plan->model->block.at[block]->value.at[local];
    int chunks = v->cached ? a->list->numbering.sequence_chunks : 1;
    for (int micro = 0; micro < a->list->micro_batches; micro += chunks) {
        int value = ech_access_new(a, (ech_value){.kind = ECH_MEMORY_BATCH,
                                                  .block = block,
                                                  .local = local,
                                                  .micro = micro,
                                                  .index = -1,
                                                  .bytes = (int64_t)ech_block_value_bytes(
                                                      a->plan->model->block.at[block], local,
                                                      a->list->extent, a->plan->real)});
        if (micro == 0) a->list->batch[v->slot] = value;
    }
}

/* What this rank's blocks declare, for the micro-batches of its turn. */
static void touch_batch(ech_accessor *a)
{
    const ech_numbering *numbering = &a->list->numbering;
    for (int b = 0; b < (int)a->plan->model->block.n; b++) {
        const ech_block *block = a->plan->model->block.at[b];
        for (int local = 0; a->list->first_local[b] >= 0 && local < (int)block->value.n; local++) {
            const ech_block_value *v = &block->value.at[local];
            if (v->source != ECH_FROM_BATCH || a->list->batch[v->slot] >= 0) continue;
            if (v->purposes & 1u << a->list->purpose) make_batch(a, b, local);
        }
    }
    for (ech_slot slot = 0; slot < ECH_BATCH_SLOTS; slot++) {
        int chunks = ech_slot_is_whole(slot) ? 1 : numbering->sequence_chunks;
        for (int k = 0; a->list->batch[slot] >= 0 && k < numbering->micro_batches; k++)
            for (int c = 0; c < chunks; c++) {
                ech_micro at = {a->step->turn, k, c};
                ech_access_value(a, ech_list_batch(a->list, slot, ech_micro_number(*numbering, at)),
                                 true);
            }
    }
}

/* A batch is copied: read and written. */
static ech_work load_work(const ech_plan *plan, const ech_list *list, const ech_step *step)
{
    double bytes = 0;
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &list->access.at[step->first_access + i];
        bool is_own = access->value >= (int)plan->persistent.n;
        if (is_own) bytes += 2 * (double)ech_plan_value(plan, list, access->value)->bytes;
    }
    return (ech_work){.bytes = bytes};
}

/* And what else a step does once. */
static double load_seconds(const ech_costs *costs, const ech_plan *plan, const ech_step *step,
                           ech_participants among)
{
    (void)plan;
    (void)step;
    (void)among;
    return costs->rates.other_seconds;
}

const ech_step_methods ech_load_methods = {touch_batch, ech_step_prints_nothing, load_work,
                                           load_seconds, ech_step_sends_nothing};

static void touch_logits(ech_accessor *a)
{
    int last = (int)a->plan->model->block.n - 1;
    a->list->logits = ech_access_value_of(a, last, a->plan->model->logits, 0);
    ech_access_value(a, a->list->logits, false);
}

const ech_step_methods ech_logits_methods = {touch_logits, ech_step_prints_nothing,
                                             ech_step_has_no_work, ech_step_takes_no_time,
                                             ech_step_sends_nothing};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Input from and output to the host: COUNT, LOAD, LOGITS, SNAPSHOT, SAVE; and scalars by messages:
 * ANNOUNCE, SERVE.
 */
#include "schedule/operands.h"
#include "schedule/protocol/protocol.h"
#include "schedule/step/step.h"

static double delay_in(const ech_step_query *q)
{
    return ech_protocol_delay(q->plan, q->step->kind);
}

/* Waiting for the batch is part of the fixed cost of a training step. */
static double count_seconds(const ech_step_query *q)
{
    return q->costs->rates.other_seconds + delay_in(q);
}

const ech_step_methods ech_count_methods = {.seconds = count_seconds};

/* A few numbers between a worker and the last server, or a server and the first worker. */
static double tally_seconds(const ech_step_query *q)
{
    const ech_layout *layout = q->plan->layout;
    int rank = q->plan->rank, serves = ech_layout_serves(layout, rank);
    return ech_rates_latency(&q->costs->rates, 2, serves ? 0 : rank,
                             serves ? rank : layout->world - 1);
}

const ech_step_methods ech_tally_methods = {.seconds = tally_seconds};

static double announce_seconds(const ech_step_query *q)
{
    return tally_seconds(q) + delay_in(q);
}

const ech_step_methods ech_announce_methods = {.seconds = announce_seconds};

/* A training step is one push per worker; a slowed server sleeps here. */
static double serve_seconds(const ech_step_query *q)
{
    return tally_seconds(q) + delay_in(q) / ech_layout_workers(q->plan->layout);
}

const ech_step_methods ech_serve_methods = {.seconds = serve_seconds};

/* Empty messages. */
static void print_meet(const ech_step *step, ech_text *out)
{
    ech_text_append(out, " over %s", ech_layout_group_name(step->group));
}

const ech_step_methods ech_meet_methods = {.print = print_meet, .seconds = ech_step_latency};

/* Values of a batch slot, for all micro-batches. */
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
                                                      a->list->extent, a->plan->types)});
        if (micro == 0) a->list->batch[v->slot] = value;
    }
}

/* Makes the batch values that this rank's blocks declare. */
static void make_batches(ech_accessor *a)
{
    for (int b = 0; b < (int)a->plan->model->block.n; b++) {
        const ech_block *block = a->plan->model->block.at[b];
        for (int local = 0; a->list->first_local[b] >= 0 && local < (int)block->value.n; local++) {
            const ech_block_value *v = &block->value.at[local];
            if (v->source != ECH_FROM_BATCH || a->list->batch[v->slot] >= 0) continue;
            if (v->purposes & 1u << a->list->purpose) make_batch(a, b, local);
        }
    }
}

/* The host gathers the micro-batch's values in staging, one after the other, before they are
 * copied. */
static void touch_batch(ech_accessor *a)
{
    int64_t bytes = 0;
    if (a->step->micro == 0) make_batches(a);
    for (ech_slot slot = 0; slot < ECH_BATCH_SLOTS; slot++) {
        int chunks = ech_slot_is_whole(slot) ? 1 : a->list->numbering.sequence_chunks;
        for (int c = 0; a->list->batch[slot] >= 0 && c < chunks; c++) {
            int value = ech_list_batch(a->list, slot, a->step->micro + c);
            bytes += ech_plan_value(a->plan, a->list, value)->bytes;
            ech_access_value(a, value, true);
        }
    }
    if (!bytes) return;
    a->step->scratch = ech_access_new(a, (ech_value){.kind = ECH_MEMORY_STAGING,
                                                     .block = -1,
                                                     .local = -1,
                                                     .micro = a->step->micro,
                                                     .index = -1,
                                                     .bytes = bytes});
    ech_access_value(a, a->step->scratch, true);
}

static void print_load(const ech_step *step, ech_text *out)
{
    ech_text_append(out, " %d", step->micro);
}

/* A batch is copied: read and written. */
static ech_work load_work(const ech_step_query *q)
{
    double bytes = 0;
    for (int i = 0; i < q->step->accesses; i++) {
        int value = q->list->access.at[q->step->first_access + i].value;
        bool is_own = value >= (int)q->plan->persistent.n;
        if (is_own) bytes += 2 * (double)ech_plan_value(q->plan, q->list, value)->bytes;
    }
    return (ech_work){.bytes = bytes};
}

const ech_step_methods ech_load_methods = {
    .touch = touch_batch, .print = print_load, .work = load_work};

static void touch_logits(ech_accessor *a)
{
    int last = (int)a->plan->model->block.n - 1;
    a->list->logits = ech_access_value_of(a, last, a->plan->model->logits, 0);
    ech_access_value(a, a->list->logits, false);
}

const ech_step_methods ech_logits_methods = {.touch = touch_logits};

/* ---- checkpoints: this rank's part ---- */

/* The run knows which weight version is the newest. */
static void read_bucket(ech_accessor *a, const ech_bucket *bucket)
{
    const ech_plan *plan = a->plan;
    const int *params = &plan->bucket_param.at[bucket->first_param];
    bool writes = false;
    int last[ECH_MAX_STATES];
    for (int s = 0; s < ECH_MAX_STATES; s++) last[s] = -1;
    for (int i = 0; i < bucket->params; i++) {
        const ech_plan_param *p = &plan->param[params[i]];
        writes |= ech_plan_writes(plan, plan->rank, params[i], -1);
        for (int s = 0; s < p->states; s++) {
            int value = plan->state.at[p->first_state + s].value;
            if (value == last[s] || !ech_plan_writes(plan, plan->rank, params[i], s)) continue;
            ech_access_value(a, value, false);
            last[s] = value; /* the next parameter's as well if it belongs to the bucket */
        }
    }
    for (int v = 0; v < bucket->versions && writes; v++)
        ech_access_value(a, bucket->weights + v, false);
}

static void touch_copies(ech_accessor *a, const ech_plan_param *p, bool write)
{
    if (p->snapshot >= 0) ech_access_value(a, p->snapshot, write);
    for (int s = 0; s < p->states; s++) {
        int copy = a->plan->state.at[p->first_state + s].snapshot;
        if (copy >= 0) ech_access_value(a, copy, write);
    }
    if (p->previous >= 0) ech_access_value(a, p->previous, write);
}

/* SNAPSHOT copies; SAVE reads the copies, or without them the training's values. */
static void touch_checkpoint(ech_accessor *a)
{
    bool copies = a->step->lane == ECH_LANE_COPY_OUT;
    for (size_t b = 0; b < a->plan->bucket.n && (copies || !a->plan->snapshots); b++)
        read_bucket(a, &a->plan->bucket.at[b]);
    for (size_t i = 0; i < a->plan->model->param.n && a->plan->snapshots; i++)
        touch_copies(a, &a->plan->param[i], copies);
}

const ech_step_methods ech_snapshot_methods = {.touch = touch_checkpoint};
const ech_step_methods ech_save_methods = {.touch = touch_checkpoint};

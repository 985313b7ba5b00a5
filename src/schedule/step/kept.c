/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages with a block's kept activations of a sequence chunk, between a rank and its peer
 * (schedule/balance.h): SEND_KEPT and RECV_BACK on the rank that has the block, RECV_KEPT and
 * SEND_BACK on the one that holds them. All have one order of the values.
 */
#include "schedule/step/step.h"
#include "schedule/operands.h"
#include "schedule/segments.h"

int ech_step_each_kept(const ech_plan *plan, int index, void (*visit)(ech_accessor *a, int local),
                       ech_accessor *a)
{
    const ech_block *block = plan->model->block.at[index];
    ECH_FREED bool *kept = ech_calloc(block->value.n, sizeof *kept);
    int n = 0;
    ech_plan_find_kept(plan, index, kept);
    for (int local = 0; local < (int)block->value.n; local++) {
        if (!kept[local] || block->value.at[local].cached) continue;
        if (visit) visit(a, local);
        n++;
    }
    return n;
}

static ech_value *own_value(const ech_accessor *a, int local, int *number)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    *number =
        ech_list_value_of(a->plan, a->list, block, local, a->step->micro, ECH_INSTANCE_FORWARD);
    ECH_ASSERT(*number >= (int)a->plan->persistent.n);
    return &a->list->value.at[*number - (int)a->plan->persistent.n];
}

static void send_kept(ech_accessor *a, int local)
{
    int value;
    own_value(a, local, &value);
    ech_access_value(a, value, false);
}

static void receive_back(ech_accessor *a, int local)
{
    int value;
    own_value(a, local, &value);
    int other = ech_access_twin(a, value, ECH_MEMORY_ACTIVATIONS);
    ech_value *of = own_value(a, local, &value);
    ECH_ASSERT(!of->returned); /* it is kept by one block */
    of->returned = other;
    ech_access_value(a, other, true);
}

static void receive_kept(ech_accessor *a, int local)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    int64_t bytes = (int64_t)ech_block_value_bytes(block, local, a->list->extent, a->plan->types);
    int value = ech_access_new(a, (ech_value){.kind = ECH_MEMORY_ACTIVATIONS_OF_PEER,
                                              .block = a->step->block,
                                              .local = local,
                                              .micro = a->step->micro,
                                              .index = -1,
                                              .bytes = bytes});
    ech_access_value(a, value, true);
}

/* The values that the receiving step has written. */
static void send_back(ech_accessor *a)
{
    const ech_step *step = a->step, *received = step - 1;
    while (received->kind != ECH_STEP_RECV_KEPT || received->block != step->block ||
           received->micro != step->micro)
        received--;
    for (int i = 0; i < received->accesses; i++)
        ech_access_value(a, a->list->access.at[received->first_access + i].value, false);
}

static void touch(ech_accessor *a)
{
    void (*const visit[ECH_STEPS])(ech_accessor *, int) = {[ECH_STEP_SEND_KEPT] = send_kept,
                                                           [ECH_STEP_RECV_BACK] = receive_back,
                                                           [ECH_STEP_RECV_KEPT] = receive_kept};
    if (a->step->kind == ECH_STEP_SEND_BACK)
        send_back(a);
    else
        ech_step_each_kept(a->plan, a->step->block, visit[a->step->kind], a);
}

static void count(ech_traffic_count *c, const ech_step *step)
{
    if (!ech_step_sends(step)) return;
    bool back = ech_step_kind_message(step->kind) == ECH_MESSAGE_BACK;
    ech_flow flow = {.calls = 1,
                     .messages = ech_step_each_kept(c->plan, step->block, NULL, NULL),
                     .bytes = step->bytes};
    ech_traffic_add(&c->traffic[back ? ECH_TRAFFIC_BACK : ECH_TRAFFIC_KEPT], ECH_COLLECTIVE_NONE,
                    ECH_GROUP_WORLD, flow);
}

const ech_step_methods ech_kept_methods = {touch, ech_message_print, ech_message_work,
                                           ech_message_seconds, count};

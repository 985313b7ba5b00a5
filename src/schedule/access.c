/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that says which values each step touches, call by call: from the blocks' programs and the
 * layers' declarations. Values come into being when a step first touches them.
 */

#include <stdlib.h>

#include "schedule/passes.h"

typedef struct accessor {
    ech_plan *plan;
    ech_list *list;
    ech_step *step;
    int tick;
    /* One more than the scratch bytes of each call, by phase and block; 0: nobody asked yet. The answer
     * is the same for every micro-batch, and libraries take their time to give it. */
    size_t **scratch[ECH_PHASES];
} accessor;

static int new_value(accessor *a, ech_value value)
{
    value.offset = value.heir = -1;
    ECH_PUSH(a->list->value, value);
    return (int)(a->plan->persistent.n + a->list->value.n) - 1;
}

static void touch(accessor *a, int value, bool write)
{
    ECH_PUSH(a->list->access, (ech_access){.value = value, .tick = a->tick, .write = write});
    a->step->accesses++;
}

static int *slot_of(const accessor *a, int block, int local, int micro)
{
    return &a->list
                ->value_of[(a->list->first_local[block] + local) * a->list->micro_batches + micro];
}

static int port_of(const int *ports, size_t n, int local)
{
    for (size_t i = 0; i < n; i++)
        if (ports[i] == local) return (int)i;
    return -1;
}

/* Whether what crosses the boundary at this block, from before (forward) or from behind, comes from
 * another rank: what the rank's own neighbouring block makes is there. */
static bool is_received(const accessor *a, int block_index, bool forward)
{
    int neighbour = forward ? block_index - 1 : block_index + 1;
    return a->list->first_local[neighbour] < 0;
}

/* What sampling carries from token to token lives as long as the plan. */
static int cache_of(const accessor *a, int block, int local)
{
    for (size_t i = 0; i < a->plan->persistent.n; i++) {
        const ech_value *v = &a->plan->persistent.at[i];
        if (v->kind == ECH_MEMORY_CARRIED && v->block == block && v->local == local) return (int)i;
    }
    ECH_ASSERT(false);
    return -1;
}

/* The list's value of a block's own value, made if it is new. */
static int value_of(accessor *a, int block_index, int local, int micro)
{
    const ech_block *block = a->plan->model->block.at[block_index];
    local = ech_block_base(block, local);
    const ech_block_value *v = &block->value.at[local];
    if (v->carried) micro -= ech_micro_at(a->list->numbering, micro).sequence_chunk;
    int *slot = slot_of(a, block_index, local, micro);
    if (*slot >= 0) return *slot;

    bool gradient = v->role == ECH_ROLE_GRADIENT;
    if (v->source == ECH_FROM_BATCH) {
        *slot = ech_list_batch(a->list, v->slot, micro);
    } else if (v->source == ECH_FROM_BLOCK && !is_received(a, block_index, !gradient)) {
        int other = gradient ? block_index + 1 : block_index - 1;
        const ech_block *neighbour = a->plan->model->block.at[other];
        const int *there = gradient ? neighbour->dinput.at : neighbour->output.at;
        int port = gradient ? port_of(block->doutput.at, block->doutput.n, local)
                            : port_of(block->input.at, block->input.n, local);
        *slot = value_of(a, other, there[port], micro);
    } else if (v->carried && a->list->purpose == ECH_GENERATE) {
        *slot = cache_of(a, block_index, local);
    } else {
        *slot = new_value(a, (ech_value){.kind = v->carried ? ECH_MEMORY_CARRIED
                                                 : gradient ? ECH_MEMORY_ACTIVATION_GRADIENTS
                                                            : ECH_MEMORY_ACTIVATIONS,
                                         .block = block_index,
                                         .local = local,
                                         .micro = micro,
                                         .index = -1,
                                         .bytes = (int64_t)ech_block_value_bytes(
                                             block, local, a->list->extent, a->plan->real)});
    }
    return *slot;
}

static void touch_local(void *context, int local, bool write)
{
    accessor *a = context;
    touch(a, value_of(a, a->step->block, local, a->step->micro), write);
}

static void touch_gradient(accessor *a, int param, int call)
{
    const ech_param_plan *p = &a->plan->param[param];
    ech_bucket *bucket = &a->plan->bucket.at[p->bucket];
    size_t writer = (size_t)a->step->turn * a->plan->model->param.n + (size_t)param;
    if (a->list->first_writer[writer].step < 0)
        a->list->first_writer[writer] = (ech_writer){(int)(a->step - a->list->step.at), call};
    if (bucket->value < 0)
        bucket->value = new_value(
            a, (ech_value){.kind = ECH_MEMORY_GRADIENTS,
                           .block = -1,
                           .local = -1,
                           .micro = -1,
                           .index = p->bucket,
                           .bytes = bucket->elements * (int64_t)ech_dtype_bytes(a->plan->real)});
    touch(a, bucket->value, true);
}

static void access_call(accessor *a, const ech_block *block, ech_phase phase, int index)
{
    const ech_block_call *call = &block->program[phase].at[index];
    ech_call_touches(block, call, phase, a->list->purpose, touch_local, a);
    if (call->node < 0 || call->again || phase == ECH_FORWARD) return;
    const ech_node *node = &block->node.at[call->node];
    if (phase == ECH_BACKWARD_WEIGHT || node->layer->finishes_in_b)
        for (int i = 0; i < node->params; i++) touch_gradient(a, node->param[i], index);
}

static size_t ask_scratch(const accessor *a, const ech_block *block, const ech_block_call *call)
{
    if (call->node < 0 || !block->node.at[call->node].layer->scratch) return 0;
    ech_scratch_query query = {.block = block,
                               .node = &block->node.at[call->node],
                               .kernels = a->plan->kernels,
                               .threads = a->plan->threads,
                               .extent = a->list->extent,
                               .phase = call->again ? ECH_FORWARD : a->step->phase,
                               .purpose = a->list->purpose};
    return query.node->layer->scratch(&query);
}

static size_t scratch_of(const accessor *a, int index)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    size_t **known = &a->scratch[a->step->phase][a->step->block];
    if (!*known) *known = ech_calloc(block->program[a->step->phase].n, sizeof **known);
    if (!(*known)[index])
        (*known)[index] = 1 + ask_scratch(a, block, &block->program[a->step->phase].at[index]);
    return (*known)[index] - 1;
}

static void touch_scratch(accessor *a, size_t bytes)
{
    if (!bytes) return;
    a->step->scratch = new_value(a, (ech_value){.kind = ECH_MEMORY_SCRATCH,
                                                .block = a->step->block,
                                                .local = -1,
                                                .micro = a->step->micro,
                                                .index = a->step->index,
                                                .bytes = (int64_t)bytes});
    for (int i = 0; i < a->step->ticks; i++) {
        a->tick = a->step->tick + i;
        touch(a, a->step->scratch, true);
    }
}

static void access_block(accessor *a)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    size_t scratch = 0;
    a->step->ticks = a->step->calls;
    for (int c = 0; c < a->step->ticks; c++) {
        int index = a->step->first_call + c;
        size_t bytes = scratch_of(a, index);
        if (bytes > scratch) scratch = bytes;
        a->tick = a->step->tick + c;
        access_call(a, block, a->step->phase, index);
    }
    touch_scratch(a, scratch);
}

/* What came in pieces is read and written in place. */
static void access_whole(accessor *a)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    const int *ports;
    size_t n = ech_step_ports(a->step, block, &ports);
    for (size_t i = 0; i < n; i++)
        if (ports[i] >= 0) touch_local(a, ports[i], true);
}

/* All to all packs what goes and what comes, piece by piece. */
static size_t exchange_scratch(ech_collective collective, ech_dtype real, int64_t elements,
                               int members)
{
    size_t packed = 2 * (size_t)elements * ech_dtype_bytes(real);
    size_t own = ech_collective_scratch(collective, real, elements, members);
    return collective == ECH_COLLECTIVE_ALL_TO_ALL ? packed : own;
}

static void access_collective(accessor *a)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    if (!a->step->calls) {
        access_whole(a);
        return;
    }
    const ech_block_call *call = &block->program[a->step->phase].at[a->step->first_call];
    int64_t elements = ech_exchange_elements(block, call, a->list->extent);
    int members =
        ech_layout_group_size(a->plan->layout, a->plan->model, a->plan->rank, a->step->group);
    access_call(a, block, a->step->phase, a->step->first_call);
    touch_scratch(a, exchange_scratch(a->step->collective, a->plan->real, elements, members));
}

/* Values of a batch slot, for all turns. */
static void make_batch(accessor *a, int block, int local)
{
    const ech_block_value *v = &a->plan->model->block.at[block]->value.at[local];
    int chunks = v->carried ? a->list->numbering.sequence_chunks : 1;
    for (int micro = 0; micro < a->list->micro_batches; micro += chunks) {
        int value = new_value(a, (ech_value){.kind = ECH_MEMORY_BATCH,
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

/* LOAD writes what this rank's blocks declare, for the micro-batches of its turn. */
static void access_load(accessor *a)
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
    for (ech_batch_slot slot = 0; slot < ECH_BATCH_SLOTS; slot++) {
        int chunks = ech_batch_is_whole(slot) ? 1 : numbering->sequence_chunks;
        for (int k = 0; a->list->batch[slot] >= 0 && k < numbering->micro_batches; k++)
            for (int c = 0; c < chunks; c++) {
                ech_micro at = {a->step->turn, k, c};
                touch(a, ech_list_batch(a->list, slot, ech_micro_number(*numbering, at)), true);
            }
    }
}

/* What a message carries. */
static void access_message(accessor *a)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    bool receives = ech_step_receives(a->step);
    const int *ports;
    size_t n = ech_step_ports(a->step, block, &ports);
    for (size_t i = 0; i < n; i++)
        if (ports[i] >= 0)
            touch(a, value_of(a, a->step->block, ports[i], a->step->micro), receives);
}

static void access_bucket(accessor *a)
{
    ech_bucket *bucket = &a->plan->bucket.at[a->step->index];
    touch(a, bucket->value, a->step->kind == ECH_STEP_REDUCE_GRADS);
    if (a->step->kind != ECH_STEP_REDUCE_GRADS) return;
    int members =
        ech_layout_group_size(a->plan->layout, a->plan->model, a->plan->rank, a->step->group);
    touch_scratch(
        a, ech_reduction_scratch(a->plan->reduction, a->plan->real, bucket->elements, members));
}

static void access_step(accessor *a)
{
    switch (a->step->kind) {
    case ECH_STEP_LOAD:
        access_load(a);
        break;
    case ECH_STEP_FORWARD:
    case ECH_STEP_BACKWARD_INPUT:
    case ECH_STEP_BACKWARD_WEIGHT:
        access_block(a);
        break;
    case ECH_STEP_COLLECTIVE:
        access_collective(a);
        break;
    case ECH_STEP_SEND_ACT:
    case ECH_STEP_RECV_ACT:
    case ECH_STEP_SEND_GRAD:
    case ECH_STEP_RECV_GRAD:
        access_message(a);
        break;
    case ECH_STEP_REDUCE_GRADS:
    case ECH_STEP_NORM:
    case ECH_STEP_UPDATE:
        access_bucket(a);
        break;
    case ECH_STEP_LOGITS:
        touch(a,
              a->list->logits =
                  value_of(a, (int)a->plan->model->block.n - 1, a->plan->model->logits, 0),
              false);
        break;
    default:
        break; /* only persistent values */
    }
}

/* Slots for the values of the rank's own blocks, of those only. */
static void make_slots(const ech_plan *plan, ech_list *list)
{
    size_t blocks = plan->model->block.n, locals = 0;
    list->first_local = ech_calloc(blocks + 1, sizeof *list->first_local);
    for (size_t b = 0; b < blocks; b++) {
        bool own = ech_layout_has_block(plan->layout, plan->rank, (int)b);
        list->first_local[b] = own ? (int)locals : -1;
        if (own) locals += plan->model->block.at[b]->value.n;
    }
    size_t slots = locals * (size_t)list->micro_batches;
    list->value_of = ech_calloc(slots + 1, sizeof *list->value_of);
    for (size_t i = 0; i < slots; i++) list->value_of[i] = -1;
    for (int i = 0; i < ECH_BATCH_SLOTS; i++) list->batch[i] = -1;
    list->logits = -1;
    size_t writers = list->kind == ECH_LIST_TRAIN ? plan->model->param.n * (size_t)list->turns : 0;
    list->first_writer = ech_calloc(writers + 1, sizeof *list->first_writer);
    for (size_t i = 0; i < writers; i++) list->first_writer[i].step = -1;
}

void ech_pass_access(ech_plan *plan, ech_list *list)
{
    make_slots(plan, list);
    accessor a = {.plan = plan, .list = list};
    size_t blocks = plan->model->block.n;
    for (int phase = 0; phase < ECH_PHASES; phase++)
        a.scratch[phase] = ech_calloc(blocks, sizeof *a.scratch[phase]);
    int tick = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        ech_step *step = &list->step.at[s];
        step->first_access = (int)list->access.n;
        step->tick = tick;
        step->ticks = 1;
        a.step = step;
        a.tick = tick;
        access_step(&a);
        tick += step->ticks;
    }
    for (int phase = 0; phase < ECH_PHASES; phase++) {
        for (size_t b = 0; b < blocks; b++) free(a.scratch[phase][b]);
        free(a.scratch[phase]);
    }
    list->ticks = tick;
}

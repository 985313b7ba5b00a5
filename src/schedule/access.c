/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that lists the values that each step touches, call by call, from the blocks' programs
 * and the layers' declarations. A value is added to the list when a step first touches it.
 */

#include <stdlib.h>

#include "schedule/step/step.h"
#include "schedule/operands.h"
#include "schedule/segments.h"

int ech_access_new(ech_accessor *a, ech_value value)
{
    value.offset = value.successor = -1;
    ECH_PUSH(a->list->value, value);
    return (int)(a->plan->persistent.n + a->list->value.n) - 1;
}

void ech_access_value(ech_accessor *a, int value, bool write)
{
    ECH_PUSH(a->list->access, (ech_access){.value = value, .tick = a->tick, .write = write});
    a->step->accesses++;
}

void ech_access_as(ech_accessor *a, ech_used_as use, int value, bool write)
{
    ech_access_value(a, value, write);
    a->list->access.at[a->list->access.n - 1].use = use;
}

void ech_access_sum(ech_accessor *a, bool write)
{
    ech_access_as(a, ECH_USE_SUM, *ech_access_summed(a, a->step->index), write);
}

void ech_access_pair(ech_accessor *a, int from, int to)
{
    ech_access_value(a, from, false);
    ech_access_value(a, to, true);
}

int *ech_access_on_host(const ech_accessor *a)
{
    int piece = ech_step_piece(a->step), index = a->step->index;
    return &a->on_host[index][(piece ? piece - 1 : 0) *
                              (1 + a->plan->bucket.at[index].state_values)];
}

/* State before the first update. */
static int *make_on_host(const ech_plan *plan, const ech_bucket *bucket)
{
    int each = 1 + bucket->state_values;
    int *values = ech_calloc((size_t)bucket->pieces * (size_t)each, sizeof *values);
    for (int i = 0; i < bucket->pieces * each; i++)
        values[i] = i % each ? plan->state_value.at[bucket->first_state_value + i % each - 1] : -1;
    return values;
}

int ech_access_twin(ech_accessor *a, int value, ech_memory_kind kind)
{
    ech_value twin = *ech_plan_value(a->plan, a->list, value);
    twin.kind = kind;
    twin.returned = twin.copy = 0;
    return ech_access_new(a, twin);
}

void ech_access_weights(ech_accessor *a, int bucket, int version, bool write)
{
    ech_used_as use = version == a->step->version ? ECH_USE_WEIGHTS : ECH_USE_NEXT;
    ech_access_as(a, use, ech_plan_weights(a->plan, bucket, version), write);
}

void ech_access_states(ech_accessor *a, int index, bool write)
{
    const ech_plan *plan = a->plan;
    const ech_bucket *bucket = &plan->bucket.at[index];
    for (int s = 0; s < bucket->state_values; s++)
        ech_access_as(a, ECH_USE_STATE, plan->state_value.at[bucket->first_state_value + s], write);
}

int ech_access_weights_of(const ech_accessor *a, int bucket)
{
    const ech_instances *of = &a->brought[bucket];
    if (!ech_bucket_is_brought(&a->plan->bucket.at[bucket]))
        return ech_plan_weights(a->plan, bucket, a->step->version);
    for (size_t i = 0; i < of->all.n; i++)
        if (of->all.at[i].block == a->step->block) return of->all.at[i].value;
    ECH_ASSERT(false);
    return -1;
}

void ech_access_reads(ech_accessor *a)
{
    const ech_read_list *reads = ech_weight_reads_of(&a->reads, a->step);
    for (size_t i = 0; i < reads->all.n; i++) {
        ech_read read = reads->all.at[i];
        int value = ech_access_weights_of(a, read.bucket);
        a->tick = a->step->tick + read.first - a->step->first_call;
        ech_access_value(a, value, false);
        if (read.last == read.first || value < (int)a->plan->persistent.n) continue;
        a->tick = a->step->tick + read.last - a->step->first_call; /* its life */
        ech_access_value(a, value, false);
    }
}

int ech_access_new_weights(ech_accessor *a, int index, ech_space space, int64_t elements)
{
    const ech_bucket *bucket = &a->plan->bucket.at[index];
    ech_instances *of = &a->brought[index];
    size_t i = 0;
    int value = ech_access_new(
        a, (ech_value){.kind = space == ECH_SPACE_HOST ? ECH_MEMORY_PARAMETERS_ON_HOST
                                                       : ECH_MEMORY_PARAMETERS,
                       .block = a->step->block,
                       .local = -1,
                       .micro = -1,
                       .index = index,
                       .bytes = elements * (int64_t)ech_dtype_bytes(bucket->weight_dtype)});
    while (i < of->all.n && of->all.at[i].block != a->step->block) i++;
    if (i == of->all.n) ECH_PUSH(of->all, (ech_of_block){.block = a->step->block});
    of->all.at[i].value = value;
    return value;
}

static int *slot_of(const ech_accessor *a, int block, int local, int micro)
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

/* True if the value at the block's boundary (to the block before for forward, else to the next)
 * comes from another rank; otherwise the rank's own neighbouring block makes it. */
static bool is_received(const ech_accessor *a, int block_index, bool forward)
{
    int neighbour = forward ? block_index - 1 : block_index + 1;
    return a->list->first_local[neighbour] < 0;
}

/* A KV cache that sampling carries from token to token lives as long as the plan. */
static int cache_of(const ech_accessor *a, int block, int local)
{
    for (size_t i = 0; i < a->plan->persistent.n; i++) {
        const ech_value *v = &a->plan->persistent.at[i];
        if (v->kind == ECH_MEMORY_KV_CACHE && v->block == block && v->local == local) return (int)i;
    }
    ECH_ASSERT(false);
    return -1;
}

static ech_memory_kind kind_of(const ech_block_value *value)
{
    if (value->cached) return ECH_MEMORY_KV_CACHE;
    if (value->role == ECH_ROLE_GRADIENT) return ECH_MEMORY_ACTIVATION_GRADIENTS;
    if (value->role == ECH_ROLE_SPILL) return ECH_MEMORY_ACTIVATIONS_SPILLED;
    return value->role == ECH_ROLE_SCRATCH ? ECH_MEMORY_SCRATCH : ECH_MEMORY_ACTIVATIONS;
}

/* Finds the value outside its block that R reads. For an input: that input, or the value that the
 * previous block's R recomputes. For an output, where R inverts: that output, or the value that the
 * next block's R computes from it. False: R does not read it. */
static bool find_kept(const ech_accessor *a, int block_index, int *local, int *other)
{
    const ech_block *block = a->plan->model->block.at[block_index];
    bool inverts = block->options.invert;
    const int *mine = inverts ? block->routput.at : block->rinput.at;
    int port = port_of(mine, inverts ? block->routput.n : block->rinput.n, *local);
    if (port < 0) return false;
    bool continues = ech_plan_continues_segment(a->plan, inverts ? block_index + 1 : block_index);
    if (!continues && block->sharded) return false; /* R gathers it */
    *other = block_index;
    *local = inverts ? block->output.at[port] : block->input.at[port];
    if (!continues) return true;
    *other = inverts ? block_index + 1 : block_index - 1;
    const ech_block *neighbour = a->plan->model->block.at[*other];
    *local = inverts ? neighbour->rinput.at[port] : neighbour->routput.at[port];
    return true;
}

/* Finds the value that shares the memory of a block's value at its boundary: a neighbour's value on
 * this rank, or the value that R reads. False: it has memory of its own. */
static bool find_origin(const ech_accessor *a, int block_index, int *local, int *other)
{
    const ech_model *model = a->plan->model;
    const ech_block *block = model->block.at[block_index];
    const ech_block_value *v = &block->value.at[*local];
    bool gradient = v->role == ECH_ROLE_GRADIENT;
    *other = gradient ? block_index + 1 : block_index - 1;
    if (find_kept(a, block_index, local, other)) return true;
    if (v->source != ECH_FROM_BLOCK) return false;
    if (is_received(a, block_index, !gradient)) {
        return false;
    } else if (gradient) {
        *local = model->block.at[*other]
                     ->dinput.at[port_of(block->doutput.at, block->doutput.n, *local)];
    } else {
        *local =
            model->block.at[*other]->output.at[port_of(block->input.at, block->input.n, *local)];
    }
    return true;
}

/* The list's value of a block's own value, as forwards touch it; adds it if it is new. */
int ech_access_value_of(ech_accessor *a, int block_index, int local, int micro)
{
    const ech_block *block = a->plan->model->block.at[block_index];
    local = ech_block_base(block, local);
    const ech_block_value *v = &block->value.at[local];
    if (v->cached) micro -= ech_micro_at(a->list->numbering, micro).sequence_chunk;
    int *slot = slot_of(a, block_index, local, micro), there = local, other;
    if (*slot >= 0) return *slot;

    if (v->source == ECH_FROM_BATCH) {
        *slot = ech_list_batch(a->list, v->slot, micro);
    } else if (find_origin(a, block_index, &there, &other)) {
        *slot = ech_access_value_of(a, other, there, micro);
    } else if (v->cached && a->list->purpose == ECH_GENERATE) {
        *slot = cache_of(a, block_index, local);
    } else {
        *slot = ech_access_new(a, (ech_value){.kind = kind_of(v),
                                              .block = block_index,
                                              .local = local,
                                              .micro = micro,
                                              .index = -1,
                                              .bytes = (int64_t)ech_block_value_bytes(
                                                  block, local, a->list->extent, a->plan->types)});
    }
    return *slot;
}

void ech_access_bring(ech_accessor *a, int local, int value)
{
    int micro = a->step->micro - ech_micro_at(a->list->numbering, a->step->micro).sequence_chunk;
    *slot_of(a, a->step->block, local, micro) = value;
}

void ech_access_local(ech_accessor *a, int local, bool write)
{
    int value = ech_access_value_of(a, a->step->block, local, a->step->micro);
    value = ech_list_instance(a->plan, a->list, value, ech_step_instance(a->step));
    ech_access_value(a, value, write);
}

int ech_access_new_plain(ech_accessor *a, ech_memory_kind kind, int index, int64_t bytes)
{
    ech_value value = {
        .kind = kind, .block = -1, .local = -1, .micro = -1, .index = index, .bytes = bytes};
    return ech_access_new(a, value);
}

int ech_access_new_gradients(ech_accessor *a, int bucket, int micro, int64_t elements)
{
    int64_t item = (int64_t)ech_dtype_bytes(a->plan->bucket.at[bucket].dtype);
    return ech_access_new(a, (ech_value){.kind = ECH_MEMORY_GRADIENTS,
                                         .block = -1,
                                         .local = -1,
                                         .micro = micro,
                                         .index = bucket,
                                         .bytes = elements * item});
}

int *ech_access_summed(const ech_accessor *a, int index)
{
    return &a->list->summed[(size_t)a->step->turn * a->plan->bucket.n + (size_t)index];
}

static int *instance_of(const ech_accessor *a, int index)
{
    size_t instance =
        (size_t)ech_list_gradient_instance(a->plan, a->list, index, a->step->turn, a->step->micro);
    return &a->list->gradients[instance * a->plan->bucket.n + (size_t)index];
}

int ech_access_renew_sum(ech_accessor *a, int index)
{
    const ech_bucket *bucket = &a->plan->bucket.at[index];
    int value = ech_access_new_gradients(a, index, -1, ech_bucket_summed(bucket));
    if (!ech_bucket_sums_shard(bucket)) *instance_of(a, index) = value;
    return *ech_access_summed(a, index) = value;
}

int ech_access_gradients(ech_accessor *a, int index)
{
    const ech_bucket *bucket = &a->plan->bucket.at[index];
    int *value = instance_of(a, index), *summed = ech_access_summed(a, index);
    int first = bucket->commits ? *summed : a->list->summed[index];
    if (*value >= 0) return *value;
    if (ech_bucket_scatters_each(bucket))
        return *value = ech_access_new_gradients(a, index, a->step->micro, bucket->elements);
    if (ech_bucket_leaves(bucket) || first < 0) return ech_access_renew_sum(a, index);
    return *summed = *value = first;
}

static void touch_gradient(ech_accessor *a, int param, int call)
{
    int bucket = a->plan->param[param].bucket;
    size_t instance =
        (size_t)ech_list_gradient_instance(a->plan, a->list, bucket, a->step->turn, a->step->micro);
    ech_writer *first = &a->list->first_writer[instance * a->plan->model->param.n + (size_t)param];
    if (first->step < 0 && !ech_bucket_is_listed(&a->plan->bucket.at[bucket]))
        *first = (ech_writer){(int)(a->step - a->list->step.at), call};
    ech_access_value(a, ech_access_gradients(a, bucket), true);
}

static size_t ask_scratch(const ech_accessor *a, const ech_block *block, const ech_block_call *call)
{
    ech_scratch_query query = {.block = block,
                               .node = &block->node.at[call->node],
                               .kernels = a->plan->kernels,
                               .threads = a->plan->threads,
                               .extent = a->list->extent,
                               .phase = call->recompute ? ECH_FORWARD : a->step->phase,
                               .purpose = a->list->purpose};
    return query.node->layer->scratch(&query);
}

static size_t scratch_of(const ech_accessor *a, const ech_block *block, int index)
{
    size_t **known = &a->scratch[a->step->phase][a->step->block];
    if (!*known) *known = ech_calloc(block->program[a->step->phase].n, sizeof **known);
    if (!(*known)[index])
        (*known)[index] = 1 + ask_scratch(a, block, &block->program[a->step->phase].at[index]);
    return (*known)[index] - 1;
}

size_t ech_access_call(ech_accessor *a, int index)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    const ech_block_call *call = &block->program[a->step->phase].at[index];
    size_t scratch = 0;
    for (const ech_operand *o = NULL; (o = ech_call_next(block, call, a->list->purpose, o));) {
        if (ech_operand_is_value(o)) ech_access_local(a, o->value, o->mode != ECH_READ);
        if (o->port == ECH_PORT_DPARAM) touch_gradient(a, o->value, index);
        if (o->port == ECH_PORT_SCRATCH) scratch = scratch_of(a, block, index);
    }
    return scratch;
}

void ech_access_scratch(ech_accessor *a, size_t bytes)
{
    if (!bytes) return;
    a->step->scratch = ech_access_new(a, (ech_value){.kind = ECH_MEMORY_SCRATCH,
                                                     .block = a->step->block,
                                                     .local = -1,
                                                     .micro = a->step->micro,
                                                     .index = a->step->index,
                                                     .bytes = (int64_t)bytes});
    a->tick = a->step->tick;
    ech_access_value(a, a->step->scratch, true);
    if (ech_step_ticks(a->step) == 1) return;
    a->tick += ech_step_ticks(a->step) - 1;
    ech_access_value(a, a->step->scratch, true);
}

void ech_access_sum_scratch(ech_accessor *a, size_t bytes)
{
    int *last = a->sum_scratch[a->step->lane], value = last[1];
    if (!bytes) return;
    if (!value) value = ech_access_new_plain(a, ECH_MEMORY_SCRATCH, -1, 0);
    last[1] = last[0];
    last[0] = a->step->scratch = value;
    ech_value *v = &a->list->value.at[value - (int)a->plan->persistent.n];
    if (v->bytes < (int64_t)bytes) v->bytes = (int64_t)bytes;
    ech_access_value(a, value, true);
}

/* Makes slots for the values of the rank's own blocks only. */
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
    size_t instances = ech_list_kind_trains(list->kind) ? (size_t)list->instances : 0;
    if (ech_list_kind_meets(list->kind)) instances = 1; /* data that replicas exchange */
    size_t writers = plan->model->param.n * instances, gradients = plan->bucket.n * instances;
    list->first_writer = ech_calloc(writers + 1, sizeof *list->first_writer);
    for (size_t i = 0; i < writers; i++) list->first_writer[i].step = -1;
    list->gradients = ech_calloc(gradients + 1, sizeof *list->gradients);
    for (size_t i = 0; i < gradients; i++) list->gradients[i] = -1;
    size_t sums = plan->bucket.n * (size_t)list->turns;
    list->summed = ech_calloc(sums + 1, sizeof *list->summed);
    for (size_t i = 0; i < sums; i++) list->summed[i] = -1;
}

void ech_pass_access(ech_plan *plan, ech_list *list)
{
    make_slots(plan, list);
    ech_accessor a = {
        .plan = plan, .list = list, .brought = ech_calloc(plan->bucket.n + 1, sizeof *a.brought)};
    a.on_host = ech_calloc(plan->bucket.n + 1, sizeof *a.on_host);
    for (size_t b = 0; b < plan->bucket.n; b++)
        a.on_host[b] = make_on_host(plan, &plan->bucket.at[b]);
    ech_weight_reads_begin(&a.reads, plan, list->purpose);
    size_t blocks = plan->model->block.n;
    for (int phase = 0; phase < ECH_PHASES; phase++)
        a.scratch[phase] = ech_calloc(blocks, sizeof *a.scratch[phase]);
    int tick = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        ech_step *step = &list->step.at[s];
        step->first_access = (int)list->access.n;
        step->tick = tick;
        a.step = step;
        a.tick = tick;
        const ech_step_methods *methods = ech_step_row_of(step->kind)->methods;
        if (methods->touch) methods->touch(&a);
        tick += ech_step_ticks(step);
    }
    for (int phase = 0; phase < ECH_PHASES; phase++) {
        for (size_t b = 0; b < blocks; b++) free(a.scratch[phase][b]);
        free(a.scratch[phase]);
    }
    for (size_t b = 0; b < plan->bucket.n; b++) {
        free(a.brought[b].all.at);
        free(a.on_host[b]);
    }
    free(a.brought);
    free(a.on_host);
    ech_weight_reads_end(&a.reads);
    list->ticks = tick;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the first pass inside blocks: if a block's layers are sharded, its program is split
 * at each collective into steps of the compute lane, with COLLECTIVE steps between them on a lane
 * of their own. A collective begins when the compute step before it has ended. Compute waits only
 * for collectives that write what it touches or read what it writes, at the call that does so. So a
 * W that needs nothing from a collective runs during it, and so does a part of ring attention while
 * the next keys and values arrive. Two blocks do not overlap: a block's first step waits for all
 * outstanding steps.
 */
#include <math.h>
#include <stdlib.h>

#include "schedule/passes.h"
#include "schedule/operands.h"
#include "schedule/segments.h"

static const ech_step_kind kind_of[ECH_PHASES] = {[ECH_FORWARD] = ECH_STEP_FORWARD,
                                                  [ECH_BACKWARD_INPUT] = ECH_STEP_BACKWARD_INPUT,
                                                  [ECH_BACKWARD_WEIGHT] = ECH_STEP_BACKWARD_WEIGHT,
                                                  [ECH_RECOMPUTE] = ECH_STEP_RECOMPUTE};

static const ech_block *block_of(const ech_block_lowering *p)
{
    return p->plan->model->block.at[p->block];
}

static int add_step(ech_block_lowering *p, ech_step_kind kind, ech_phase phase)
{
    int added = ech_list_add(p->list, kind);
    ech_step *step = &p->list->step.at[added];
    step->block = p->block;
    step->chunk = p->chunk;
    step->micro = p->micro;
    step->turn = p->turn;
    step->version = p->version;
    step->phase = phase;
    return added;
}

/* ---- waits ---- */

/* Records the collective, `step`, as accessing the call's operands. */
static void enter_collective(ech_block_lowering *p, ech_phase phase, int call, int step)
{
    const ech_block *block = block_of(p);
    const ech_block_call *of = &block->program[phase].at[call];
    for (const ech_operand *o = NULL; (o = ech_call_next(block, of, p->list->purpose, o));)
        if (ech_operand_is_value(o)) (o->mode == ECH_READ ? p->reader : p->writer)[o->value] = step;
}

/* The collective that a call of the compute lane must wait for and no earlier call has waited for;
 * -1: none. */
static int find_wait(ech_block_lowering *p, ech_phase phase, int call)
{
    const ech_block *block = block_of(p);
    const ech_block_call *of = &block->program[phase].at[call];
    int latest = -1;
    for (const ech_operand *o = NULL; (o = ech_call_next(block, of, p->list->purpose, o));) {
        if (!ech_operand_is_value(o)) continue;
        if (p->writer[o->value] > latest) latest = p->writer[o->value];
        if (o->mode != ECH_READ && p->reader[o->value] > latest) latest = p->reader[o->value];
    }
    return latest > p->awaited ? latest : -1;
}

static void wait_here(ech_block_lowering *p, int step)
{
    ech_list_add_after(p->list, step);
    if (step > p->awaited && p->list->step.at[step].lane == ECH_LANE_COLLECTIVE) p->awaited = step;
    if (step >= p->outstanding) p->outstanding = -1;
}

/* ---- steps ---- */

/* Adds calls [first, end) as one step, which also waits for `wait`. */
static void add_part(ech_block_lowering *p, ech_phase phase, int first, int end, int wait)
{
    p->last = add_step(p, kind_of[phase], phase);
    p->list->step.at[p->last].first_call = first;
    p->list->step.at[p->last].calls = end - first;
    ech_calls all = ech_plan_calls(p->plan, p->list, p->block, phase);
    p->list->step.at[p->last].is_part = end - first < all.end - all.first;
    for (size_t i = 0; i < p->pending.n; i++) wait_here(p, p->pending.at[i]);
    p->pending.n = 0;
    if (wait > p->awaited) wait_here(p, wait);
}

/* A call that must wait begins a step, since the calls before it need not wait. */
static void add_compute(ech_block_lowering *p, ech_phase phase, int first, int end)
{
    int begin = first, wait = first < end ? find_wait(p, phase, first) : -1;
    for (int call = first + 1; call < end; call++) {
        int next = find_wait(p, phase, call);
        if (next <= wait) continue;
        add_part(p, phase, begin, call, wait);
        begin = call;
        wait = next;
    }
    if (begin < end) add_part(p, phase, begin, end, wait);
}

static ech_membership membership_of(const ech_block_lowering *p, const ech_step *step)
{
    const ech_plan *plan = p->plan;
    return ech_layout_membership(plan->layout, plan->model, plan->rank, step->group);
}

/* of: the rank's index in the step's group. Bytes depend on no segment. */
static int64_t sent_bytes(ech_membership of, const ech_step *step, ech_dtype dtype,
                          int64_t elements)
{
    return ech_collective_traffic(step->collective, dtype, elements, (ech_lineup){.size = of.size},
                                  of.index)
        .bytes;
}

static int begin_collective(ech_block_lowering *p, ech_phase phase, const ech_exchange *does)
{
    int added = add_step(p, ECH_STEP_COLLECTIVE, phase);
    ech_step *step = &p->list->step.at[added];
    step->collective = does->kind;
    step->group = ech_layout_group_over(does->over);
    if (p->last >= 0) ech_list_add_after(p->list, p->last);
    return added;
}

static int64_t elements_of(const ech_block_lowering *p, int value)
{
    return ech_shape_count(&block_of(p)->value.at[value].shape, p->list->extent);
}

ech_dtype ech_step_exchange_dtype(const ech_block *block, const ech_block_call *call,
                                  ech_types types)
{
    return ech_block_value_dtype(block, block->node.at[call->node].in[0], types);
}

int64_t ech_step_exchange_elements(const ech_block *block, const ech_block_call *call,
                                   ech_extent extent)
{
    const ech_node *node = &block->node.at[call->node];
    const ech_exchange *does = &node->layer->exchange;
    int64_t in = ech_shape_count(&block->value.at[node->in[0]].shape, extent);
    int64_t out = ech_shape_count(&block->value.at[node->out[0]].shape, extent);
    if (does->kind == ECH_COLLECTIVE_EXCHANGE_ROWS) return does->distance > 0 ? in : out;
    return in > out ? in : out;
}

int64_t ech_step_sent_elements(const ech_exchange *does, int64_t elements, ech_membership of)
{
    bool sends = does->kind != ECH_COLLECTIVE_SLIDE ||
                 ech_collective_slides(does->distance, of.size, of.index);
    return sends ? elements : 0;
}

static void add_collective(ech_block_lowering *p, ech_phase phase, int call)
{
    const ech_block_call *c = &block_of(p)->program[phase].at[call];
    const ech_exchange *does = ech_call_exchange(block_of(p), c, phase, p->list->purpose);
    int added = begin_collective(p, phase, does);
    ech_step *step = &p->list->step.at[added];
    step->first_call = call;
    step->calls = 1;
    int64_t elements = ech_step_exchange_elements(block_of(p), c, p->list->extent);
    ech_membership of = membership_of(p, step);
    int64_t whole = sent_bytes(of, step, ech_step_exchange_dtype(block_of(p), c, p->plan->types),
                               ech_step_sent_elements(does, elements, of));
    double expected = ech_node_expected(&block_of(p)->node.at[c->node]);
    if (!ech_step_exchanges_rest(block_of(p), c))
        step->bytes = (int64_t)llround(expected * (double)whole);
    /* The result of an earlier collective is there, since the lane keeps its order. Data received
     * for the block's first call must be waited for here if this is the first. */
    for (size_t i = 0; i < p->pending.n; i++) ech_list_add_after(p->list, p->pending.at[i]);
    enter_collective(p, phase, call, added);
    p->outstanding = added;
}

bool ech_plan_shards_messages(const ech_plan *plan)
{
    return plan->layout->tensor > 1 && !plan->layout->sharding.sequence;
}

int ech_lower_gather_message(ech_block_lowering *p, bool backward, int received)
{
    static const ech_exchange does = {ECH_COLLECTIVE_ALL_GATHER, ECH_MESH_TENSOR, 0};
    int added = begin_collective(p, backward ? ECH_BACKWARD_INPUT : ECH_FORWARD, &does);
    ech_list_add_after(p->list, received);
    ech_step *step = &p->list->step.at[added];
    ech_membership of = membership_of(p, step);
    const int *ports;
    size_t n = ech_step_ports(step, block_of(p), &ports);
    for (size_t i = 0; i < n; i++)
        if (ports[i] >= 0)
            step->bytes +=
                sent_bytes(of, step, ech_block_value_dtype(block_of(p), ports[i], p->plan->types),
                           elements_of(p, ports[i]));
    return added;
}

/* ---- programs ---- */

static bool exchanges(const ech_block_lowering *p, ech_phase phase, int call)
{
    const ech_block *block = block_of(p);
    return ech_call_exchange(block, &block->program[phase].at[call], phase, p->list->purpose) !=
           NULL;
}

static void begin(ech_block_lowering *p)
{
    size_t values = block_of(p)->value.n;
    p->writer = ech_calloc(values + 1, sizeof *p->writer);
    p->reader = ech_calloc(values + 1, sizeof *p->reader);
    for (size_t i = 0; i < values; i++) p->writer[i] = p->reader[i] = -1;
    if (p->outstanding >= 0) ECH_PUSH(p->pending, p->outstanding);
    p->outstanding = -1;
}

static void end(ech_block_lowering *p)
{
    free(p->writer);
    free(p->reader);
    p->writer = p->reader = NULL;
}

void ech_lower_phase(ech_block_lowering *p, ech_phase phase)
{
    ech_calls calls = ech_plan_calls(p->plan, p->list, p->block, phase);
    int n = calls.end, first = calls.first;
    begin(p);
    for (int call = first; call <= n; call++) {
        if (call < n && !exchanges(p, phase, call)) continue;
        add_compute(p, phase, first, call);
        if (call < n) add_collective(p, phase, call);
        first = call + 1;
    }
    end(p);
}

/* The calls of W that may run once B has finished the node at that position: up to the last of
 * them. */
static int ready_weights(const ech_block *block, int position)
{
    int end = 0;
    for (int call = 0; call < (int)block->program[ECH_BACKWARD_WEIGHT].n; call++) {
        const ech_block_call *c = &block->program[ECH_BACKWARD_WEIGHT].at[call];
        if (!c->recompute && ech_call_position(block, c) > position) end = call + 1;
    }
    return end;
}

/* The calls of W that may run during call `at` of B, a collective. It may have been moved before
 * calls of B whose nodes come later than its own (ech_block_finish): calls of W that need these are
 * then not ready. */
static int ready_beside(const ech_block *block, int at)
{
    const ech_block_call *calls = block->program[ECH_BACKWARD_INPUT].at;
    int position = ech_call_position(block, &calls[at]);
    if (calls[at].recompute) return 0;
    for (int call = at + 1; call < (int)block->program[ECH_BACKWARD_INPUT].n; call++) {
        int later = calls[call].recompute ? -1 : ech_call_position(block, &calls[call]);
        if (later > position) position = later - 1;
    }
    return ready_weights(block, position);
}

/* True if a remaining call of W before `end` makes, or reads, a value that is recomputed. */
static bool recomputes(const ech_block_lowering *p, int end)
{
    const ech_block *block = block_of(p);
    for (int call = 0; call < end; call++) {
        const ech_block_call *c = &block->program[ECH_BACKWARD_WEIGHT].at[call];
        if (p->weight_done.at[call]) continue;
        for (const ech_operand *o = NULL; (o = ech_call_next(block, c, ECH_TRAIN, o));)
            if (ech_operand_is_value(o) && block->value.at[o->value].again) return true;
    }
    return false;
}

/* Number of calls of W from `call` on that recompute the input of a later collective. */
static int made_to_fetch(const ech_block_lowering *p, int call)
{
    const ech_block *block = block_of(p);
    const ech_block_call *calls = block->program[ECH_BACKWARD_WEIGHT].at;
    int n = (int)block->program[ECH_BACKWARD_WEIGHT].n, end = call;
    while (end < n && calls[end].recompute && !exchanges(p, ECH_BACKWARD_WEIGHT, end)) end++;
    return end < n && exchanges(p, ECH_BACKWARD_WEIGHT, end) ? end - call : 0;
}

/* Begins what W gathers again before the part of B during which it can arrive. */
static void fetch_for_weights(ech_block_lowering *p, int end)
{
    for (int call = 0; call < end; call++) {
        if (p->weight_done.at[call]) continue;
        int made = made_to_fetch(p, call);
        if (made) add_compute(p, ECH_BACKWARD_WEIGHT, call, call + made);
        for (int i = 0; i < made; i++) p->weight_done.at[call++] = true;
        if (!exchanges(p, ECH_BACKWARD_WEIGHT, call)) continue;
        add_collective(p, ECH_BACKWARD_WEIGHT, call);
        p->weight_done.at[call] = true;
    }
}

static void add_weights(ech_block_lowering *p, int end)
{
    for (int call = 0; call < end; call++) {
        int first = call;
        while (call < end && !p->weight_done.at[call]) p->weight_done.at[call++] = true;
        add_compute(p, ECH_BACKWARD_WEIGHT, first, call);
    }
}

/* Interleaves calls [first, end) of B with W, when W can no longer run during a collective. If W
 * recomputes a value, W's calls up to that and other ready ones go before the B of the node that
 * reads the value. So the value is gone before B makes its equally large gradient, and B becomes
 * the only reader of its next inputs, so that gradients can reuse their offsets (inherit.c). The
 * last calls of W stay after all of B: they end the block. */
static void add_in_turns(ech_block_lowering *p, int first, int end)
{
    const ech_block *block = block_of(p);
    int begin = first, weights = (int)block->program[ECH_BACKWARD_WEIGHT].n;
    for (int call = first; call < end; call++) {
        int position = ech_call_position(block, &block->program[ECH_BACKWARD_INPUT].at[call]);
        int ready = position < 0 ? 0 : ready_weights(block, position - 1);
        if (ready == weights || !recomputes(p, ready)) continue;
        add_compute(p, ECH_BACKWARD_INPUT, begin, call);
        add_weights(p, ready);
        begin = call;
    }
    add_compute(p, ECH_BACKWARD_INPUT, begin, end);
    add_weights(p, weights);
}

/* Whether B writes gradients of parameters from that call on. */
static bool writes_gradients(const ech_block *block, int call, int end)
{
    for (; call < end; call++) {
        const ech_block_call *of = &block->program[ECH_BACKWARD_INPUT].at[call];
        for (const ech_operand *o = NULL; (o = ech_call_next(block, of, ECH_TRAIN, o));)
            if (o->port == ECH_PORT_DPARAM) return true;
    }
    return false;
}

/* Weights may be updated once the block's last gradient is written: W keeps its last call until B
 * has ended, unless B itself writes gradients until then. */
void ech_lower_backward(ech_block_lowering *p)
{
    const ech_block *block = block_of(p);
    ech_calls calls = ech_plan_calls(p->plan, p->list, p->block, ECH_BACKWARD_INPUT);
    int n = calls.end, first = calls.first;
    int weights = (int)block->program[ECH_BACKWARD_WEIGHT].n;
    int done = ech_plan_calls(p->plan, p->list, p->block, ECH_BACKWARD_WEIGHT).first;
    p->weight_done.n = 0;
    for (int i = 0; i < weights; i++) ECH_PUSH(p->weight_done, i < done);
    begin(p);
    if (first < block->shared) {
        add_compute(p, ECH_BACKWARD_INPUT, first, block->shared);
        first = block->shared;
    }
    for (int call = first; call < n; call++) {
        if (!exchanges(p, ECH_BACKWARD_INPUT, call)) continue;
        int ready = ready_beside(block, call);
        if (ready == weights && call + 1 < n && !writes_gradients(block, call + 1, n))
            ready = weights > 0 ? weights - 1 : 0;
        fetch_for_weights(p, ready);
        add_compute(p, ECH_BACKWARD_INPUT, first, call);
        add_collective(p, ECH_BACKWARD_INPUT, call);
        add_weights(p, ready);
        first = call + 1;
    }
    fetch_for_weights(p, weights);
    add_in_turns(p, first, n);
    end(p);
}

/* ---- sequence chunks ---- */

void ech_order_expand_sequence_chunks(const ech_schedule *schedule, ech_order *order,
                                      ech_numbering numbering, int **version)
{
    ech_numbering whole = {numbering.micro_batches, 1};
    ech_order expanded = {0};
    int *versions = NULL, n = 0, chunks = numbering.sequence_chunks;
    if (chunks < 2) return;
    if (version) versions = ech_calloc(order->n * (size_t)chunks + 1, sizeof *versions);
    for (size_t i = 0; i < order->n; i++) {
        bool joined = ech_order_is_joined(schedule, order, i);
        for (int c = 0; c < chunks; c++)
            for (size_t k = i; k <= i + joined; k++) {
                ech_order_item item = order->at[k];
                ech_micro at = ech_micro_at(whole, item.micro);
                at.sequence_chunk = item.action == ECH_F ? c : chunks - 1 - c;
                item.micro = ech_micro_number(numbering, at);
                ECH_PUSH(expanded, item);
                if (version) versions[n++] = (*version)[k];
            }
        i += joined;
    }
    free(order->at);
    *order = expanded;
    if (!version) return;
    free(*version);
    *version = versions;
}

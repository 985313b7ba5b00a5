/* SPDX-License-Identifier: Apache-2.0
 *
 * From a block's forward graph to its three programs: reverse-mode differentiation, done once, on
 * declarations. Each gradient becomes a value of the block like any other, so that src/schedule can
 * give it a life and an offset.
 */
#include <stdlib.h>

#include "base/status.h"
#include "layer/layers.h"
#include "layer/program.h"

/* The gradient so far of every forward value, followed by the partial sums of all values
 * (slot_of). */
typedef struct gradients {
    int values;
    int *value;      /* block value that holds it, or -1 */
    bool *exclusive; /* it is the only reader of that memory: may be added to in place */
    bool *viewed;    /* of views: their columns are written */
} gradients;

/* True if the node has calls in B. */
static bool has_back(const ech_node *node)
{
    return node->back || (node->trains && node->layer->finishes_in_b);
}

const ech_block_call ech_no_call = {.node = -1,
                                    .purposes = ~0u, /* until operands are listed */
                                    .dout = {-1, -1, -1, -1, -1, -1},
                                    .din = {-1, -1, -1, -1, -1, -1},
                                    .add = {-1, -1, -1, -1, -1, -1}};
_Static_assert(ECH_MAX_PORTS == 6, "a number for each port above");

static int new_gradient(ech_block *block, int like, ech_block_value_source source)
{
    ech_block_value value = block->value.at[like];
    ECH_ASSERT(value.base < 0);
    value.name = ech_pool_format(block->pool, "d %s", value.name);
    value.source = source;
    value.role = ECH_ROLE_GRADIENT;
    value.kept = ECH_KEPT_STORED;
    value.recomputed = -1;
    value.purposes = 1u << ECH_TRAIN;
    ECH_PUSH(block->value, value);
    return (int)block->value.n - 1;
}

/* The slot of a value's gradient, or of the node's contribution to the gradient of its input i. */
static int slot_of(const gradients *g, const ech_block *block, const ech_node *node, int i)
{
    int base = ech_block_base(block, node->in[i]);
    return i == 0 && node->partial_gradient ? g->values + base : base;
}

static bool wants_gradient(const ech_block *block, int value)
{
    return block->value.at[value].role == ECH_ROLE_ACTIVATION;
}

/* The value to write the slot's gradient to: the current one, if nothing else reads that memory. */
static int own_gradient(ech_block *block, gradients *g, int slot)
{
    if (!g->exclusive[slot]) g->value[slot] = new_gradient(block, slot % g->values, ECH_FROM_NODE);
    g->exclusive[slot] = true;
    return g->value[slot];
}

/* Adds `other` to the gradient in the slot. */
static void emit_sum(ech_block *block, gradients *g, int slot, int other)
{
    ech_block_call call = ech_no_call;
    call.add[0] = g->value[slot];
    call.dout[0] = other;
    call.din[0] = own_gradient(block, g, slot);
    ECH_PUSH(block->program[ECH_BACKWARD_INPUT], call);
}

/* Makes `gradient` part of another value's gradient: the first part, or an addend. */
static void take_over(ech_block *block, gradients *g, int base, int gradient, bool exclusive)
{
    if (g->value[base] >= 0) {
        emit_sum(block, g, base, gradient);
        return;
    }
    g->value[base] = gradient;
    g->exclusive[base] = exclusive;
}

/* Decides where the layer writes the gradient of input i, and what it adds to it. Returns the value
 * to add later to the gradient so far, or -1. A view's columns share no memory with another value's
 * gradient: its first reader writes, others add in place. */
static int plan_input(ech_block *block, gradients *g, const ech_node *node, int i,
                      ech_block_call *call)
{
    int base = ech_block_base(block, node->in[i]), slot = slot_of(g, block, node, i);
    bool is_view = base != node->in[i], fuses = node->layer->fuses_add;
    bool adds = is_view ? g->viewed[node->in[i]] : g->value[slot] >= 0;
    if (adds && node->is_part) { /* the others' rows are there */
        ECH_ASSERT(g->exclusive[slot]);
        call->din[i] = g->value[slot];
        return -1;
    }
    ECH_ASSERT(!is_view || !adds || fuses);
    g->viewed[node->in[i]] |= is_view;
    if (adds && !fuses) return call->din[i] = new_gradient(block, base, ECH_FROM_NODE);
    if (adds) call->add[i] = g->value[slot];
    call->din[i] = own_gradient(block, g, slot);
    return -1;
}

/* False for values that only other lists than training have. */
static bool has_gradient(const ech_block *block, int value)
{
    unsigned purposes = block->value.at[value].purposes;
    return purposes == 0 || purposes & 1u << ECH_TRAIN;
}

static void emit_backward_input(ech_block *block, gradients *g, int index)
{
    const ech_node *node = &block->node.at[index];
    ech_block_call call = ech_no_call;
    int sum_later[ECH_MAX_PORTS];
    call.node = index;
    for (int i = 0; i < node->outs; i++)
        if (has_gradient(block, node->out[i]))
            call.dout[i] = g->value[ech_block_base(block, node->out[i])];
    for (int i = 0; i < node->ins; i++) {
        bool wanted =
            wants_gradient(block, node->in[i]) && !((node->passes | node->constant) & 1u << i);
        sum_later[i] = wanted ? plan_input(block, g, node, i, &call) : -1;
    }
    if (node->layer->backward_input || node->layer->exchange_back.kind)
        ECH_PUSH(block->program[ECH_BACKWARD_INPUT], call);
    for (int i = 0; i < node->ins; i++)
        if (sum_later[i] >= 0) emit_sum(block, g, slot_of(g, block, node, i), sum_later[i]);
}

static void emit_backward_weight(ech_block *block, const gradients *g, int index)
{
    const ech_node *node = &block->node.at[index];
    ech_block_call call = ech_no_call;
    if (!node->layer->backward_weight || !node->trains) return;
    call.node = index;
    for (int i = 0; i < node->outs; i++)
        call.dout[i] = g->value[ech_block_base(block, node->out[i])];
    ECH_PUSH(block->program[ECH_BACKWARD_WEIGHT], call);
}

/* Collectives in place: the gradient of the input is the gradient of the output, or the sum of its
 * partial sums plus the contributions of readers that have all of it. */
static void exchange_in_place(ech_block *block, gradients *g, int index)
{
    const ech_node *node = &block->node.at[index];
    if (node->layer->exchange_back.kind == ECH_COLLECTIVE_NONE) return;
    int base = ech_block_base(block, node->in[0]), partial = g->values + base;
    ECH_ASSERT(base == node->in[0] && g->value[partial] >= 0 && g->exclusive[partial]);
    ech_block_call call = ech_no_call;
    call.node = index;
    call.dout[0] = call.din[0] = g->value[partial];
    ECH_PUSH(block->program[ECH_BACKWARD_INPUT], call);
    take_over(block, g, base, g->value[partial], true);
}

/* Residual sums compute nothing: inputs take over the output's gradient. */
static void pass_gradient(ech_block *block, gradients *g, int index, unsigned inputs)
{
    const ech_node *node = &block->node.at[index];
    int dout = g->value[node->out[0]];
    for (int i = 0; i < node->ins; i++) {
        int base = node->in[i];
        if (!(inputs & 1u << i) || !wants_gradient(block, base)) continue;
        if (!block->value.at[base].trains) continue;
        ECH_ASSERT(ech_block_base(block, base) == base);
        take_over(block, g, base, dout, false);
    }
}

static void emit_forward(ech_block *block)
{
    for (size_t i = 0; i < block->node.n; i++) {
        const ech_node *node = &block->node.at[i];
        ech_block_call call = ech_no_call;
        call.node = (int)i;
        /* R encodes what it recomputes. */
        if (node->layer->encodes && block->value.at[node->out[0]].recomputed >= 0) continue;
        if (!node->recompute_only && (node->layer->forward || node->layer->exchange.kind))
            ECH_PUSH(block->program[ECH_FORWARD], call);
    }
}

/* The first node of the chunk whose last node is `last`. */
static int begin_of_chunk(const ech_block *block, int last)
{
    while (last > 0 && block->node.at[last - 1].layer->joined && block->node.at[last - 1].outs > 0)
        last--;
    return last;
}

/* Emits a chunk's F, then its B: the last node turns its input into its own gradient. *gradient: of
 * the first node's input, for all chunks; -1: there is none yet. */
static void emit_chunk(ech_block *block, gradients *g, int first, int last, int *gradient)
{
    const ech_node *begin = &block->node.at[first];
    int slot = slot_of(g, block, begin, 0), joint = ech_block_base(block, begin->out[0]);
    ech_block_call call = ech_no_call;
    call.recompute = true;
    for (call.node = first; call.node < last; call.node++)
        ECH_PUSH(block->program[ECH_BACKWARD_INPUT], call);
    call.recompute = false;
    call.din[0] = joint;
    ECH_PUSH(block->program[ECH_BACKWARD_INPUT], call);
    if (*gradient < 0 && begin->back) {
        ECH_ASSERT(g->value[slot] < 0 && wants_gradient(block, begin->in[0]));
        *gradient = own_gradient(block, g, slot);
    }
    call.node = first;
    call.dout[0] = joint;
    call.din[0] = *gradient;
    ECH_PUSH(block->program[ECH_BACKWARD_INPUT], call);
}

/* Emits chunks first to last. Returns the first node of all. */
static int emit_chunks(ech_block *block, gradients *g, int last)
{
    int first = last, gradient = -1;
    while (first > 0 && block->node.at[first - 1].layer->joined) first--;
    for (int end = first; end <= last; end++)
        if (block->node.at[end].outs == 0)
            emit_chunk(block, g, begin_of_chunk(block, end), end, &gradient);
    return first;
}

/* Its inputs then get no gradient from it. */
static bool makes_tables_alone(const ech_block *block, const ech_node *node)
{
    int tables = 0;
    for (int i = 0; i < node->outs; i++)
        tables += block->value.at[node->out[i]].role == ECH_ROLE_TABLE;
    return tables > 0 && tables == node->outs;
}

static bool is_made_again(const ech_node *node)
{
    return node->recompute_only && node->round;
}

/* Emits the calls that recompute what B of a round reads. Returns the first of their nodes. */
static int emit_again(ech_block *block, int last)
{
    const ech_node *nodes = block->node.at;
    ech_block_call call = ech_no_call;
    call.recompute = true;
    call.node = last;
    while (is_made_again(&nodes[call.node - 1]) && nodes[call.node - 1].round == nodes[last].round)
        call.node--;
    int first = call.node;
    for (; call.node <= last; call.node++) ECH_PUSH(block->program[ECH_BACKWARD_INPUT], call);
    return first;
}

/* True if some node of the round has a backward. */
static bool round_has_back(const ech_block *block, int round)
{
    bool found = false;
    for (size_t n = 0; n < block->node.n; n++)
        found |= block->node.at[n].round == round && has_back(&block->node.at[n]);
    return found;
}

static void emit_backward(ech_block *block, gradients *g)
{
    for (int i = (int)block->node.n - 1; i >= 0; i--) {
        const ech_node *node = &block->node.at[i];
        if (node->layer->joined) i = emit_chunks(block, g, i);
        if (is_made_again(node) && round_has_back(block, node->round)) i = emit_again(block, i);
        if (node->layer->joined || node->recompute_only || !(node->purposes & 1u << ECH_TRAIN) ||
            node->layer == &ech_layer_row_keep_shard || node->layer->writes_partials ||
            makes_tables_alone(block, node))
            continue;
        emit_backward_weight(block, g, i);
        if (!has_back(node)) continue;
        pass_gradient(block, g, i, node->passes);
        if (node->layer->in_place)
            exchange_in_place(block, g, i);
        else if (node->layer->passes_gradient)
            pass_gradient(block, g, i, ~0u);
        else
            emit_backward_input(block, g, i);
    }
}

static void find_sharded_rows(ech_block *block)
{
    for (size_t i = 0; i < block->node.n; i++) {
        ech_node *node = &block->node.at[i];
        node->sharded_rows =
            node->ins > 0 && block->value.at[node->in[0]].shape.axis[0] == ECH_AXIS_ROWS;
    }
}

/* ---- collectives and codes come early ---- */

/* Marks what the call touches. Returns true if some of it was marked already. */
static bool mark_touched(const ech_block *block, const ech_block_call *call, bool *touched,
                         bool mark)
{
    bool meets = false;
    for (const ech_operand *o = NULL; (o = ech_call_next(block, call, ECH_TRAIN, o));) {
        if (!ech_operand_is_value(o)) continue;
        bool *value = &touched[o->value];
        meets |= *value;
        *value |= mark;
    }
    return meets;
}

/* The earliest position of call i: after the last call that touches its operands, and after calls
 * that must come first. */
static size_t earliest(const ech_block *block, ech_phase phase, size_t i)
{
    ECH_FREED bool *touched = ech_calloc(block->value.n, sizeof *touched);
    const ech_block_call *calls = block->program[phase].at;
    mark_touched(block, &calls[i], touched, true);
    size_t place = i, first = phase == ECH_BACKWARD_INPUT ? (size_t)block->shared : 0;
    while (place > first && !mark_touched(block, &calls[place - 1], touched, false)) place--;
    return place;
}

/* True if call i encodes a value over which the call before `place` could write, were it the last
 * to read the value (ech_layer.renews). */
static bool lets_renew(const ech_block *block, ech_phase phase, size_t i, size_t place)
{
    const ech_block_call *calls = block->program[phase].at;
    if (place == 0 || calls[i].node < 0 || calls[place - 1].node < 0) return false;
    const ech_node *node = &block->node.at[calls[i].node];
    const ech_node *before = &block->node.at[calls[place - 1].node];
    return node->layer->encodes && before->layer->renews && before->in[0] == node->in[0];
}

/* True for the backward's collectives, and for calls that encode. */
static bool comes_early(const ech_block *block, const ech_block_call *call, ech_phase phase)
{
    if (phase == ECH_FORWARD || phase == ECH_RECOMPUTE)
        return call->node >= 0 && block->node.at[call->node].layer->encodes;
    return !call->recompute && ech_call_exchange(block, call, phase, ECH_TRAIN);
}

/* Moves collectives up to where their operands are ready, so that the calls between them compute in
 * the meantime. Calls that encode move to the last call that reads the value: before it, if that
 * call can then write over the value. */
static void begin_early(ech_block *block, ech_phase phase)
{
    for (size_t i = 0; i < block->program[phase].n; i++) {
        ech_block_call call = block->program[phase].at[i];
        if (!comes_early(block, &call, phase)) continue;
        size_t place = earliest(block, phase, i);
        if (lets_renew(block, phase, i, place)) place--;
        for (size_t k = i; k > place; k--)
            block->program[phase].at[k] = block->program[phase].at[k - 1];
        block->program[phase].at[place] = call;
    }
}

void ech_block_finish(ech_block *block, ech_param *params)
{
    ech_program_find_addends(block, params);
    ech_program_freeze(block, params);
    ech_program_encode(block);
    ech_program_keep_less(block);
    find_sharded_rows(block);
    size_t values = block->value.n;
    gradients g = {.values = (int)values,
                   .value = ech_calloc(2 * values, sizeof *g.value),
                   .exclusive = ech_calloc(2 * values, sizeof *g.exclusive),
                   .viewed = ech_calloc(values, sizeof *g.viewed)};
    for (size_t i = 0; i < 2 * values; i++) g.value[i] = -1;

    emit_forward(block);
    for (size_t i = 0; i < block->output.n; i++) {
        int value = block->output.at[i], gradient = -1;
        if (block->trains) gradient = new_gradient(block, value, ECH_FROM_BLOCK);
        ECH_PUSH(block->doutput, gradient);
        if (block->trains) take_over(block, &g, value, gradient, false);
    }
    if (block->trains) emit_backward(block, &g);
    for (size_t i = 0; i < block->input.n; i++)
        ECH_PUSH(block->dinput, block->frozen_below ? -1 : g.value[block->input.at[i]]);
    ech_program_recompute(block);
    ech_program_list_operands(block);
    ech_program_fuse(block);
    begin_early(block, ECH_FORWARD);
    begin_early(block, ECH_RECOMPUTE);
    begin_early(block, ECH_BACKWARD_INPUT);
    free(g.value);
    free(g.exclusive);
    free(g.viewed);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * From a block's forward graph to its three programs: reverse-mode differentiation, done once, on
 * declarations. Each gradient becomes a value of the block like any other, so that the schedule room
 * can give it a lifetime and a place.
 */
#include <stdlib.h>

#include "base/status.h"
#include "layer/layer.h"

/* The gradient of every forward value so far. */
typedef struct gradients {
    int *value;      /* block value that holds it, or -1 */
    bool *exclusive; /* no one else reads that memory: may be added to in place */
    bool *viewed;    /* of views: their columns are written */
} gradients;

static const ech_block_call no_call = {
    .node = -1, .dout = {-1, -1, -1, -1}, .din = {-1, -1, -1, -1}, .add = {-1, -1, -1, -1}};

static int new_gradient(ech_block *block, int like, ech_value_source source)
{
    ech_block_value value = block->value.at[like];
    ECH_ASSERT(value.base < 0);
    value.name = ech_pool_format(block->pool, "d %s", value.name);
    value.source = source;
    value.role = ECH_ROLE_GRADIENT;
    value.purposes = 1u << ECH_TRAIN;
    ECH_PUSH(block->value, value);
    return (int)block->value.n - 1;
}

static bool wants_gradient(const ech_block *block, int value)
{
    return block->value.at[value].role == ECH_ROLE_ACTIVATION;
}

/* base's gradient gets `other` added: in place if nobody else reads it, else in new memory. */
static void emit_sum(ech_block *block, gradients *g, int base, int other)
{
    ech_block_call call = no_call;
    call.add[0] = g->value[base];
    call.dout[0] = other;
    if (!g->exclusive[base]) g->value[base] = new_gradient(block, base, ECH_FROM_NODE);
    g->exclusive[base] = true;
    call.din[0] = g->value[base];
    ECH_PUSH(block->program[ECH_BACKWARD_INPUT], call);
}

/* Where the layer shall write the gradient of input i, and what it shall add to it. */
static void plan_input(ech_block *block, gradients *g, const ech_node *node, int i,
                       ech_block_call *call, int *sum_later)
{
    int base = ech_block_base(block, node->in[i]);
    bool is_view = base != node->in[i];
    *sum_later = -1;
    /* A view's gradient is written, not added to: it may have one reader only. */
    ECH_ASSERT(!is_view || !g->viewed[node->in[i]]);
    g->viewed[node->in[i]] = is_view;
    if (g->value[base] < 0 || is_view) {
        if (g->value[base] < 0) g->value[base] = new_gradient(block, base, ECH_FROM_NODE);
        g->exclusive[base] = true;
        call->din[i] = g->value[base];
    } else if (node->layer->fuses_add) {
        call->add[i] = g->value[base];
        if (!g->exclusive[base]) g->value[base] = new_gradient(block, base, ECH_FROM_NODE);
        g->exclusive[base] = true;
        call->din[i] = g->value[base];
    } else {
        *sum_later = call->din[i] = new_gradient(block, base, ECH_FROM_NODE);
    }
}

static void emit_backward_input(ech_block *block, gradients *g, int index)
{
    const ech_node *node = &block->node.at[index];
    ech_block_call call = no_call;
    int sum_later[ECH_MAX_PORTS];
    call.node = index;
    for (int i = 0; i < node->outs; i++) {
        if (block->value.at[node->out[i]].purposes & 1u << ECH_TRAIN)
            call.dout[i] = g->value[ech_block_base(block, node->out[i])];
    }
    for (int i = 0; i < node->ins; i++) {
        sum_later[i] = -1;
        if (wants_gradient(block, node->in[i])) plan_input(block, g, node, i, &call, &sum_later[i]);
    }
    if (node->layer->backward_input) ECH_PUSH(block->program[ECH_BACKWARD_INPUT], call);
    for (int i = 0; i < node->ins; i++) {
        if (sum_later[i] >= 0) emit_sum(block, g, ech_block_base(block, node->in[i]), sum_later[i]);
    }
}

static void emit_backward_weight(ech_block *block, const gradients *g, int index)
{
    const ech_node *node = &block->node.at[index];
    ech_block_call call = no_call;
    if (!node->layer->backward_weight || !node->params) return;
    call.node = index;
    for (int i = 0; i < node->outs; i++)
        call.dout[i] = g->value[ech_block_base(block, node->out[i])];
    ECH_PUSH(block->program[ECH_BACKWARD_WEIGHT], call);
}

/* Residual sums compute nothing: both inputs take over the output's gradient. */
static void pass_gradient(ech_block *block, gradients *g, int index)
{
    const ech_node *node = &block->node.at[index];
    int dout = g->value[node->out[0]];
    for (int i = 0; i < node->ins; i++) {
        int base = node->in[i];
        ECH_ASSERT(ech_block_base(block, base) == base);
        if (g->value[base] >= 0) {
            emit_sum(block, g, base, dout);
        } else {
            g->value[base] = dout;
            g->exclusive[base] = false;
        }
    }
}

void ech_block_finish(ech_block *block)
{
    int forward_values = (int)block->value.n;
    gradients g = {.value = ech_calloc((size_t)forward_values, sizeof *g.value),
                   .exclusive = ech_calloc((size_t)forward_values, sizeof *g.exclusive),
                   .viewed = ech_calloc((size_t)forward_values, sizeof *g.viewed)};
    for (int i = 0; i < forward_values; i++) g.value[i] = -1;

    for (size_t i = 0; i < block->node.n; i++) {
        ech_block_call call = no_call;
        call.node = (int)i;
        ECH_PUSH(block->program[ECH_FORWARD], call);
    }
    for (size_t i = 0; i < block->output.n; i++) {
        int value = block->output.at[i];
        g.value[value] = new_gradient(block, value, ECH_FROM_BLOCK);
        ECH_PUSH(block->doutput, g.value[value]);
    }
    for (int i = (int)block->node.n - 1; i >= 0; i--) {
        emit_backward_weight(block, &g, i);
        if (block->node.at[i].layer->passes_gradient)
            pass_gradient(block, &g, i);
        else
            emit_backward_input(block, &g, i);
    }
    for (size_t i = 0; i < block->input.n; i++) {
        int gradient = g.value[block->input.at[i]];
        ECH_PUSH(block->dinput, gradient);
    }
    free(g.value);
    free(g.exclusive);
    free(g.viewed);
}

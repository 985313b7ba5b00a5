/* SPDX-License-Identifier: Apache-2.0
 *
 * What the calls of a block's programs do, as far as plans must know: which values they touch, and what they
 * have a group of ranks do.
 */
#include "layer/layer.h"

const ech_exchange *ech_call_exchange(const ech_block *block, const ech_block_call *call,
                                      ech_phase phase)
{
    if (call->node < 0) return NULL;
    const ech_layer *layer = block->node.at[call->node].layer;
    const ech_exchange *exchange =
        phase == ECH_FORWARD || call->again ? &layer->exchange : &layer->exchange_back;
    return exchange->kind == ECH_COLLECTIVE_NONE ? NULL : exchange;
}

bool ech_block_uses(const ech_block *block, int param)
{
    for (size_t n = 0; n < block->node.n; n++)
        for (int i = 0; i < block->node.at[n].params; i++)
            if (block->node.at[n].param[i] == param) return true;
    return false;
}

double ech_call_multiplies(const ech_block *block, const ech_block_call *call, ech_phase phase,
                           ech_extent extent)
{
    if (call->node < 0) return 0;
    const ech_node *node = &block->node.at[call->node];
    ech_phase does = call->again ? ECH_FORWARD : phase;
    return node->layer->multiplies ? node->layer->multiplies(block, node, extent, does) : 0;
}

double ech_block_multiplies(const ech_block *block, ech_extent extent)
{
    double sum = 0;
    for (int phase = 0; phase < ECH_PHASES; phase++)
        for (size_t c = 0; c < block->program[phase].n; c++)
            sum +=
                ech_call_multiplies(block, &block->program[phase].at[c], (ech_phase)phase, extent);
    return sum;
}

typedef struct toucher {
    const ech_block *block;
    ech_purpose purpose;
    ech_touch touch;
    void *context;
} toucher;

static void touch_one(const toucher *t, int value, bool write)
{
    if (value >= 0 && t->block->value.at[value].purposes & 1u << t->purpose)
        t->touch(t->context, value, write);
}

static void touch_ports(const toucher *t, const int *ports, int n, unsigned mask, bool write)
{
    for (int i = 0; i < n; i++)
        if (mask & 1u << i) touch_one(t, ports[i], write);
}

/* Inputs as B and W see them: as they are made again, where they are. */
static void touch_ins(const toucher *t, const ech_node *node, unsigned mask)
{
    for (int i = 0; i < node->ins; i++)
        if (mask & 1u << i) touch_one(t, ech_block_again(t->block, node->in[i]), false);
}

static void touch_keeps(const toucher *t, const ech_node *node, unsigned mask)
{
    for (int i = 0; i < node->keeps; i++) {
        bool gradient = t->block->value.at[node->keep[i]].role == ECH_ROLE_GRADIENT;
        if (mask & 1u << i) touch_one(t, node->keep[i], gradient);
    }
}

static void touch_forward(const toucher *t, const ech_node *node)
{
    if (ech_layer_idles(node->layer, ECH_FORWARD, t->purpose)) return;
    touch_ports(t, node->in, node->ins, ~0u, false);
    touch_ports(t, node->out, node->outs, ~0u, true);
    for (int i = 0; i < node->keeps; i++)
        if (t->block->value.at[node->keep[i]].role == ECH_ROLE_ACTIVATION)
            touch_one(t, node->keep[i], true);
}

void ech_call_touches(const ech_block *block, const ech_block_call *call, ech_phase phase,
                      ech_purpose purpose, ech_touch touch, void *context)
{
    toucher t = {block, purpose, touch, context};
    if (call->node < 0) {
        touch_one(&t, call->add[0], false);
        touch_one(&t, call->dout[0], false);
        touch_one(&t, call->din[0], true);
        return;
    }
    const ech_node *node = &block->node.at[call->node];
    if (phase == ECH_FORWARD || call->again) {
        touch_forward(&t, node);
        return;
    }
    const ech_reads *reads = phase == ECH_BACKWARD_INPUT ? &node->b : &node->w;
    touch_ins(&t, node, reads->in);
    touch_ports(&t, node->out, node->outs, reads->out, false);
    touch_keeps(&t, node, reads->keep);
    touch_ports(&t, call->dout, node->outs, ~0u, false);
    touch_ports(&t, call->add, node->ins, ~0u, false);
    touch_ports(&t, call->din, node->ins, ~0u, true);
}

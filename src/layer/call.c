/* SPDX-License-Identifier: Apache-2.0
 *
 * What plans need to know about the calls of a block's programs: the operands that each reads and
 * writes, and its collective.
 */
#include "layer/program.h"

const ech_exchange *ech_call_exchange(const ech_block *block, const ech_block_call *call,
                                      ech_phase phase, ech_purpose purpose)
{
    if (call->node < 0 || !(call->purposes & 1u << purpose)) return NULL;
    const ech_node *node = &block->node.at[call->node];
    bool back = phase != ECH_FORWARD && !call->recompute;
    const ech_exchange *exchange = back ? &node->layer->exchange_back : &node->layer->exchange;
    if (node->exchange) exchange = &node->exchange[back];
    return exchange->kind == ECH_COLLECTIVE_NONE ? NULL : exchange;
}

int ech_program_calls(const ech_block *block, ech_phase phase, ech_purpose purpose)
{
    const ech_block_call *calls = block->program[phase].at;
    int n = (int)block->program[phase].n;
    while (n > 0 && !(calls[n - 1].purposes & 1u << purpose)) n--;
    return n;
}

bool ech_block_uses(const ech_block *block, int param)
{
    for (size_t n = 0; n < block->node.n; n++)
        for (int i = 0; i < block->node.at[n].params; i++)
            if (block->node.at[n].param[i] == param) return true;
    return false;
}

ech_products ech_call_products(const ech_block *block, const ech_block_call *call, ech_phase phase,
                               ech_extent extent)
{
    const ech_node *node = call->node < 0 ? NULL : &block->node.at[call->node];
    if (!node || !node->layer->products) return (ech_products){0};
    return node->layer->products(block, node, extent, call->recompute ? ECH_FORWARD : phase);
}

double ech_call_multiplies(const ech_block *block, const ech_block_call *call, ech_phase phase,
                           ech_extent extent)
{
    ech_products of = ech_call_products(block, call, phase, extent);
    return of.M * of.N * of.K * of.count;
}

double ech_block_multiplies(const ech_block *block, ech_extent extent)
{
    double sum = 0;
    for (int phase = 0; phase < ECH_PHASES; phase++)
        for (size_t c = 0; c < block->program[phase].n; c++) {
            const ech_block_call *call = &block->program[phase].at[c];
            if (call->purposes & 1u << ECH_TRAIN)
                sum += ech_call_multiplies(block, call, (ech_phase)phase, extent);
        }
    return sum;
}

/* ---- operands ---- */

typedef struct lister {
    ech_block *block;
    ech_block_call *call;
} lister;

static ech_operand *add_operand(lister *l, ech_port port, int index, int value, ech_mode mode)
{
    ech_operand operand = {.port = (uint8_t)port,
                           .index = (uint8_t)index,
                           .mode = (uint8_t)mode,
                           .purposes = (uint8_t)(l->call->purposes & ((1u << ECH_PURPOSES) - 1)),
                           .value = value,
                           .like = value};
    ECH_PUSH(l->block->operand, operand);
    l->call->operands++;
    return &l->block->operand.at[l->block->operand.n - 1];
}

/* `like`: the value with the shape. */
static ech_operand *add_value(lister *l, ech_port port, int index, int value, int like,
                              ech_mode mode)
{
    if (value < 0) return NULL;
    ech_operand *operand = add_operand(l, port, index, ech_block_base(l->block, value), mode);
    operand->purposes &= (uint8_t)l->block->value.at[value].purposes;
    operand->like = like;
    return operand;
}

static bool is_gradient(const lister *l, int value)
{
    return l->block->value.at[value].role == ECH_ROLE_GRADIENT;
}

/* Output 0 may reuse the memory of input 0, if neither is a view and lists that have one have
 * both. */
static void mark_renewed(lister *l, const ech_node *node)
{
    ech_operand *in = l->block->operand.at + l->call->first_operand, *out = in + node->ins;
    if (!node->layer->renews || node->goes_on) return;
    ECH_ASSERT(in->port == ECH_PORT_IN && in->index == 0);
    ECH_ASSERT(out->port == ECH_PORT_OUT && out->index == 0);
    out->overwrites = ech_block_base(l->block, in->like) == in->like && out->value == out->like &&
                      in->purposes == out->purposes;
}

/* Saved gradients belong to the backward. A cache has rows of other chunks in addition to the
 * call's; R finds these there, too. */
static void list_forward(lister *l, const ech_node *node)
{
    ech_mode mode = node->goes_on ? ECH_ADD : ECH_WRITE;
    for (int i = 0; i < node->ins; i++) {
        if (node->in[i] < 0) continue;
        add_value(l, ECH_PORT_IN, i,
                  l->call->recompute ? ech_block_backward_value(l->block, node->in[i])
                                     : node->in[i],
                  node->in[i], ECH_READ);
    }
    for (int i = 0; i < node->outs; i++)
        add_value(l, ECH_PORT_OUT, i, node->out[i], node->out[i], mode);
    mark_renewed(l, node);
    for (int i = 0; i < node->keeps; i++) {
        int kept = node->keep[i];
        bool cached = l->block->value.at[kept].cached;
        ech_mode fills = node->in_phase ? ECH_READ : ECH_ADD;
        if (!is_gradient(l, kept))
            add_value(l, ECH_PORT_KEEP, i, kept, kept, cached ? fills : mode);
    }
    bool partials = node->layer->writes_partials;
    for (int i = 0; i < node->params; i++) {
        ech_operand *param = add_operand(l, partials ? ECH_PORT_DPARAM : ECH_PORT_PARAM, i,
                                         node->param[i], partials ? ECH_ADD : ECH_READ);
        if (node->untrained & 1u << i) param->purposes &= (uint8_t) ~(1u << ECH_TRAIN);
    }
}

/* The gradient of input i may reuse the memory of the read input, if neither is a view and nothing
 * is added. */
static bool may_overwrite(const lister *l, const ech_node *node, unsigned reads, int i)
{
    int read = ech_block_backward_value(l->block, node->in[i]);
    return node->layer->overwrites & reads & 1u << i && l->call->add[i] < 0 &&
           ech_block_base(l->block, read) == read;
}

/* Values of the forward, or the values recomputed for them. */
static void list_backward(lister *l, const ech_node *node, ech_phase phase)
{
    const ech_reads *reads = phase == ECH_BACKWARD_INPUT ? &node->b : &node->w;
    const ech_block_call *call = l->call;
    for (int i = 0; i < node->ins; i++)
        if (reads->in & 1u << i)
            add_value(l, ECH_PORT_IN, i, ech_block_backward_value(l->block, node->in[i]),
                      node->in[i], ECH_READ);
    for (int i = 0; i < node->outs; i++)
        if (reads->out & 1u << i)
            add_value(l, ECH_PORT_OUT, i, ech_block_backward_value(l->block, node->out[i]),
                      node->out[i], ECH_READ);
    for (int i = 0; i < node->keeps; i++)
        if (reads->keep & 1u << i)
            add_value(l, ECH_PORT_KEEP, i, ech_block_backward_value(l->block, node->keep[i]),
                      node->keep[i], is_gradient(l, node->keep[i]) ? ECH_ADD : ECH_READ);
    for (int i = 0; i < node->outs; i++)
        add_value(l, ECH_PORT_DOUT, i, call->dout[i], node->out[i], ECH_READ);
    for (int i = 0; i < node->ins; i++)
        add_value(l, ECH_PORT_ADD, i, call->add[i], node->in[i], ECH_READ);
    for (int i = 0; i < node->ins; i++) {
        ech_operand *din = add_value(l, ECH_PORT_DIN, i, call->din[i], node->in[i],
                                     node->is_part ? ECH_ADD : ECH_WRITE);
        if (din) din->overwrites = may_overwrite(l, node, reads->in, i);
    }
    for (int i = 0; i < node->params; i++)
        if (reads->param & 1u << i) add_operand(l, ECH_PORT_PARAM, i, node->param[i], ECH_READ);
    if (phase == ECH_BACKWARD_WEIGHT || node->layer->finishes_in_b)
        for (int i = 0; i < node->params; i++)
            if (!(node->frozen & 1u << i))
                add_operand(l, ECH_PORT_DPARAM, i, node->param[i], ECH_ADD);
}

static void list_call(lister *l, ech_phase phase)
{
    ech_block_call *call = l->call;
    call->operands = 0;
    const ech_node *node = call->node < 0 ? NULL : &l->block->node.at[call->node];
    call->first_operand = (int)l->block->operand.n;
    call->purposes = phase == ECH_FORWARD ? node->purposes : 1u << ECH_TRAIN;
    if (!node) {
        add_value(l, ECH_PORT_ADD, 0, call->add[0], call->add[0], ECH_READ);
        add_value(l, ECH_PORT_DOUT, 0, call->dout[0], call->dout[0], ECH_READ);
        add_value(l, ECH_PORT_DIN, 0, call->din[0], call->din[0], ECH_WRITE);
        return;
    }
    if (phase == ECH_FORWARD || call->recompute)
        list_forward(l, node);
    else
        list_backward(l, node, phase);
    if (node->layer->scratch) add_operand(l, ECH_PORT_SCRATCH, 0, -1, ECH_WRITE);
}

void ech_program_list_operands(ech_block *block)
{
    block->operand.n = 0;
    for (int phase = 0; phase < ECH_PHASES; phase++)
        for (size_t i = 0; i < block->program[phase].n; i++) {
            lister l = {block, &block->program[phase].at[i]};
            list_call(&l, (ech_phase)phase);
        }
}

int ech_operand_overwrites(const ech_block *block, const ech_block_call *call,
                           const ech_operand *operand)
{
    const ech_operand *all = block->operand.at + call->first_operand;
    for (int i = 0; operand->overwrites && i < call->operands; i++)
        if (all[i].port == ECH_PORT_IN && all[i].index == operand->index &&
            all[i].purposes & operand->purposes)
            return all[i].value;
    return -1;
}

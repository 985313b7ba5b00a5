/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that fuses calls: in F and R a call and the next one, which reads its result, become one
 * call of a fused layer (fused.def), if the device's kernels have it. The fused node has the inputs
 * of both except the value between, the outputs of both, what the second keeps, and the parameters
 * of both. R fuses as F does, so that recomputed values have the same bits. In B a call takes over
 * the bias of a product's W.
 */
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "layer/layers.h"
#include "layer/program.h"

enum way { LOST, OPTIONAL, WRITTEN, BIAS };

static const struct fusion {
    const char *name;
    const ech_layer *layer, *first, *second;
    enum way way;
} fusions[] = {
#define X(fused, first, second, way)                                                               \
    {#fused, &ech_layer_row_##fused, &ech_layer_row_##first, &ech_layer_row_##second, way},
#include "layer/fused.def"
#undef X
};
enum { FUSIONS = sizeof fusions / sizeof *fusions };

unsigned ech_fused_rows(const char *names)
{
    unsigned rows = 0;
    for (int i = 0; i < FUSIONS; i++)
        if (ech_text_has_word(names, fusions[i].name)) rows |= 1u << i;
    return rows;
}

static bool crosses(const int *values, size_t n, int value)
{
    for (size_t i = 0; i < n; i++)
        if (values[i] == value) return true;
    return false;
}

/* The purposes of lists in which other calls, or code outside the block, touch the value. */
static unsigned other_readers(const ech_block *block, int value, const ech_block_call *first,
                              const ech_block_call *second)
{
    unsigned purposes = 0;
    if (crosses(block->output.at, block->output.n, value) ||
        crosses(block->routput.at, block->routput.n, value) ||
        crosses(block->rinput.at, block->rinput.n, value))
        return ~0u;
    for (int phase = 0; phase < ECH_PHASES; phase++)
        for (size_t i = 0; i < block->program[phase].n; i++) {
            const ech_block_call *call = &block->program[phase].at[i];
            for (int k = 0; k < call->operands && call != first && call != second; k++) {
                const ech_operand *o = &block->operand.at[call->first_operand + k];
                if (ech_operand_is_value(o) && o->value == value) purposes |= o->purposes;
            }
        }
    return purposes;
}

/* A product may add without rounding first. But R of a reversible block subtracts what F has added,
 * which must be the rounded product. */
static bool may_add(const ech_block *block, int other)
{
    return !block->options.reversible && block->value.at[other].base < 0;
}

/* The input of `second` that is the only output of `first`, if no other input is; -1: none. */
static int find_between(const ech_node *first, const ech_node *second)
{
    int at = -1;
    for (int i = 0; i < second->ins; i++)
        if (second->in[i] == first->out[0]) at = at < 0 ? i : ECH_MAX_PORTS;
    return first->outs == 1 && at < ECH_MAX_PORTS ? at : -1;
}

static bool fits(const ech_block *block, const struct fusion *row, const ech_block_call *first,
                 const ech_block_call *second)
{
    const ech_node *a = &block->node.at[first->node], *b = &block->node.at[second->node];
    if (a->layer != row->first || b->layer != row->second || first->purposes != second->purposes)
        return false;
    int at = find_between(a, b);
    if (at < 0 || block->value.at[a->out[0]].base >= 0) return false;
    if (row->way == LOST)
        return may_add(block, b->in[1 - at]) && !other_readers(block, a->out[0], first, second);
    return row->way != BIAS;
}

/* The node of both calls; fields not set here are the second's. The value between is its last
 * output, if it has it. */
static ech_node fuse_nodes(const ech_node *a, const ech_node *b, const struct fusion *row)
{
    ech_node node = *b;
    ECH_ASSERT(!a->options || !b->options);
    node.layer = row->layer;
    if (a->options) node.options = a->options;
    node.ins = node.params = 0;
    node.frozen = 0; /* of the backward */
    for (int i = 0; i < a->ins; i++) ech_node_in(&node, a->in[i]);
    for (int i = 0; i < b->ins; i++)
        if (b->in[i] != a->out[0]) ech_node_in(&node, b->in[i]);
    for (int i = 0; i < a->params + b->params; i++)
        ech_node_param(&node, i < a->params ? a->param[i] : b->param[i - a->params]);
    ECH_ASSERT(a->keeps == 0);
    if (row->way != LOST) ech_node_out_in_place(&node, a->out[0]);
    return node;
}

static const struct fusion *find_row(const ech_block *block, const ech_block_call *first,
                                     const ech_block_call *second)
{
    for (int i = 0; i < FUSIONS; i++)
        if (block->options.fused & 1u << i && fits(block, &fusions[i], first, second))
            return &fusions[i];
    return NULL;
}

/* Calls i and i + 1 become one. */
static void fuse_calls(ech_block *block, ech_phase phase, size_t i, const struct fusion *row)
{
    ech_program *program = &block->program[phase];
    const ech_node *nodes = block->node.at;
    const ech_block_call *first = &program->at[i];
    int between = nodes[first->node].out[0];
    if (row->way == OPTIONAL)
        block->value.at[between].purposes &= other_readers(block, between, first, first + 1);
    ech_node node = fuse_nodes(&nodes[first->node], &nodes[first[1].node], row);
    ECH_PUSH(block->node, node);
    program->at[i].node = (int)block->node.n - 1;
    program->n--;
    memmove(&program->at[i + 1], &program->at[i + 2], (program->n - i - 1) * sizeof *program->at);
    if (phase == ECH_RECOMPUTE && (int)i < block->needed) block->needed--;
    ech_program_list_operands(block);
}

/* Does not fuse across the last call of R that B and W need, since plans may omit the rest. */
static void fuse_phase(ech_block *block, ech_phase phase)
{
    ech_program *program = &block->program[phase];
    for (size_t i = 0; i + 1 < program->n; i++) {
        bool end = phase == ECH_RECOMPUTE && (int)i + 1 == block->needed;
        const struct fusion *row =
            end ? NULL : find_row(block, &program->at[i], &program->at[i + 1]);
        if (row) fuse_calls(block, phase, i, row);
    }
}

/* ---- a bias, whose gradient is the sum of rows of the result of the second call's B ---- */

static ech_block_call *find_weight_call(const ech_block *block, const ech_layer *layer, int dout)
{
    ech_program program = block->program[ECH_BACKWARD_WEIGHT];
    for (size_t i = 0; i < program.n; i++) {
        const ech_node *node = program.at[i].node < 0 ? NULL : &block->node.at[program.at[i].node];
        if (node && node->layer == layer && node->params > 1 && !node->frozen &&
            !program.at[i].recompute && program.at[i].dout[0] == dout)
            return &program.at[i];
    }
    return NULL;
}

/* True if only this call makes the gradient. */
static bool is_only_maker(const ech_block *block, const ech_block_call *call, int gradient)
{
    const ech_program *program = &block->program[ECH_BACKWARD_INPUT];
    bool only = call->add[0] < 0 && block->value.at[gradient].source == ECH_FROM_NODE;
    for (size_t i = 0; i < program->n; i++)
        for (int k = 0; k < ECH_MAX_PORTS; k++)
            only &= &program->at[i] == call || program->at[i].din[k] != gradient;
    return only;
}

/* Moves the bias parameter from the call of W to the call of B. */
static void move_bias(ech_block *block, ech_block_call *b, ech_block_call *w,
                      const struct fusion *row)
{
    ech_node second = block->node.at[b->node], first = block->node.at[w->node];
    ECH_ASSERT(second.params == 0 && first.params == 2);
    second.layer = row->layer;
    ech_node_param(&second, first.param[1]);
    first.params = 1;
    ECH_PUSH(block->node, second);
    ECH_PUSH(block->node, first);
    w->node = (int)block->node.n - 1;
    b->node = (int)block->node.n - 2;
    ech_program_list_operands(block);
}

static void fuse_biases(ech_block *block, const struct fusion *row)
{
    ech_program *program = &block->program[ECH_BACKWARD_INPUT];
    for (size_t i = 0; i < program->n; i++) {
        ech_block_call *call = &program->at[i];
        if (call->node < 0 || call->recompute || block->node.at[call->node].layer != row->second)
            continue;
        ech_block_call *of = find_weight_call(block, row->first, call->din[0]);
        if (of && is_only_maker(block, call, call->din[0])) move_bias(block, call, of, row);
    }
}

void ech_program_fuse(ech_block *block)
{
    for (int i = 0; i < FUSIONS; i++)
        if (fusions[i].way == BIAS && block->options.fused & 1u << i)
            fuse_biases(block, &fusions[i]);
    fuse_phase(block, ECH_FORWARD);
    fuse_phase(block, ECH_RECOMPUTE);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that fuses calls: in F and R a call and the one behind it, which reads what it makes, become one call of a
 * fused layer (fused.def), where the device's kernels have that. Its node has the inputs of both but for the value
 * between, the outputs of the second, and what both keep and their parameters. R fuses as F does, so that what is made
 * again has the same bits.
 */
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "layer/layers.h"
#include "layer/program.h"

enum between { LOST };

static const struct fusion {
    const char *name;
    const ech_layer *layer, *first, *second;
    enum between between;
} fusions[] = {
#define X(fused, first, second, between)                                                           \
    {#fused, &ech_layer_row_##fused, &ech_layer_row_##first, &ech_layer_row_##second, between},
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

/* In lists of which purposes calls other than these two touch the value, or something outside of the block does. */
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

/* A product adds what it need not round first. But R of a reversible block subtracts what F has added: that must be
 * the product as it is rounded. */
static bool may_add(const ech_block *block, const ech_node *linear, int other)
{
    return !ech_layer_linear_is_partial(linear) && !block->options.reversible &&
           block->value.at[other].base < 0;
}

/* Which input of `second` is the only output of `first`, and no other input is; -1: none. */
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
    if (row->layer == &ech_layer_row_linear_residual && !may_add(block, a, b->in[1 - at]))
        return false;
    return row->between != LOST || !other_readers(block, a->out[0], first, second);
}

/* The node of both calls; what is not said here is the second's. */
static ech_node fuse_nodes(const ech_node *a, const ech_node *b, const ech_layer *layer)
{
    ech_node node = *b;
    ECH_ASSERT(!a->options || !b->options);
    node.layer = layer;
    if (a->options) node.options = a->options;
    node.ins = node.keeps = node.params = 0;
    for (int i = 0; i < a->ins; i++) ech_node_in(&node, a->in[i]);
    for (int i = 0; i < b->ins; i++)
        if (b->in[i] != a->out[0]) ech_node_in(&node, b->in[i]);
    for (int i = 0; i < a->params + b->params; i++)
        ech_node_param(&node, i < a->params ? a->param[i] : b->param[i - a->params]);
    ECH_ASSERT(a->keeps == 0);
    node.keeps = b->keeps;
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
    ech_node node =
        fuse_nodes(&nodes[program->at[i].node], &nodes[program->at[i + 1].node], row->layer);
    ECH_PUSH(block->node, node);
    program->at[i].node = (int)block->node.n - 1;
    program->n--;
    memmove(&program->at[i + 1], &program->at[i + 2], (program->n - i - 1) * sizeof *program->at);
    if (phase == ECH_RECOMPUTE && (int)i < block->needed) block->needed--;
    ech_program_list_operands(block);
}

/* Not over the end of what B and W need of R: plans may leave out the rest. */
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

void ech_program_fuse(ech_block *block)
{
    fuse_phase(block, ECH_FORWARD);
    fuse_phase(block, ECH_RECOMPUTE);
}

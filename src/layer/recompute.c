/* SPDX-License-Identifier: Apache-2.0
 *
 * Selective recomputation: values that the backward reads but the forward does not save are recomputed.
 *
 * Chen et al. 2016, arXiv:1604.06174, drop the results of cheap operations and run these operations a second
 * time; Korthikanti et al. 2022, arXiv:2205.05198, section 5, choose by compute and memory. Here layers declare
 * it (ech_layer.cheap), and builders choose it for what a collective fetched (gathered inputs, the ring's keys
 * and values). A recomputed value has the same bits: the same kernel computes it.
 */
#include <stdlib.h>

#include "base/status.h"
#include "layer/program.h"

/* ---- the outputs of cheap layers ---- */

/* Whether some node's B or W, or a node that is recomputed for them, reads the value. */
static bool is_read_back(const ech_block *block, int value)
{
    for (size_t n = 0; n < block->node.n; n++) {
        const ech_node *node = &block->node.at[n];
        unsigned reads = node->recompute_only ? ~0u : node->b.in | node->w.in;
        for (int i = 0; i < node->ins; i++)
            if (reads & 1u << i && node->in[i] == value && block->value.at[value].recomputed < 0)
                return true;
    }
    return false;
}

static int copy_value(ech_block *block, int value)
{
    ech_block_value recomputed = block->value.at[value];
    recomputed.name = ech_pool_format(block->pool, "%s recomputed", recomputed.name);
    ECH_PUSH(block->value, recomputed);
    return (int)block->value.n - 1;
}

/* A copy of the node for the backward. It also recomputes what the node saves; nothing reads that. */
static void add_recompute(ech_block *block, size_t index)
{
    ech_node node = block->node.at[index];
    ECH_ASSERT(node.outs == 1);
    int value = node.out[0], recomputed = copy_value(block, value);
    for (int i = 0; i < node.keeps; i++) node.keep[i] = copy_value(block, node.keep[i]);
    node.out[0] = recomputed;
    node.b = node.w = (ech_reads){0};
    ECH_PUSH(block->node, node);
    ech_block_set_recompute(block, value, recomputed);
}

/* Weights that changed since the forward would give a value that no forward computed. */
static bool can_be_recomputed(const ech_block *block, const ech_node *node)
{
    return node->layer->cheap && !(block->options.drifts && node->params > 0);
}

void ech_program_keep_less(ech_block *block)
{
    for (size_t n = 0, own = block->node.n; n < own; n++)
        if (can_be_recomputed(block, &block->node.at[n]) &&
            is_read_back(block, block->node.at[n].out[0]))
            add_recompute(block, n);
    for (size_t n = 0; n < block->node.n; n++) {
        ech_node *node = &block->node.at[n];
        for (int i = 0; node->recompute_only && i < node->ins; i++)
            node->in[i] = ech_block_backward_value(block, node->in[i]);
    }
}

/* ---- where in the programs ---- */

typedef struct recompute {
    const ech_block *block;
    const int *maker; /* by value: the node that recomputes it; -1: none */
    bool *made;       /* likewise: whether a call does already */
    ech_program out;
} recompute;

static void make(recompute *r, int value)
{
    int maker = r->maker[value];
    if (maker < 0 || r->made[value]) return;
    const ech_node *node = &r->block->node.at[maker];
    for (int i = 0; i < node->ins; i++) make(r, node->in[i]);
    ech_block_call call = ech_no_call;
    call.node = maker;
    call.recompute = true;
    r->made[value] = true;
    ECH_PUSH(r->out, call);
}

/* Whether a collective takes part in making the value. */
static bool is_fetched(const recompute *r, int value)
{
    int maker = r->maker[value];
    if (maker < 0) return false;
    const ech_node *node = &r->block->node.at[maker];
    bool fetched = node->layer->exchange.kind != ECH_COLLECTIVE_NONE;
    for (int i = 0; i < node->ins; i++) fetched |= is_fetched(r, node->in[i]);
    return fetched;
}

/* Recomputes what the call reads; if `fetched`, only what collectives fetch. */
static void make_for(recompute *r, const ech_block_call *call, ech_phase phase, bool fetched)
{
    if (call->node < 0) return;
    const ech_node *node = &r->block->node.at[call->node];
    unsigned reads = phase == ECH_BACKWARD_INPUT ? node->b.in : node->w.in;
    for (int i = 0; i < node->ins; i++) {
        int value = r->block->value.at[node->in[i]].recomputed;
        if (reads & 1u << i && value >= 0 && (!fetched || is_fetched(r, value))) make(r, value);
    }
}

/* The first call after `at` in which a layer computes, or n. Sums and collectives do not count: they hide no
 * message. */
static size_t next_layer(const ech_block *block, ech_phase phase, size_t at)
{
    size_t n = block->program[phase].n;
    const ech_block_call *calls = block->program[phase].at;
    do at++;
    while (at < n &&
           (calls[at].node < 0 || ech_call_exchange(block, &calls[at], phase, ECH_TRAIN)));
    return at;
}

/* Recomputes each value right before the call that reads it, while it is in cache; what a collective fetches one
 * layer earlier, so that the message arrives while that layer computes. */
static void insert(ech_block *block, ech_phase phase, const int *maker, bool *made)
{
    recompute r = {.block = block, .maker = maker, .made = made};
    size_t n = block->program[phase].n;
    const ech_block_call *from = block->program[phase].at;
    for (size_t i = 0; i < n; i++) {
        size_t next = next_layer(block, phase, i);
        make_for(&r, &from[i], phase, false);
        if (next < n) make_for(&r, &from[next], phase, true);
        ECH_PUSH(r.out, from[i]);
    }
    free(block->program[phase].at);
    block->program[phase] = r.out;
}

void ech_program_recompute(ech_block *block)
{
    ECH_FREED bool *made = ech_calloc(block->value.n, sizeof *made);
    ECH_FREED int *maker = ech_calloc(block->value.n, sizeof *maker);
    for (size_t v = 0; v < block->value.n; v++) maker[v] = -1;
    for (size_t n = 0; n < block->node.n; n++)
        if (block->node.at[n].recompute_only) maker[block->node.at[n].out[0]] = (int)n;
    insert(block, ECH_BACKWARD_INPUT, maker, made);
    insert(block, ECH_BACKWARD_WEIGHT, maker, made);
}

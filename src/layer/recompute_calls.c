/* SPDX-License-Identifier: Apache-2.0
 *
 * Where in a block's programs the nodes run that recompute values (recompute.c): in R, in their order; the others right
 * before their readers in B and W.
 */
#include <stdlib.h>

#include "base/status.h"
#include "layer/program.h"

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
    for (size_t n = 0; n < block->node.n; n++) {
        const ech_node *node = &block->node.at[n];
        ech_block_call call = ech_no_call;
        call.node = (int)n;
        call.recompute = true;
        if (node->in_phase)
            ECH_PUSH(block->program[ECH_RECOMPUTE], call);
        else if (node->recompute_only)
            maker[node->out[0]] = (int)n;
    }
    insert(block, ECH_BACKWARD_INPUT, maker, made);
    insert(block, ECH_BACKWARD_WEIGHT, maker, made);
}

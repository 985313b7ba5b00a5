/* SPDX-License-Identifier: Apache-2.0
 *
 * Where in a block's programs the recomputing nodes run (recompute.c): in R, in their order; the
 * others right before their readers in B and W. Nodes that both read come first in B, since parts
 * of W may run before B's reader.
 */
#include <stdlib.h>

#include "base/status.h"
#include "layer/program.h"

typedef struct recompute {
    ech_block *block;
    const int *maker; /* by value: the node that recomputes it in B or W; -1: none */
    bool *made;       /* by value: a call already makes it */
    ech_program out;
} recompute;

static void make(recompute *r, int value)
{
    value = ech_block_base(r->block, value);
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

/* True if a collective takes part in making the value. */
static bool is_fetched(const recompute *r, int value)
{
    int maker = r->maker[ech_block_base(r->block, value)];
    if (maker < 0) return false;
    const ech_node *node = &r->block->node.at[maker];
    bool fetched = node->layer->exchange.kind != ECH_COLLECTIVE_NONE;
    for (int i = 0; i < node->ins; i++) fetched |= is_fetched(r, node->in[i]);
    return fetched;
}

/* The values that B, or W, of the node reads instead of the forward's, or that a node reads which
 * recomputes values for a round; returns their number. */
static int list_reads(const recompute *r, int index, ech_phase phase, int reads[2 * ECH_MAX_PORTS])
{
    const ech_node *node = &r->block->node.at[index];
    const ech_reads *mask = phase == ECH_BACKWARD_INPUT ? &node->b : &node->w;
    int n = 0;
    for (int i = 0; i < node->ins && node->recompute_only; i++) reads[n++] = node->in[i];
    for (int i = 0; i < node->ins; i++)
        if (mask->in & 1u << i) reads[n++] = r->block->value.at[node->in[i]].recomputed;
    for (int i = 0; i < node->outs; i++)
        if (mask->out & 1u << i) reads[n++] = r->block->value.at[node->out[i]].recomputed;
    return n;
}

/* Recomputes what the call reads; if `fetched`, only results of collectives. */
static void make_for(recompute *r, const ech_block_call *call, ech_phase phase, bool fetched)
{
    int reads[2 * ECH_MAX_PORTS], n = call->node < 0 ? 0 : list_reads(r, call->node, phase, reads);
    for (int i = 0; i < n; i++)
        if (reads[i] >= 0 && (!fetched || is_fetched(r, reads[i]))) make(r, reads[i]);
}

/* The first call after `at` in which a layer computes, or n. Sums and collectives do not count:
 * they hide no message. */
static size_t next_layer(const ech_block *block, ech_phase phase, size_t at)
{
    size_t n = block->program[phase].n;
    const ech_block_call *calls = block->program[phase].at;
    do at++;
    while (at < n &&
           (calls[at].node < 0 || ech_call_exchange(block, &calls[at], phase, ECH_TRAIN)));
    return at;
}

/* After the values made already: recomputes each value right before the call that reads it, while
 * it is in cache; results of collectives one layer earlier, so that the message arrives while that
 * layer computes. */
static void insert(recompute *r, ech_phase phase)
{
    ech_block *block = r->block;
    size_t n = block->program[phase].n;
    const ech_block_call *from = block->program[phase].at;
    for (size_t i = 0; i < n; i++) {
        size_t next = next_layer(block, phase, i);
        make_for(r, &from[i], phase, false);
        if (next < n) make_for(r, &from[next], phase, true);
        ECH_PUSH(r->out, from[i]);
    }
    free(block->program[phase].at);
    block->program[phase] = r->out;
    r->out = (ech_program){0};
}

static void mark_made_of(const recompute *r, int value, bool *marked)
{
    if (value >= 0) value = ech_block_base(r->block, value);
    if (value < 0 || r->maker[value] < 0 || marked[value]) return;
    const ech_node *node = &r->block->node.at[r->maker[value]];
    marked[value] = true;
    for (int i = 0; i < node->ins; i++) mark_made_of(r, node->in[i], marked);
}

/* Marks recomputed values that the phase reads, with all their inputs. */
static void mark_reads(const recompute *r, ech_phase phase, bool *marked)
{
    const ech_program *program = &r->block->program[phase];
    int reads[2 * ECH_MAX_PORTS];
    for (size_t c = 0; c < program->n; c++) {
        int n = program->at[c].node < 0 ? 0 : list_reads(r, program->at[c].node, phase, reads);
        for (int i = 0; i < n; i++) mark_made_of(r, reads[i], marked);
    }
}

/* Begins the phase with the values of R that it reads: plans whose R makes them omit these
 * calls. */
static void make_doubled(recompute *r, ech_phase phase, const bool *reads)
{
    for (int v = 0; v < (int)r->block->value.n; v++)
        if (reads[v] && r->block->value.at[v].again) make(r, v);
    r->block->doubled[phase] = (int)r->out.n;
}

static void add_calls(recompute *r)
{
    size_t values = r->block->value.n;
    ECH_FREED bool *b = ech_calloc(values, sizeof *b), *w = ech_calloc(values, sizeof *w);
    mark_reads(r, ECH_BACKWARD_INPUT, b);
    mark_reads(r, ECH_BACKWARD_WEIGHT, w);
    make_doubled(r, ECH_BACKWARD_INPUT, b);
    for (size_t v = 0; v < values; v++)
        if (b[v] && w[v]) make(r, (int)v);
    r->block->shared = (int)r->out.n;
    insert(r, ECH_BACKWARD_INPUT);
    make_doubled(r, ECH_BACKWARD_WEIGHT, w);
    insert(r, ECH_BACKWARD_WEIGHT);
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
        else if (node->recompute_only && !node->round)
            maker[node->out[0]] = (int)n;
        for (int i = 0; node->in_phase && i < node->outs; i++)
            block->value.at[node->out[i]].again = true;
    }
    recompute r = {.block = block, .maker = maker, .made = made};
    add_calls(&r);
    for (size_t v = 0; v < block->value.n; v++) block->value.at[v].again |= made[v];
}

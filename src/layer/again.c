/* SPDX-License-Identifier: Apache-2.0
 *
 * Values that a backward reads and nobody keeps: who makes them again, and where in the programs.
 *
 * Chen et al. 2016, arXiv:1604.06174, drop the results of cheap operations and run these once more;
 * Korthikanti et al. 2022, arXiv:2205.05198, section 5, choose by what a value costs to make and to keep.
 * Here layers say it of themselves (ech_layer.cheap), and builders of what others have (gathered inputs, the
 * ring's keys and values). The same kernel makes the same bits.
 */
#include <stdlib.h>

#include "base/status.h"
#include "layer/program.h"

/* ---- what cheap layers make ---- */

/* Whether B or W of some node, or what is made again for them, reads the value. */
static bool is_read_back(const ech_block *block, int value)
{
    for (size_t n = 0; n < block->node.n; n++) {
        const ech_node *node = &block->node.at[n];
        unsigned reads = node->only_again ? ~0u : node->b.in | node->w.in;
        for (int i = 0; i < node->ins; i++)
            if (reads & 1u << i && node->in[i] == value && block->value.at[value].again < 0)
                return true;
    }
    return false;
}

static int same_again(ech_block *block, int value)
{
    ech_block_value again = block->value.at[value];
    again.name = ech_pool_format(block->pool, "%s again", again.name);
    ECH_PUSH(block->value, again);
    return (int)block->value.n - 1;
}

/* The node once more, for the backward. What it keeps besides is made again as well, and read by nobody. */
static void add_again(ech_block *block, size_t index)
{
    ech_node node = block->node.at[index];
    ECH_ASSERT(node.outs == 1);
    int value = node.out[0], again = same_again(block, value);
    for (int i = 0; i < node.keeps; i++) node.keep[i] = same_again(block, node.keep[i]);
    node.out[0] = again;
    node.b = node.w = (ech_reads){0};
    ECH_PUSH(block->node, node);
    ech_block_make_again(block, value, again);
}

/* With weights that are not those of the forward it would be something that no forward has made. */
static bool can_be_made(const ech_block *block, const ech_node *node)
{
    return node->layer->cheap && !(block->ways.drifts && node->params > 0);
}

void ech_program_keep_less(ech_block *block)
{
    for (size_t n = 0, own = block->node.n; n < own; n++)
        if (can_be_made(block, &block->node.at[n]) && is_read_back(block, block->node.at[n].out[0]))
            add_again(block, n);
    for (size_t n = 0; n < block->node.n; n++) {
        ech_node *node = &block->node.at[n];
        for (int i = 0; node->only_again && i < node->ins; i++)
            node->in[i] = ech_block_again(block, node->in[i]);
    }
}

/* ---- where ---- */

typedef ECH_LIST(ech_block_call) call_list;

typedef struct again {
    const ech_block *block;
    bool *made; /* by value */
    call_list out;
} again;

/* The node that makes the value, which only the backward needs. */
static int maker_of(const ech_block *block, int value)
{
    for (int i = 0; i < (int)block->node.n; i++)
        if (block->node.at[i].only_again && block->node.at[i].out[0] == value) return i;
    return -1;
}

static void make(again *a, int value)
{
    int maker = maker_of(a->block, value);
    if (maker < 0 || a->made[value]) return;
    const ech_node *node = &a->block->node.at[maker];
    for (int i = 0; i < node->ins; i++) make(a, node->in[i]);
    ech_block_call call = ech_no_call;
    call.node = maker;
    call.again = true;
    a->made[value] = true;
    ECH_PUSH(a->out, call);
}

/* Whether a collective takes part in making the value. */
static bool is_fetched(const ech_block *block, int value)
{
    int maker = maker_of(block, value);
    if (maker < 0) return false;
    const ech_node *node = &block->node.at[maker];
    bool fetched = node->layer->exchange.kind != ECH_COLLECTIVE_NONE;
    for (int i = 0; i < node->ins; i++) fetched |= is_fetched(block, node->in[i]);
    return fetched;
}

/* What the call reads; of that what is fetched only. */
static void make_for(again *a, const ech_block_call *call, ech_phase phase, bool fetched)
{
    if (call->node < 0) return;
    const ech_node *node = &a->block->node.at[call->node];
    unsigned reads = phase == ECH_BACKWARD_INPUT ? node->b.in : node->w.in;
    for (int i = 0; i < node->ins; i++) {
        int value = a->block->value.at[node->in[i]].again;
        if (reads & 1u << i && value >= 0 && (!fetched || is_fetched(a->block, value)))
            make(a, value);
    }
}

/* The call behind `at` that a layer computes, or n: sums and collectives take no time that something could
 * arrive in. */
static size_t next_layer(const ech_block *block, ech_phase phase, size_t at)
{
    size_t n = block->program[phase].n;
    const ech_block_call *calls = block->program[phase].at;
    do at++;
    while (at < n &&
           (calls[at].node < 0 || ech_call_exchange(block, &calls[at], phase, ECH_TRAIN)));
    return at;
}

/* Right before who reads them, while they are in cache; what is fetched one layer ahead of that, so that it
 * can arrive in the meantime. */
static void insert(ech_block *block, ech_phase phase, bool *made)
{
    again a = {.block = block, .made = made};
    size_t n = block->program[phase].n;
    const ech_block_call *from = block->program[phase].at;
    for (size_t i = 0; i < n; i++) {
        size_t next = next_layer(block, phase, i);
        make_for(&a, &from[i], phase, false);
        if (next < n) make_for(&a, &from[next], phase, true);
        ECH_PUSH(a.out, from[i]);
    }
    free(block->program[phase].at);
    block->program[phase].at = a.out.at;
    block->program[phase].n = a.out.n;
    block->program[phase].capacity = a.out.capacity;
}

void ech_program_make_again(ech_block *block)
{
    bool *made = ech_calloc(block->value.n, sizeof *made);
    insert(block, ECH_BACKWARD_INPUT, made);
    insert(block, ECH_BACKWARD_WEIGHT, made);
    free(made);
}

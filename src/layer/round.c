/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds: nodes that a forward runs several times over parts of data-dependent size, keeping only
 * the first part's values. B recomputes one round, runs B and W of it, and continues with the round
 * before, so only one of them needs memory at a time (activation recomputation: Chen et al. 2016,
 * arXiv:1604.06174).
 */
#include "base/status.h"
#include "layer/program.h"

void ech_block_begin_round(ech_block *block)
{
    block->rounds++;
    block->first_of_round = (int)block->node.n;
}

/* Adds a copy of the node, which recomputes its output for the round's B. */
static void make_again(ech_block *block, int n)
{
    ech_node node = block->node.at[n];
    ECH_ASSERT(node.outs == 1 && node.keeps == 0);
    int value = node.out[0];
    ech_block_value made = block->value.at[value];
    made.name = ech_pool_format(block->pool, "%s again", made.name);
    made.again = true;
    for (int i = 0; i < node.ins; i++) node.in[i] = ech_block_backward_value(block, node.in[i]);
    node.out[0] = (int)block->value.n;
    node.b = node.w = (ech_reads){0};
    node.recompute_only = true;
    node.round = block->rounds;
    ECH_PUSH(block->value, made);
    ECH_PUSH(block->node, node);
    block->value.at[value].kept = ECH_KEPT_RECOMPUTED;
    block->value.at[value].recomputed = node.out[0];
}

/* True if B of a node of the round, or a node that is needed itself, reads what node n makes. */
static bool is_read(const ech_block *block, const bool *needed, int n, int end)
{
    int value = block->node.at[n].out[0];
    bool read = false;
    for (int m = n; m < end; m++) {
        const ech_node *node = &block->node.at[m];
        unsigned reads = needed[m] ? ~0u : node->b.in;
        ECH_ASSERT(!node->w.in && !node->b.out);
        for (int i = 0; i < node->ins; i++) read |= node->in[i] == value && reads & 1u << i;
    }
    return read;
}

static int maker_of(const ech_block *block, int value)
{
    int n = 0;
    while (block->node.at[n].outs < 1 || block->node.at[n].out[0] != value) n++;
    return n;
}

void ech_block_end_round(ech_block *block, int also)
{
    int first = block->first_of_round, end = (int)block->node.n;
    ECH_FREED bool *needed = ech_calloc((size_t)end, sizeof *needed);
    for (int n = end - 1; n >= first; n--) {
        block->node.at[n].round = block->rounds;
        needed[n] = is_read(block, needed, n, end);
    }
    if (also >= 0) make_again(block, maker_of(block, also));
    for (int n = first; n < end; n++)
        if (needed[n]) make_again(block, n);
}

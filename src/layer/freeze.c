/* SPDX-License-Identifier: Apache-2.0
 *
 * Frozen parameters: which nodes of a block have a backward. A value is trained if a trained
 * parameter, or a trained input of the block, takes part in it. Only trained values need gradients.
 * So the backward ends at the lowest trained parameter, and frozen parameters have no W.
 */
#include "base/status.h"
#include "layer/program.h"

/* Marks the node, and what it makes. Returns true if something changed. */
static bool mark(ech_block *block, ech_node *node, const ech_param *params)
{
    bool before = node->back || node->trains, in = false;
    for (int i = 0; i < node->params; i++) {
        bool trained = ech_param_is_trained(&params[node->param[i]]);
        if (!trained) node->frozen |= 1u << i;
        node->trains |= trained && !(node->frozen & 1u << i);
    }
    for (int i = 0; i < node->ins; i++)
        in |= block->value.at[ech_block_base(block, node->in[i])].trains;
    node->back = in;
    if (!in && !node->trains) return false;
    for (int i = 0; i < node->outs; i++)
        block->value.at[ech_block_base(block, node->out[i])].trains = true;
    return !before;
}

void ech_program_freeze(ech_block *block, const ech_param *params)
{
    block->trains = false;
    for (size_t i = 0; i < block->input.n; i++)
        block->value.at[block->input.at[i]].trains = !block->frozen_below;
    /* Again, since nodes of rounds work on values of later nodes in place. */
    for (bool more = true; more;) {
        more = false;
        for (size_t n = 0; n < block->node.n; n++) more |= mark(block, &block->node.at[n], params);
    }
    for (size_t n = 0; n < block->node.n; n++) {
        ech_node *node = &block->node.at[n];
        block->trains |= node->back || node->trains;
        if (!node->trains) node->w = (ech_reads){0};
        if (!node->back && !(node->trains && node->layer->finishes_in_b)) node->b = (ech_reads){0};
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation recomputation: values that the backward reads but the forward does not save are
 * recomputed. Chen et al. 2016, arXiv:1604.06174, drop the results of cheap operations and run
 * these operations a second time, or keep only the inputs of segments; Korthikanti et al. 2022,
 * arXiv:2205.05198, section 5, choose by compute and memory. A recomputed value has the same bits,
 * since the same kernel computes it.
 *
 * Values that layers declare (ech_layer.cheap) and builders choose (results of collectives) are
 * recomputed right before their reader in B or W. Values that the run file selects
 * (memory.recompute) are recomputed by R, a separate program that needs no gradient. It is found by
 * walking back from the reads of B and W to kept values. If R needs the output of a cheap layer, B
 * and W read R's result, so no layer runs more than twice.
 *
 * A reversible block's inputs follow from its outputs (Gomez et al. 2017, arXiv:1707.04585; Kitaev
 * et al. 2020, arXiv:2001.04451): y1 = x1 + F(x2), y2 = x2 + G(y1), so x2 = y2 - G(y1), x1 = y1 -
 * F(x2). The walk then ends at the outputs, and an input is found by the inverse of the residual
 * sum that has added to it (ech_layer.inverse).
 */
#include <stdlib.h>

#include "base/status.h"
#include "config/config.h"
#include "layer/layers.h"
#include "layer/program.h"

/* ---- right before the reader ---- */

/* Inputs that the node's B and W read, or the node itself if it is recomputed for them. */
static unsigned inputs_read_back(const ech_node *node)
{
    return node->recompute_only ? ~0u : node->b.in | node->w.in;
}

/* True if some node's B or W, or a node that is recomputed right before them, reads the value. */
static bool is_read_back(const ech_block *block, int value)
{
    for (size_t n = 0; n < block->node.n; n++) {
        const ech_node *node = &block->node.at[n];
        if (node->in_phase) continue;
        for (int i = 0; i < node->ins; i++)
            if (inputs_read_back(node) & 1u << i && node->in[i] == value) return true;
        for (int i = 0; i < node->outs; i++)
            if ((node->b.out | node->w.out) & 1u << i && node->out[i] == value) return true;
    }
    return false;
}

/* `by`: the recomputing program. */
static int copy_value(ech_block *block, int value, const char *by)
{
    ech_block_value recomputed = block->value.at[value];
    recomputed.name = ech_pool_format(block->pool, "%s recomputed%s", recomputed.name, by);
    recomputed.kept = ECH_KEPT_STORED;
    recomputed.recomputed = -1;
    ECH_PUSH(block->value, recomputed);
    return (int)block->value.n - 1;
}

/* Adds a copy of the node for the backward, whose output is R's value or a value of its own. It
 * also recomputes what the node saves, which is not read. */
static void add_recompute(ech_block *block, int index)
{
    ech_node node = block->node.at[index];
    ECH_ASSERT(ech_node_makes_one(block, &node));
    node.outs = 1;
    int value = node.out[0], recomputed = block->value.at[value].recomputed;
    if (recomputed < 0) recomputed = copy_value(block, value, "");
    for (int i = 0; i < node.keeps; i++) node.keep[i] = copy_value(block, node.keep[i], "");
    node.out[0] = recomputed;
    node.b = node.w = (ech_reads){0};
    ECH_PUSH(block->node, node);
    ech_block_set_recompute(block, value, recomputed);
}

/* True if the backward makes the node's output from a decoded value. R's own output then has other
 * numbers, and is not what B and W read. */
static bool follows_code(const ech_block *block, const ech_node *node)
{
    bool follows = false;
    if (!ech_node_is_cheap(block, node) || ech_block_is_encoded(block, node->out[0])) return false;
    for (int i = 0; i < node->ins; i++) {
        follows |= ech_block_is_encoded(block, node->in[i]);
        for (size_t n = 0; n < block->node.n && !follows; n++) {
            const ech_node *before = &block->node.at[n];
            follows = !before->recompute_only && ech_node_makes_one(block, before) &&
                      before != node && before->out[0] == node->in[i] &&
                      follows_code(block, before);
        }
    }
    return follows;
}

/* Values that read other recomputed values come first. */
static void keep_less_of_cheap(ech_block *block, int own)
{
    for (int n = own - 1; n >= 0; n--) {
        const ech_node *node = &block->node.at[n];
        bool made = node->made_by_r && !follows_code(block, node);
        if (ech_node_is_cheap(block, node) && !made && !node->round && !node->recompute_only &&
            !ech_block_is_encoded(block, node->out[0]) && is_read_back(block, node->out[0]))
            add_recompute(block, n);
    }
}

/* ---- R ---- */

enum { UNSEEN = -1 };

/* R's replacements of the forward's values, and the nodes that make them. */
typedef struct again {
    ech_block *block;
    int own;    /* nodes of the forward and of B and W */
    int *value; /* by the forward's value: R's; itself if it is kept; UNSEEN: not needed so far */
    bool *needed;   /* by node */
    bool *inverted; /* by node: its inverse is needed */
} again;

/* True if R recomputes all of its block. */
static bool makes_all(const ech_block *block)
{
    return block->options.invert || block->options.recompute == ECH_RECOMPUTE_FULL;
}

/* True if the node's forward writes to the value's memory. */
static bool makes(const ech_node *node, const ech_block *block, int base)
{
    bool found = false;
    for (int i = 0; i < node->outs; i++) found |= ech_block_base(block, node->out[i]) == base;
    for (int i = 0; i < node->keeps; i++) found |= node->keep[i] == base;
    return found && (node->layer->forward || node->layer->exchange.kind);
}

static bool is_made_by_core(const ech_block *block, int value)
{
    bool core = false;
    for (size_t n = 0; n < block->node.n; n++)
        core |= block->node.at[n].layer->core && makes(&block->node.at[n], block, value);
    return core;
}

/* True if the value exists when R begins, or is made by its reader. A code is kept unless R makes
 * the value that it encodes. */
static bool is_kept(const ech_block *block, int value)
{
    const ech_block_value *v = &block->value.at[value];
    bool all = makes_all(block), made = v->source == ECH_FROM_NODE;
    if ((v->role != ECH_ROLE_ACTIVATION && v->role != ECH_ROLE_TABLE) || v->cached || v->stays)
        return true;
    for (size_t n = 0; n < block->node.n && made; n++) {
        const ech_node *node = &block->node.at[n];
        if (makes(node, block, value) && node->layer->encodes)
            return !all && !is_made_by_core(block, ech_block_base(block, node->in[0]));
        if (makes(node, block, value))
            return node->recompute_only ||
                   !(all || node->layer->core ||
                     (ech_node_is_cheap(block, node) && node->out[0] == value));
    }
    return !all;
}

static void need(again *a, int value);

/* Marks all nodes that write to the value's memory, including in-place ones, and their inputs. */
static void need_makers(again *a, int base)
{
    for (int n = 0; n < a->own; n++) {
        if (a->needed[n] || !makes(&a->block->node.at[n], a->block, base)) continue;
        a->needed[n] = true;
        ech_node node = a->block->node.at[n];
        for (int i = 0; i < node.ins; i++)
            if (!(node.cached & 1u << i)) need(a, node.in[i]);
        for (int i = 0; i < node.outs; i++) need(a, node.out[i]);
        for (int i = 0; i < node.keeps; i++) need(a, node.keep[i]);
    }
}

/* Computes an input by the inverse of the residual sum that adds to it. */
static void need_inverse(again *a, int value)
{
    int n = 0;
    while (n < a->own &&
           !(a->block->node.at[n].layer->inverse && a->block->node.at[n].in[0] == value))
        n++;
    ECH_ASSERT(n < a->own);
    a->needed[n] = a->inverted[n] = true;
    need(a, a->block->node.at[n].out[0]);
    need(a, a->block->node.at[n].in[1]);
}

static bool is_output(const ech_block *block, int value)
{
    bool found = false;
    for (size_t i = 0; i < block->output.n; i++) found |= block->output.at[i] == value;
    return found;
}

static void need(again *a, int value)
{
    int base = ech_block_base(a->block, value);
    if (a->value[value] != UNSEEN) return;
    if (base != value) need(a, base);
    if (base != value ? a->value[base] == base : is_kept(a->block, value)) {
        a->value[value] = value;
        return;
    }
    int made = a->value[value] = copy_value(a->block, value, " by R");
    ech_block_value *copy = &a->block->value.at[made];
    bool input = copy->source == ECH_FROM_BLOCK, inverts = a->block->options.invert;
    copy->base = base == value ? -1 : a->value[base];
    if (inverts && is_output(a->block, value)) {
        copy->source = ECH_FROM_BLOCK;
    } else if (inverts && input) {
        copy->source = ECH_FROM_NODE;
        need_inverse(a, value);
    } else if (base == value) {
        need_makers(a, base);
    }
}

/* Marks what B or W reads: for the result of a cheap layer that is recomputed right before, its
 * inputs. */
static void need_read(again *a, int value)
{
    if (a->block->value.at[value].recomputed >= 0) return;
    for (int n = 0; n < a->own; n++) {
        ech_node node = a->block->node.at[n];
        if (!ech_node_is_cheap(a->block, &node) || node.out[0] != value) continue;
        for (int i = 0; i < node.ins; i++) need_read(a, node.in[i]);
        return;
    }
    need(a, value);
}

/* Marks what B and W, and the nodes recomputed right before them, read of the forward's values. */
static void need_reads(again *a)
{
    for (int n = 0; n < a->own; n++) {
        ech_node node = a->block->node.at[n];
        unsigned in = inputs_read_back(&node), out = node.b.out | node.w.out;
        unsigned keep = node.b.keep | node.w.keep;
        for (int i = 0; i < node.ins; i++)
            if (in & 1u << i) need_read(a, node.in[i]);
        for (int i = 0; i < node.outs; i++)
            if (out & 1u << i) need_read(a, node.out[i]);
        for (int i = 0; i < node.keeps; i++)
            if (keep & 1u << i) need(a, node.keep[i]);
    }
}

/* True if a node that is not copied yet makes what node n reads. */
static bool is_waited_for(const again *a, const bool *copied, int n, int value)
{
    int base = ech_block_base(a->block, value);
    for (int m = 0; m < a->own; m++) {
        const ech_node *node = &a->block->node.at[m];
        if (m == n || !a->needed[m] || copied[m]) continue;
        if (a->inverted[m] ? node->in[0] == base : m < n && makes(node, a->block, base))
            return true;
    }
    return false;
}

static bool is_ready(const again *a, const bool *copied, int n)
{
    const ech_node *node = &a->block->node.at[n];
    bool ready = true;
    for (int i = a->inverted[n]; i < node->ins; i++)
        ready &= !is_waited_for(a, copied, n, node->in[i]);
    return ready;
}

/* The inverse of a residual sum: computes the input from its output and the addend. */
static void invert(ech_node *node)
{
    int input = node->in[0];
    node->in[0] = node->out[0];
    node->out[0] = input;
    node->layer = node->layer->inverse;
}

/* Copies the needed nodes in the forward's order, as soon as their inputs are made: the attention
 * part of a reversible block after the MLP part. */
static bool copy_ready(again *a, bool *copied)
{
    bool some = false;
    for (int n = 0; n < a->own; n++) {
        if (!a->needed[n] || copied[n] || !is_ready(a, copied, n)) continue;
        ech_node node = a->block->node.at[n];
        if (a->inverted[n]) invert(&node);
        for (int i = 0; i < node.ins; i++)
            node.in[i] = node.cached & 1u << i ? -1 : a->value[node.in[i]];
        for (int i = 0; i < node.outs; i++) node.out[i] = a->value[node.out[i]];
        for (int i = 0; i < node.keeps; i++) node.keep[i] = a->value[node.keep[i]];
        node.b = node.w = (ech_reads){0};
        node.recompute_only = node.in_phase = copied[n] = some = true;
        node.round = 0;
        ECH_PUSH(a->block->node, node);
    }
    return some;
}

static void copy_needed(again *a, bool *copied)
{
    while (copy_ready(a, copied)) continue;
    for (int n = 0; n < a->own; n++) ECH_ASSERT(copied[n] || !a->needed[n]);
}

/* Under tensor parallelism every rank has the whole input; each keeps a shard of it, and R gathers
 * them first. */
static void shard_input(ech_block *block, int input, int whole)
{
    ech_block_value shard = block->value.at[input];
    int64_t row = shard.shape.size[shard.shape.dims - 1];
    ECH_ASSERT(shard.shape.dims == 3);
    shard.name = ech_pool_format(block->pool, "%s sharded", shard.name);
    shard.shape = ech_shape_1d(ECH_AXIS_SHARD, row);
    shard.source = ECH_FROM_NODE;
    shard.kept = ECH_KEPT_SHARDED;
    shard.recomputed = -1; /* the input may be decoded for the backward; its shard is not */
    ECH_PUSH(block->value, shard);
    int kept = (int)block->value.n - 1;
    ech_node *node = ech_block_node(block, &ech_layer_row_keep_shard, NULL, 0);
    node->purposes = 1u << ECH_TRAIN;
    ech_node_in(node, input);
    ech_node_out_in_place(node, kept);
    node = ech_block_node(block, &ech_layer_row_gather_kept, NULL, 0);
    node->recompute_only = node->in_phase = true;
    ech_node_in(node, kept);
    ech_node_out_in_place(node, whole);
    block->value.at[whole].source = ECH_FROM_NODE;
    block->sharded++;
}

static void add_inputs(again *a)
{
    ech_block *block = a->block;
    const ech_sharding *sharding = &block->options.sharding;
    for (size_t i = 0; i < block->input.n; i++) {
        int input = block->input.at[i];
        need(a, input);
        ECH_PUSH(block->rinput, a->value[input]);
        if (sharding->tensor > 1 && !sharding->sequence && !block->options.invert)
            shard_input(block, input, a->value[input]);
    }
}

static void add_outputs(again *a, bool *copied)
{
    ech_block *block = a->block;
    for (size_t i = 0; i < block->output.n; i++) {
        need(a, block->output.at[i]);
        ECH_PUSH(block->routput, a->value[block->output.at[i]]);
    }
    copy_needed(a, copied);
}

static bool is_made_from_code(const ech_block *block, int value)
{
    bool found = false;
    for (size_t n = 0; n < block->node.n; n++) {
        const ech_node *node = &block->node.at[n];
        found |= !node->recompute_only && ech_node_makes_one(block, node) &&
                 node->out[0] == value && follows_code(block, node);
    }
    return found;
}

/* Makes the backward read R's values. */
static void replace(ech_block *block, const int *made, size_t values)
{
    for (size_t v = 0; v < values; v++) {
        ech_block_value *value = &block->value.at[v];
        if (is_made_from_code(block, (int)v)) continue;
        if (made[v] == UNSEEN || made[v] == (int)v || value->recomputed >= 0) continue;
        value->kept = ECH_KEPT_RECOMPUTED;
        value->recomputed = made[v];
    }
}

static void add_recompute_phase(ech_block *block)
{
    bool all = makes_all(block), inverts = block->options.invert;
    size_t values = block->value.n;
    again a = {.block = block,
               .own = (int)block->node.n,
               .value = ech_calloc(values, sizeof *a.value),
               .needed = ech_calloc(block->node.n, sizeof *a.needed),
               .inverted = ech_calloc(block->node.n, sizeof *a.inverted)};
    ECH_FREED bool *copied = ech_calloc(block->node.n, sizeof *copied);
    for (size_t v = 0; v < values; v++) a.value[v] = UNSEEN;
    if (all && !inverts) add_inputs(&a);
    need_reads(&a);
    copy_needed(&a, copied);
    for (int n = 0; n < a.own; n++) block->node.at[n].made_by_r = copied[n];
    block->needed = (int)block->node.n - a.own - block->sharded;
    if (all && inverts) add_inputs(&a);
    if (all) add_outputs(&a, copied);
    replace(block, a.value, values);
    free(a.value);
    free(a.needed);
    free(a.inverted);
}

void ech_program_keep_less(ech_block *block)
{
    bool crossed = block->input.n > 0 && block->output.n > 0;
    bool recomputes = block->options.recompute != ECH_RECOMPUTE_NONE || block->options.invert;
    int own = (int)block->node.n;
    if (crossed && recomputes && block->trains) add_recompute_phase(block);
    keep_less_of_cheap(block, own);
    for (size_t n = 0; n < block->node.n; n++) {
        ech_node *node = &block->node.at[n];
        for (int i = 0; node->recompute_only && !node->in_phase && i < node->ins; i++)
            node->in[i] = ech_block_backward_value(block, node->in[i]);
    }
}

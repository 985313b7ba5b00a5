/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kept values are encoded (Gist, Jain et al. 2018). Each reader in B or W says what it needs
 * (ech_need), and a value needs what its most demanding reader does. A cheap layer reads its input
 * to recompute its output, so the input needs what the output does. The output of a ReLU is not
 * recomputed: it is often 0, so it is kept itself, and of the input only the signs are. Pools of a
 * ReLU's output have many zeros, too, also as the next block's input.
 *
 * Nodes that encode and decode are part of the graph before R is derived. R therefore encodes what
 * it recomputes, and the backward reads the same numbers with every choice of recomputation.
 */
#include "config/config.h"
#include "layer/layers.h"
#include "layer/program.h"

static ech_need most(ech_need a, ech_need b)
{
    return a < b ? a : b;
}

/* The bits of memory.encode's codes of numbers; 0: there are none. */
static int bits_of(const ech_block *block)
{
    int encode = block->options.encode;
    return encode == ECH_ENCODE_FP16   ? 16
           : encode == ECH_ENCODE_FP10 ? 10
           : encode == ECH_ENCODE_FP8  ? 8
                                       : 0;
}

static bool has_sparse(const ech_block *block)
{
    return block->options.encode == ECH_ENCODE_LOSSLESS && block->options.encode_density < 1;
}

static ech_need needs_in(const ech_block *block, const ech_node *node)
{
    bool is_norm = node->layer->needs_in == ECH_NEED_10_BITS;
    return is_norm && !block->options.encode_norms ? ECH_NEED_VALUE : node->layer->needs_in;
}

static ech_kept code_of(const ech_block *block, int value);
static ech_need need_of(const ech_block *block, int value);

/* What the forward of a node needs of its inputs when it runs again for the backward. */
static ech_need need_again(const ech_block *block, const ech_node *node, int out)
{
    ech_need need = need_of(block, out);
    if (node->layer->exchange.kind != ECH_COLLECTIVE_NONE) return need;
    ech_need own = needs_in(block, node);
    if (need == ECH_NEED_NOTHING) return need;
    return most(most(need, ECH_NEED_8_BITS), own);
}

/* The forward's value that B and W read as `recomputed`; -1: none. */
static int replaced_by(const ech_block *block, int recomputed)
{
    for (size_t v = 0; v < block->value.n; v++)
        if (block->value.at[v].recomputed == recomputed) return (int)v;
    return -1;
}

/* What the node's recomputation, B and W need of its input i. */
static ech_need need_of_input(const ech_block *block, const ech_node *node, int i)
{
    if (node->round) return ECH_NEED_VALUE;
    if (node->recompute_only) {
        int value = replaced_by(block, node->out[0]);
        return value < 0 ? ECH_NEED_VALUE : need_again(block, node, value);
    }
    bool reads = (node->b.in | node->w.in) & 1u << i;
    bool moves = node->layer->exchange.kind != ECH_COLLECTIVE_NONE && node->out[0] != node->in[i];
    ech_need need = reads ? needs_in(block, node) : ECH_NEED_NOTHING;
    if (moves && i == 0) need = most(need, need_of(block, node->out[0])); /* the same numbers */
    if (ech_node_is_cheap(block, node) && code_of(block, node->out[0]) == ECH_KEPT_STORED)
        need = most(need, need_again(block, node, node->out[0]));
    return need;
}

/* A value with views needs what they do. */
static ech_need need_of(const ech_block *block, int value)
{
    ech_need need = ECH_NEED_NOTHING;
    for (size_t v = 0; v < block->value.n; v++)
        if (block->value.at[v].base == value) need = most(need, need_of(block, (int)v));
    for (size_t n = 0; n < block->node.n; n++) {
        const ech_node *node = &block->node.at[n];
        for (int i = 0; i < node->ins; i++)
            if (node->in[i] == value) need = most(need, need_of_input(block, node, i));
        for (int i = 0; i < node->outs && !node->recompute_only; i++)
            if (node->out[i] == value && (node->b.out | node->w.out) & 1u << i)
                need = most(need, node->layer->needs_out);
        for (int i = 0; i < node->keeps && !node->recompute_only; i++)
            if (node->keep[i] == value) need = ECH_NEED_VALUE;
    }
    return need;
}

/* The first node of the forward that writes the value; NULL: it is an input. */
static const ech_node *maker_of(const ech_block *block, int value)
{
    for (size_t n = 0; n < block->node.n; n++)
        for (int i = 0; i < block->node.at[n].outs; i++)
            if (block->node.at[n].out[i] == value && !block->node.at[n].recompute_only)
                return &block->node.at[n];
    return NULL;
}

/* True for activations with memory of their own, one row per token. */
static bool has_rows(const ech_block *block, int value)
{
    const ech_block_value *v = &block->value.at[value];
    bool rows = (v->shape.axis[0] == ECH_AXIS_ROWS && v->shape.dims > 1) ||
                (v->shape.axis[0] == ECH_AXIS_BATCH && v->shape.dims > 2);
    return rows && v->role == ECH_ROLE_ACTIVATION && v->base < 0 && !v->cached &&
           v->recomputed < 0 && v->type != ECH_TYPE_FIXED;
}

static bool is_relu(const ech_node *node)
{
    return node && node->layer->cheap && node->layer->needs_in == ECH_NEED_SIGN;
}

bool ech_block_has_zeros(const ech_block *block, int value)
{
    const ech_node *maker = maker_of(block, value);
    if (!maker || is_relu(maker)) return maker || block->value.at[value].zeros;
    return maker->layer->keeps_zeros && ech_block_has_zeros(block, maker->in[0]);
}

/* True if the node is a ReLU that alone reads its input 0. Then its output is kept itself, not
 * recomputed. If its input is recomputed (a norm's output), so is the output: nothing more is kept
 * than what the norm's B reads. Without a code for its output a ReLU is a cheap layer as any. */
static bool is_rectifier(const ech_block *block, const ech_node *node)
{
    if (!is_relu(node) || !(has_sparse(block) || bits_of(block))) return false;
    const ech_node *before = maker_of(block, node->in[0]);
    if (before && ech_node_is_cheap(block, before)) return false;
    int readers = 0;
    for (size_t v = 0; v < block->value.n; v++) readers += block->value.at[v].base == node->in[0];
    for (size_t n = 0; n < block->node.n; n++)
        for (int i = 0; i < block->node.at[n].ins; i++)
            readers += block->node.at[n].in[i] == node->in[0];
    return readers == 1 && has_rows(block, node->in[0]);
}

/* How the value is kept: STORED, or a row that encodes it. */
static ech_kept code_of(const ech_block *block, int value)
{
    const ech_node *maker = maker_of(block, value);
    int bits = bits_of(block);
    bool rows = has_rows(block, value), places = block->value.at[value].places;
    if (!rows && !places) return ECH_KEPT_STORED;
    ech_need need = need_of(block, value);
    if (need == ECH_NEED_NOTHING) return ECH_KEPT_STORED;
    if (places) return ECH_KEPT_PLACES;
    bool rectified = is_rectifier(block, maker);
    if (maker && !rectified && ech_node_is_cheap(block, maker)) return ECH_KEPT_STORED;
    if (need == ECH_NEED_SIGN) return ECH_KEPT_BITS;
    if (!bits)
        return has_sparse(block) && ech_block_has_zeros(block, value) ? ECH_KEPT_SPARSE
                                                                      : ECH_KEPT_STORED;
    /* A gathered value has the numbers of its shards. */
    while (maker && maker->layer->exchange.kind != ECH_COLLECTIVE_NONE)
        maker = maker_of(block, maker->in[0]);
    if (maker && !rectified && ech_node_is_cheap(block, maker)) return ECH_KEPT_STORED;
    bool enough = need >= (bits == 8 ? ECH_NEED_8_BITS : ECH_NEED_10_BITS);
    return enough ? ECH_KEPT_NARROW : ECH_KEPT_STORED;
}

static bool is_decoder(const ech_node *node)
{
    return node->layer == &ech_layer_row_decode_bits ||
           node->layer == &ech_layer_row_decode_sparse ||
           node->layer == &ech_layer_row_decode_places ||
           node->layer == &ech_layer_row_decode_narrow;
}

bool ech_block_is_encoded(const ech_block *block, int value)
{
    int decoded = block->value.at[value].recomputed;
    if (decoded >= 0) decoded = ech_block_base(block, decoded);
    bool found = false;
    for (size_t n = 0; n < block->node.n && decoded >= 0; n++)
        found |= is_decoder(&block->node.at[n]) && block->node.at[n].out[0] == decoded;
    return found;
}

void ech_program_encode(ech_block *block)
{
    size_t values = block->value.n;
    if (block->options.encode == ECH_ENCODE_NONE || !block->trains) return;
    ECH_FREED ech_kept *code = ech_calloc(values, sizeof *code);
    for (size_t v = 0; v < values; v++) code[v] = code_of(block, (int)v);
    for (size_t v = 0; v < values; v++) {
        if (code[v] == ECH_KEPT_BITS) ech_block_encode_bits(block, (int)v);
        if (code[v] == ECH_KEPT_SPARSE) ech_block_encode_sparse(block, (int)v);
        if (code[v] == ECH_KEPT_PLACES) ech_block_encode_places(block, (int)v);
        if (code[v] == ECH_KEPT_NARROW) ech_block_encode_narrow(block, (int)v, bits_of(block));
    }
}

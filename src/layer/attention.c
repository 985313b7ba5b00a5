/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention with grouped keys and values. Keeps the output and one number a row (log sum
 * exp); probabilities are computed again in B. Dao et al. 2022, arXiv:2205.14135; grouped queries:
 * Ainslie et al. 2023, arXiv:2305.13245.
 */
#include <math.h>

#include "layer/layers.h"

typedef struct attention_options {
    double p, scale;
    int64_t H, G, D;
} attention_options;

int ech_layer_attention(ech_block *block, int q, int k, int v, double p)
{
    const ech_shape *query = &block->value.at[q].shape, *key = &block->value.at[k].shape;
    attention_options options = {.p = p,
                                 .scale = 1 / sqrt((double)query->size[3]),
                                 .H = query->size[2],
                                 .G = key->size[2],
                                 .D = query->size[3]};
    ech_shape out = *query;
    ech_node *node = ech_block_node(block, &ech_layer_row_attention, &options, sizeof options);
    ech_node_in(node, q);
    ech_node_in(node, k);
    ech_node_in(node, v);
    ech_shape lse = {.dims = 3,
                     .axis = {ECH_AXIS_BATCH, ECH_AXIS_HEADS, ECH_AXIS_TOKENS},
                     .size = {0, options.H, 0}};
    ech_node_keep(block, node, "lse", lse);
    node->b = (ech_reads){.in = 7, .out = 1, .keep = 1};
    return ech_node_out(block, node, "out", out);
}

static void forward(const ech_call *call)
{
    const attention_options *options = call->node->options;
    ech_dropout dropout = ech_call_dropout(call, options->p, ECH_SITE_ATTENTION);
    call->kernels->attention_forward(call->context, &call->in[0], &call->in[1], &call->in[2],
                                     options->scale, &dropout, &call->out[0], &call->keep[0]);
}

static void backward_input(const ech_call *call)
{
    const attention_options *options = call->node->options;
    ech_dropout dropout = ech_call_dropout(call, options->p, ECH_SITE_ATTENTION);
    call->kernels->attention_backward(call->context, &call->dout[0], &call->in[0], &call->in[1],
                                      &call->in[2], &call->out[0], &call->keep[0], options->scale,
                                      &dropout, &call->din[0], &call->din[1], &call->din[2]);
}

static size_t scratch(const ech_scratch_query *query)
{
    const attention_options *o = query->node->options;
    ech_op op = query->phase == ECH_FORWARD ? ECH_OP_attention_forward : ECH_OP_attention_backward;
    int64_t dims[] = {query->extent.batch, query->extent.tokens, o->H, o->G, o->D};
    return ech_kernel_scratch(query->kernels, op, query->threads, dims);
}

const ech_layer ech_layer_row_attention = {
    .name = "attention", .forward = forward, .backward_input = backward_input, .scratch = scratch};

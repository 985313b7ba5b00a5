/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over context ranks, each of which has some of the tokens.
 *
 * Ring self-attention (Li et al. 2021, arXiv:2105.13120), with the online softmax (Liu et al. 2023,
 * arXiv:2310.01889), so that rows of scores are never kept: keys and values go around the ring in c - 1
 * neighbour steps; while one part is attended to, the next one arrives. Rank r's part j is that of rank
 * r - j. The backward walks through the parts last first: they are fetched a second time, the other way around,
 * and the gradients of keys and values travel back to their rank with them. A rank's tokens are two runs, one
 * from the front and one from the back (zig-zag), so that causal work is balanced.
 */
#include "layer/ring.h"

#include <math.h>
#include <stdlib.h>

#include "layer/layers.h"

ech_shape ech_attention_lse(const ech_shape *out)
{
    return (ech_shape){.dims = 3,
                       .axis = {out->axis[0], out->axis[2], out->axis[1]},
                       .size = {out->size[0], out->size[2], out->size[1]}};
}

int64_t ech_call_first_head(const ech_call *call, ech_axis heads, int64_t H)
{
    int64_t local = ech_axis_local(heads, H, call->extent.cut);
    int shard = call->tensor_index;
    if (heads == ECH_AXIS_CONTEXT_HEADS) shard = shard * call->context_size + call->context_index;
    return local * shard;
}

ech_rows ech_call_sequence(const ech_call *call)
{
    int64_t T = call->extent.sequence;
    return (ech_rows){.first_sample = call->rows.first_sample, .whole = T, .tokens = T, .split = T};
}

double ech_attention_multiplies(const ech_block *block, const ech_node *node, ech_extent extent,
                                int64_t tokens, ech_phase phase)
{
    double queries = (double)ech_shape_count(&block->value.at[node->in[0]].shape, extent);
    return (phase == ECH_FORWARD ? 1 : 2.5) * queries * (double)tokens;
}

/* ---- Ulysses ---- */

int ech_block_exchange_heads(ech_block *block, int x, bool to_heads)
{
    ech_shape shape = block->value.at[x].shape;
    bool kv = shape.axis[2] == ECH_AXIS_KV_HEADS || shape.axis[2] == ECH_AXIS_CONTEXT_KV_HEADS;
    shape.axis[1] = to_heads ? ECH_AXIS_SEQUENCE : ECH_AXIS_TOKENS;
    if (to_heads)
        shape.axis[2] = kv ? ECH_AXIS_CONTEXT_KV_HEADS : ECH_AXIS_CONTEXT_HEADS;
    else
        shape.axis[2] = kv ? ECH_AXIS_KV_HEADS : ECH_AXIS_HEADS;
    const ech_layer *layer = to_heads ? &ech_layer_row_to_heads : &ech_layer_row_to_tokens;
    ech_node *node = ech_block_node(block, layer, NULL, 0);
    ech_node_in(node, x);
    return ech_node_out(block, node, "out", shape);
}

/* ---- keys and values side by side ---- */

/* The keys (0) or values (1) of (B,T',2G,D). */
static ech_tensor half_of(const ech_tensor *kv, int half)
{
    ech_tensor part = *kv;
    part.shape[2] /= 2;
    part.data = (char *)kv->data +
                (size_t)(half * part.shape[2] * kv->stride[2]) * ech_dtype_bytes(kv->dtype);
    return part;
}

static void pack_forward(const ech_call *call)
{
    for (int i = 0; i < 2; i++) {
        ech_tensor half = half_of(&call->out[0], i);
        call->kernels->copy(call->context, &call->in[i], &half);
    }
}

static void pack_backward(const ech_call *call)
{
    for (int i = 0; i < 2; i++) {
        ech_tensor half = half_of(&call->dout[0], i);
        call->kernels->copy(call->context, &half, &call->din[i]);
    }
}

const ech_layer ech_layer_row_pack = {
    .name = "pack", .forward = pack_forward, .backward_input = pack_backward};

static int add_pack(ech_block *block, int k, int v)
{
    ech_shape shape = block->value.at[k].shape;
    shape.size[2] *= 2;
    ech_node *node = ech_block_node(block, &ech_layer_row_pack, NULL, 0);
    ech_node_in(node, k);
    ech_node_in(node, v);
    return ech_node_out(block, node, "out", shape);
}

/* ---- a part ---- */

typedef struct attend_options {
    double p, scale;
    int64_t H, G, D; /* whole */
    int part, starts;
} attend_options;

static ech_attention_shard place_of(const ech_call *call)
{
    const attend_options *o = call->node->options;
    int owner = (call->context_index - o->part + call->context_size) % call->context_size;
    return (ech_attention_shard){
        .query = call->rows,
        .key = ech_context_rows(call->ways, call->extent, call->rows.first_sample, owner),
        .first_head = ech_call_first_head(call, ECH_AXIS_HEADS, o->H),
        .heads = o->H};
}

static void attend_forward(const ech_call *call)
{
    const attend_options *o = call->node->options;
    ech_dropout dropout = ech_call_dropout(call, o->p, ECH_SITE_ATTENTION);
    ech_attention_shard place = place_of(call);
    ech_tensor k = half_of(&call->in[1], 0), v = half_of(&call->in[1], 1);
    call->kernels->attention_forward(call->context, &call->in[0], &k, &v, o->scale, &place,
                                     ech_optional(&call->in[2]), &dropout, o->part > 0,
                                     &call->out[0], &call->keep[0]);
}

static void attend_backward(const ech_call *call)
{
    const attend_options *o = call->node->options;
    ech_dropout dropout = ech_call_dropout(call, o->p, ECH_SITE_ATTENTION);
    ech_attention_shard place = place_of(call);
    ech_tensor k = half_of(&call->in[1], 0), v = half_of(&call->in[1], 1);
    ech_tensor dk = half_of(&call->din[1], 0), dv = half_of(&call->din[1], 1);
    /* What is added to is the gradient itself. */
    ECH_ASSERT(!call->add[0].data || call->add[0].data == call->din[0].data);
    ECH_ASSERT(!call->add[1].data || call->add[1].data == call->din[1].data);
    call->kernels->attention_backward(
        call->context, &call->dout[0], &call->in[0], &k, &v, &call->out[0], &call->keep[0],
        o->scale, &place, ech_optional(&call->in[2]), &dropout, call->add[0].data != NULL,
        call->add[1].data != NULL, &call->din[0], &dk, &dv);
}

static size_t attend_scratch(const ech_scratch_query *query)
{
    const attend_options *o = query->node->options;
    const ech_extent *extent = &query->extent;
    ech_op op = query->phase == ECH_FORWARD ? ECH_OP_attention_forward : ECH_OP_attention_backward;
    int64_t dims[] = {extent->batch,
                      extent->tokens,
                      extent->tokens,
                      ech_axis_local(ECH_AXIS_HEADS, o->H, extent->cut),
                      ech_axis_local(ECH_AXIS_KV_HEADS, o->G, extent->cut),
                      o->D};
    return ech_kernel_scratch(query->kernels, op, query->threads, dims);
}

static double attend_multiplies(const ech_block *block, const ech_node *node, ech_extent extent,
                                ech_phase phase)
{
    return ech_attention_multiplies(block, node, extent, extent.tokens, phase);
}

const ech_layer ech_layer_row_attend = {.name = "attend",
                                        .forward = attend_forward,
                                        .backward_input = attend_backward,
                                        .scratch = attend_scratch,
                                        .multiplies = attend_multiplies,
                                        .fuses_add = true};

/* ---- the ring ---- */

static int add_shift(ech_block *block, const ech_layer *layer, int kv)
{
    ech_node *node = ech_block_node(block, layer, NULL, 0);
    ech_node_in(node, kv);
    return ech_node_out(block, node, "out", block->value.at[kv].shape);
}

/* Part j's node; the first makes output and lse (*out, *lse), the others go on with them. */
static void add_part(ech_block *block, const attend_options *options, int q, int kv, int *out,
                     int *lse)
{
    ech_shape shape = block->value.at[q].shape;
    ech_node *node = ech_block_node(block, &ech_layer_row_attend, options, sizeof *options);
    ech_node_in(node, q);
    ech_node_in(node, kv);
    node->b = (ech_reads){.in = 3 | ech_node_starts(node, options->starts), .out = 1, .keep = 1};
    if (options->part == 0) {
        *lse = ech_node_keep(block, node, "lse", ech_attention_lse(&shape));
        *out = ech_node_out(block, node, "out", shape);
    } else {
        node->keep[node->keeps++] = *lse;
        ech_node_out_in_place(node, *out);
        node->goes_on = true;
    }
}

/* For the backward: packs this rank's keys and values a second time, and fetches the others', the last part first. */
static void refetch(ech_block *block, int k, int v, const int *kv, int parts)
{
    int from = add_pack(block, k, v);
    ech_block_set_recompute(block, kv[0], from);
    for (int part = parts - 1; part > 0; part--) {
        from = add_shift(block, &ech_layer_row_unshift, from);
        ech_block_set_recompute(block, kv[part], from);
    }
}

int ech_ring_attention(ech_block *block, int q, int k, int v, int starts, double p)
{
    const ech_shape *query = &block->value.at[q].shape;
    int parts = block->ways.cut.context, out = -1, lse = -1;
    attend_options options = {.p = p,
                              .scale = 1 / sqrt((double)query->size[3]),
                              .H = query->size[2],
                              .G = block->value.at[k].shape.size[2],
                              .D = query->size[3],
                              .starts = starts};
    int *kv = ech_calloc((size_t)parts, sizeof *kv);
    kv[0] = add_pack(block, k, v);
    for (options.part = 0; options.part < parts; options.part++) {
        int j = options.part;
        if (j + 1 < parts) kv[j + 1] = add_shift(block, &ech_layer_row_shift, kv[j]);
        add_part(block, &options, q, kv[j], &out, &lse);
    }
    refetch(block, k, v, kv, parts);
    free(kv);
    return out;
}

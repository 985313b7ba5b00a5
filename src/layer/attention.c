/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention with grouped keys and values. Saves the output and one number a row (log sum
 * exp); B recomputes probabilities. Dao et al. 2022, arXiv:2205.14135; grouped queries:
 * Ainslie et al. 2023, arXiv:2305.13245.
 *
 * With sequence chunks, keys and values of all chunks are in a KV cache, and so are their gradients: backwards run from
 * the last chunk to the first, and later chunks have added to the gradients of an earlier one before its backward.
 */
#include <math.h>

#include "layer/layers.h"
#include "layer/ring.h"

typedef struct attention_options {
    double p, scale;
    int64_t H, G, D; /* whole */
    ech_axis heads, kv_heads;
} attention_options;

/* The inputs after queries, keys and values. */
enum { STARTS = 3 };
/* What is kept. */
enum { LSE, KEYS, VALUES, KEYS_BACK, VALUES_BACK };

/* Keys or values of all sequence chunks, or (`back`) their gradients. */
static void keep_cached(ech_block *block, ech_node *node, const char *name, int like,
                        ech_block_value_role role, unsigned purposes)
{
    ech_shape shape = block->value.at[like].shape;
    shape.axis[1] = ECH_AXIS_SEQUENCE;
    int kept = ech_node_keep(block, node, name, shape);
    ech_block_value *value = &block->value.at[kept];
    value->role = role;
    value->purposes = purposes;
    value->cached = true;
}

static int add_attention(ech_block *block, int q, int k, int v, int starts, double p)
{
    const ech_shape *query = &block->value.at[q].shape, *key = &block->value.at[k].shape;
    bool chunks = block->ways.sequence_chunks > 1;
    unsigned always = 1u << ECH_TRAIN | 1u << ECH_EVALUATE, generate = 1u << ECH_GENERATE;
    attention_options options = {.p = p,
                                 .scale = 1 / sqrt((double)query->size[3]),
                                 .H = query->size[2],
                                 .G = key->size[2],
                                 .D = query->size[3],
                                 .heads = query->axis[2],
                                 .kv_heads = key->axis[2]};
    ech_shape out = *query;
    ech_node *node = ech_block_node(block, &ech_layer_row_attention, &options, sizeof options);
    ech_node_in(node, q);
    ech_node_in(node, k);
    ech_node_in(node, v);
    unsigned documents = ech_node_starts(node, starts);
    ech_node_keep(block, node, "lse", ech_attention_lse(&out));
    keep_cached(block, node, "keys", k, ECH_ROLE_ACTIVATION, generate | (chunks ? always : 0));
    keep_cached(block, node, "values", v, ECH_ROLE_ACTIVATION, generate | (chunks ? always : 0));
    keep_cached(block, node, "d keys", k, ECH_ROLE_GRADIENT, chunks ? 1u << ECH_TRAIN : 0);
    keep_cached(block, node, "d values", v, ECH_ROLE_GRADIENT, chunks ? 1u << ECH_TRAIN : 0);
    node->b = (ech_reads){.in = (chunks ? 1 : 7) | documents, .out = 1, .keep = 31};
    return ech_node_out(block, node, "out", out);
}

/* Ulysses (Jacobs et al. 2023, arXiv:2309.14509): context ranks exchange their tokens of all heads for all
 * tokens of their heads. */
static int add_ulysses(ech_block *block, int q, int k, int v, int starts, double p)
{
    q = ech_block_exchange_heads(block, q, true);
    k = ech_block_exchange_heads(block, k, true);
    v = ech_block_exchange_heads(block, v, true);
    int y = add_attention(block, q, k, v, starts, p);
    return ech_block_exchange_heads(block, y, false);
}

int ech_layer_attention(ech_block *block, int q, int k, int v, int starts, double p)
{
    /* Keys and values of a chunk are in the cache: only its queries are left to save. */
    if (block->ways.sequence_chunks > 1 && block->value.at[q].base >= 0)
        q = ech_layer_copy(block, q);
    if (block->ways.cut.context < 2) return add_attention(block, q, k, v, starts, p);
    return block->ways.ulysses ? add_ulysses(block, q, k, v, starts, p)
                               : ech_ring_attention(block, q, k, v, starts, p);
}

/* ---- sequence chunks ---- */

/* Rows [first, first + count) of every sample. */
static ech_tensor tokens_of(const ech_tensor *x, int64_t first, int64_t count)
{
    ech_tensor part = *x;
    part.shape[1] = count;
    part.data = (char *)x->data + (size_t)(first * x->stride[1]) * ech_dtype_bytes(x->dtype);
    return part;
}

static bool has_carried(const ech_call *call)
{
    return call->keep[KEYS].data != NULL;
}

/* The keys and values that the call's queries may see, and where they lie. */
typedef struct seen {
    ech_tensor k, v;
    ech_attention_shard place;
} seen;

static seen find_seen(const ech_call *call)
{
    const attention_options *o = call->node->options;
    seen s = {.k = call->in[1], .v = call->in[2]};
    s.place.query = o->heads == ECH_AXIS_CONTEXT_HEADS ? ech_call_sequence(call) : call->rows;
    s.place.key = s.place.query;
    s.place.heads = o->H;
    s.place.first_head = ech_call_first_head(call, o->heads, o->H);
    if (!has_carried(call)) return s;
    int64_t first = call->rows.start[0], end = first + call->rows.tokens;
    s.k = tokens_of(&call->keep[KEYS], 0, end);
    s.v = tokens_of(&call->keep[VALUES], 0, end);
    s.place.key.tokens = s.place.key.split = end;
    s.place.key.start[0] = 0;
    return s;
}

static void carry(const ech_call *call)
{
    int64_t first = call->rows.start[0], count = call->rows.tokens;
    ech_tensor k = tokens_of(&call->keep[KEYS], first, count);
    ech_tensor v = tokens_of(&call->keep[VALUES], first, count);
    call->kernels->copy(call->context, &call->in[1], &k);
    call->kernels->copy(call->context, &call->in[2], &v);
}

static void forward(const ech_call *call)
{
    const attention_options *options = call->node->options;
    ech_dropout dropout = ech_call_dropout(call, options->p, ECH_SITE_ATTENTION);
    if (has_carried(call)) carry(call);
    seen s = find_seen(call);
    call->kernels->attention_forward(call->context, &call->in[0], &s.k, &s.v, options->scale,
                                     &s.place, ech_optional(&call->in[STARTS]), &dropout, false,
                                     &call->out[0], &call->keep[LSE]);
}

/* Pieces come last first: the last one writes the gradients of all keys, the others add. */
static void backward_chunks(const ech_call *call, const seen *s, const ech_dropout *dropout)
{
    const attention_options *options = call->node->options;
    int64_t first = call->rows.start[0], count = call->rows.tokens, end = first + count;
    bool last = end == call->rows.whole;
    ech_tensor dk = tokens_of(&call->keep[KEYS_BACK], 0, end);
    ech_tensor dv = tokens_of(&call->keep[VALUES_BACK], 0, end);
    call->kernels->attention_backward(call->context, &call->dout[0], &call->in[0], &s->k, &s->v,
                                      &call->out[0], &call->keep[LSE], options->scale, &s->place,
                                      ech_optional(&call->in[STARTS]), dropout, false, !last,
                                      &call->din[0], &dk, &dv);
    dk = tokens_of(&dk, first, count);
    dv = tokens_of(&dv, first, count);
    call->kernels->copy(call->context, &dk, &call->din[1]);
    call->kernels->copy(call->context, &dv, &call->din[2]);
}

static void backward_input(const ech_call *call)
{
    const attention_options *options = call->node->options;
    ech_dropout dropout = ech_call_dropout(call, options->p, ECH_SITE_ATTENTION);
    seen s = find_seen(call);
    if (has_carried(call))
        backward_chunks(call, &s, &dropout);
    else
        call->kernels->attention_backward(call->context, &call->dout[0], &call->in[0], &s.k, &s.v,
                                          &call->out[0], &call->keep[LSE], options->scale, &s.place,
                                          ech_optional(&call->in[STARTS]), &dropout, false, false,
                                          &call->din[0], &call->din[1], &call->din[2]);
}

static size_t scratch(const ech_scratch_query *query)
{
    const attention_options *o = query->node->options;
    const ech_extent *extent = &query->extent;
    const ech_block_value *keys = &query->block->value.at[query->node->keep[KEYS]];
    bool all = o->heads == ECH_AXIS_CONTEXT_HEADS;
    bool cached = keys->purposes & 1u << query->purpose;
    ech_op op = query->phase == ECH_FORWARD ? ECH_OP_attention_forward : ECH_OP_attention_backward;
    int64_t dims[] = {extent->batch,
                      all ? extent->sequence : extent->tokens,
                      all || cached ? extent->sequence : extent->tokens,
                      ech_axis_local(o->heads, o->H, extent->cut),
                      ech_axis_local(o->kv_heads, o->G, extent->cut),
                      o->D};
    return ech_kernel_scratch(query->kernels, op, query->threads, dims);
}

static double multiplies(const ech_block *block, const ech_node *node, ech_extent extent,
                         ech_phase phase)
{
    return ech_attention_multiplies(block, node, extent, extent.sequence, phase);
}

const ech_layer ech_layer_row_attention = {.name = "attention",
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .scratch = scratch,
                                           .multiplies = multiplies};

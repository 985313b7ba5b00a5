/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention with grouped keys and values (Ainslie et al. 2023, arXiv:2305.13245). Saves the
 * output and one number a row (log sum exp); B recomputes probabilities (Dao et al. 2022,
 * arXiv:2205.14135).
 *
 * With sequence chunks, keys and values of all chunks are in a KV cache, and so are their
 * gradients: backwards run from the last chunk to the first, and later chunks have added to the
 * gradients of an earlier one before its backward.
 *
 * With context parallelism each context rank has some of the tokens. Ulysses (Jacobs et al. 2023,
 * arXiv:2309.14509) exchanges a rank's tokens of all heads for all tokens of its heads. Ring
 * self-attention (Li et al. 2021, arXiv:2105.13120), with the online softmax (Liu et al. 2023,
 * arXiv:2310.01889), saves no rows of scores: keys and values go around the ring in c - 1 neighbour
 * steps; while one part is attended to, the next one arrives. Rank r's part j is that of rank r -
 * j. The backward walks through the parts last first: they are fetched a second time, the other way
 * around, and the gradients of keys and values travel back to their rank with them. A rank's tokens
 * are two runs, one from the front and one from the back (zig-zag), so that causal work is
 * balanced.
 */
#include <math.h>

#include "layer/layers.h"

typedef struct attention_options {
    double p;
    ech_attention_rule rule;
    int64_t H, G, D; /* unsharded */
    ech_axis heads, kv_heads;
    int part; /* of the ring */
} attention_options;

/* What is saved; of a part of the ring only LSE. */
enum { LSE, KEYS, VALUES, KEYS_BACK, VALUES_BACK };

static attention_options options_of(const ech_block *block, const ech_layer_attention_args *a)
{
    const ech_shape *query = &block->value.at[a->q].shape, *key = &block->value.at[a->k].shape;
    double scale = a->scale > 0 ? a->scale : 1 / sqrt((double)query->size[3]);
    return (attention_options){.p = a->dropout,
                               .rule = {scale, a->softcap, a->window},
                               .H = query->size[2],
                               .G = key->size[2],
                               .D = query->size[3],
                               .heads = query->axis[2],
                               .kv_heads = key->axis[2]};
}

/* (B,H,T') of an output (B,T',H,D). */
static ech_shape shape_of_lse(const ech_shape *out)
{
    return (ech_shape){.dims = 3,
                       .axis = {out->axis[0], out->axis[2], out->axis[1]},
                       .size = {out->size[0], out->size[2], out->size[1]}};
}

/* Keys or values of all sequence chunks, or their gradients, to which every chunk adds: wide. */
static void add_cache(ech_block *block, ech_node *node, const char *name, int like,
                      ech_block_value_role role, unsigned purposes)
{
    ech_shape shape = block->value.at[like].shape;
    shape.axis[1] = ECH_AXIS_SEQUENCE;
    int kept = ech_node_keep(block, node, name, shape);
    ech_block_value *value = &block->value.at[kept];
    value->role = role;
    if (role == ECH_ROLE_GRADIENT) value->type = ECH_TYPE_WIDE;
    value->purposes = purposes;
    value->cached = true;
}

static int add_attention(ech_block *block, const ech_layer_attention_args *a)
{
    attention_options options = options_of(block, a);
    bool chunks = block->options.sequence_chunks > 1;
    unsigned train = chunks ? 1u << ECH_TRAIN : 0, evaluate = chunks ? 1u << ECH_EVALUATE : 0;
    unsigned all = train | evaluate | 1u << ECH_GENERATE;
    ech_shape out = block->value.at[a->q].shape;
    ech_node *node = ech_block_node(block, &ech_layer_row_attention, &options, sizeof options);
    ech_node_in(node, a->q);
    ech_node_in(node, a->k);
    ech_node_in(node, a->v);
    unsigned documents = ech_node_starts(node, a->starts);
    ech_node_keep_wide(block, node, "lse", shape_of_lse(&out));
    add_cache(block, node, "keys", a->k, ECH_ROLE_ACTIVATION, all);
    add_cache(block, node, "values", a->v, ECH_ROLE_ACTIVATION, all);
    add_cache(block, node, "d keys", a->k, ECH_ROLE_GRADIENT, train);
    add_cache(block, node, "d values", a->v, ECH_ROLE_GRADIENT, train);
    node->cached = chunks ? 6 : 0;
    node->b = (ech_reads){.in = (chunks ? 1 : 7) | documents, .out = 1, .keep = 31};
    return ech_node_out(block, node, "out", out);
}

/* ---- Ulysses ---- */

/* x (B,T',H,D) becomes (B,T,H/c,D), or (!to_heads) the reverse. */
static int exchange_heads(ech_block *block, int x, bool to_heads)
{
    ech_shape shape = block->value.at[x].shape;
    bool kv = shape.axis[2] == ECH_AXIS_KV_HEADS || shape.axis[2] == ECH_AXIS_CONTEXT_KV_HEADS;
    shape.axis[1] = to_heads ? ECH_AXIS_SEQUENCE : ECH_AXIS_TOKENS;
    if (to_heads)
        shape.axis[2] = kv ? ECH_AXIS_CONTEXT_KV_HEADS : ECH_AXIS_CONTEXT_HEADS;
    else
        shape.axis[2] = kv ? ECH_AXIS_KV_HEADS : ECH_AXIS_HEADS;
    const ech_layer *layer = to_heads ? &ech_layer_row_to_heads : &ech_layer_row_to_tokens;
    return ech_block_add(block, layer, x, -1, 0, shape);
}

static int add_ulysses(ech_block *block, ech_layer_attention_args a)
{
    a.q = exchange_heads(block, a.q, true);
    a.k = exchange_heads(block, a.k, true);
    a.v = exchange_heads(block, a.v, true);
    return exchange_heads(block, add_attention(block, &a), false);
}

/* ---- the ring ---- */

/* The keys (0) or values (1) of (B,T',2G,D). */
static ech_tensor half_of(const ech_tensor *kv, int half)
{
    int64_t heads = kv->shape[2] / 2;
    return ech_tensor_narrow(kv, 2, half * heads, heads);
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
    .name = "pack", .forward = pack_forward, .backward_input = pack_backward, .core = true};

static int add_pack(ech_block *block, int k, int v)
{
    ech_shape shape = block->value.at[k].shape;
    shape.size[2] *= 2;
    return ech_block_add(block, &ech_layer_row_pack, k, v, 0, shape);
}

static int add_shift(ech_block *block, const ech_layer *layer, int kv)
{
    return ech_block_add(block, layer, kv, -1, 0, block->value.at[kv].shape);
}

/* A part's node; the first makes output and lse (*out, *lse), the others add to them. */
static void add_part(ech_block *block, const attention_options *options, int q, int kv, int starts,
                     int *out, int *lse)
{
    ech_shape shape = block->value.at[q].shape;
    ech_node *node = ech_block_node(block, &ech_layer_row_attend, options, sizeof *options);
    ech_node_in(node, q);
    ech_node_in(node, kv);
    node->b = (ech_reads){.in = 3 | ech_node_starts(node, starts), .out = 1, .keep = 1};
    if (options->part == 0) {
        *lse = ech_node_keep_wide(block, node, "lse", shape_of_lse(&shape));
        *out = ech_node_out(block, node, "out", shape);
    } else {
        node->keep[node->keeps++] = *lse;
        ech_node_out_in_place(node, *out);
        node->goes_on = true;
    }
}

/* For the backward: packs this rank's keys and values a second time, and fetches the others', the
 * last part first. */
static void refetch(ech_block *block, int k, int v, const int *kv, int parts)
{
    int from = add_pack(block, k, v);
    ech_block_set_recompute(block, kv[0], from);
    for (int part = parts - 1; part > 0; part--) {
        from = add_shift(block, &ech_layer_row_unshift, from);
        ech_block_set_recompute(block, kv[part], from);
    }
}

static int add_ring(ech_block *block, const ech_layer_attention_args *a)
{
    int parts = block->options.sharding.context, out = -1, lse = -1;
    attention_options options = options_of(block, a);
    ECH_FREED int *kv = ech_calloc((size_t)parts + 1, sizeof *kv);
    kv[0] = add_pack(block, a->k, a->v);
    for (int part = 0; part < parts; options.part = ++part) {
        if (part + 1 < parts) kv[part + 1] = add_shift(block, &ech_layer_row_shift, kv[part]);
        add_part(block, &options, a->q, kv[part], a->starts, &out, &lse);
    }
    refetch(block, a->k, a->v, kv, parts);
    return out;
}

int ech_layer_attention(ech_block *block, const ech_layer_attention_args *attention)
{
    ech_layer_attention_args a = *attention;
    /* Keys and values of a chunk are in the cache: only its queries are left to save. */
    if (block->options.sequence_chunks > 1 && block->value.at[a.q].base >= 0)
        a.q = ech_layer_copy(block, a.q);
    if (block->options.sharding.context < 2) return add_attention(block, &a);
    return block->options.ulysses ? add_ulysses(block, a) : add_ring(block, &a);
}

/* ---- running ---- */

static bool is_part(const ech_node *node)
{
    return node->layer == &ech_layer_row_attend;
}

static bool has_cache(const ech_call *call)
{
    return call->keep[KEYS].data != NULL;
}

/* The keys and values that the call's queries may see, and where they lie. */
typedef struct seen {
    ech_tensor k, v;
    const ech_tensor *starts;
    ech_attention_shard place;
    ech_dropout dropout;
} seen;

static seen find_seen(const ech_call *call)
{
    const attention_options *o = call->node->options;
    const ech_rows *rows = &call->rows;
    int64_t T = call->extent.sequence, end = rows->position ? T : rows->start[0] + rows->tokens;
    int shard = call->tensor_index;
    seen s = {.k = call->in[1],
              .v = call->in[2],
              .starts = ech_optional(&call->in[is_part(call->node) ? 2 : 3]),
              .place = {.query = *rows, .key = *rows, .heads = o->H},
              .dropout = ech_call_dropout(call, o->p, ECH_SITE_ATTENTION)};
    if (o->heads == ECH_AXIS_CONTEXT_HEADS) {
        shard = shard * call->context_size + call->context_index;
        s.place.query = s.place.key =
            (ech_rows){.first_sample = rows->first_sample, .whole = T, .tokens = T, .split = T};
    }
    s.place.first_head = shard * ech_axis_local(o->heads, o->H, call->extent.sharding);
    if (is_part(call->node)) {
        int owner = (call->context_index - o->part + call->context_size) % call->context_size;
        s.k = half_of(&call->in[1], 0);
        s.v = half_of(&call->in[1], 1);
        s.place.key = ech_context_rows(call->options, call->extent, rows->first_sample, owner);
    } else if (has_cache(call)) {
        s.k = ech_tensor_narrow(&call->keep[KEYS], 1, 0, end);
        s.v = ech_tensor_narrow(&call->keep[VALUES], 1, 0, end);
        s.place.key.tokens = s.place.key.split = end;
        s.place.key.start[0] = 0;
        s.place.key.position = NULL;
    }
    return s;
}

static void fill_cache(const ech_call *call)
{
    for (int i = 0; i < 2; i++) {
        if (!call->in[1 + i].data) continue; /* filled before */
        call->kernels->append(call->context, &call->in[1 + i], &call->rows, &call->keep[KEYS + i]);
    }
}

static void forward(const ech_call *call)
{
    const attention_options *o = call->node->options;
    if (has_cache(call)) fill_cache(call);
    seen s = find_seen(call);
    call->kernels->attention_forward(call->context, &call->in[0], &s.k, &s.v, &o->rule, &s.place,
                                     s.starts, &s.dropout, o->part > 0, &call->out[0],
                                     &call->keep[LSE]);
}

/* The last chunk comes first: it writes the gradients of all keys, the others add. */
static void backward_input(const ech_call *call)
{
    const attention_options *o = call->node->options;
    seen s = find_seen(call);
    ech_tensor dkv[2] = {call->din[1], call->din[2]};
    int64_t first = call->rows.start[0], end = first + call->rows.tokens;
    bool adds = call->add[1].data != NULL;
    for (int i = 0; i < 2; i++) {
        /* What is added to is the gradient itself. */
        ECH_ASSERT(!call->add[i].data || call->add[i].data == call->din[i].data);
        if (is_part(call->node)) dkv[i] = half_of(&call->din[1], i);
        if (!has_cache(call)) continue;
        dkv[i] = ech_tensor_narrow(&call->keep[KEYS_BACK + i], 1, 0, end);
        adds = end < call->rows.whole;
    }
    call->kernels->attention_backward(call->context, &call->dout[0], &call->in[0], &s.k, &s.v,
                                      &call->out[0], &call->keep[LSE], &o->rule, &s.place, s.starts,
                                      &s.dropout, call->add[0].data != NULL, adds, &call->din[0],
                                      &dkv[0], &dkv[1]);
    for (int i = 0; i < 2 && has_cache(call); i++) {
        ech_tensor own = ech_tensor_narrow(&dkv[i], 1, first, call->rows.tokens);
        call->kernels->copy(call->context, &own, &call->din[1 + i]);
    }
}

static size_t scratch(const ech_scratch_query *query)
{
    const attention_options *o = query->node->options;
    const ech_extent *extent = &query->extent;
    bool all = o->heads == ECH_AXIS_CONTEXT_HEADS;
    bool cached = !is_part(query->node) &&
                  query->block->value.at[query->node->keep[KEYS]].purposes & 1u << query->purpose;
    ech_op op = query->phase == ECH_FORWARD ? ECH_OP_attention_forward : ECH_OP_attention_backward;
    int64_t dims[] = {extent->batch,
                      all ? extent->sequence : extent->tokens,
                      all || cached ? extent->sequence : extent->tokens,
                      ech_axis_local(o->heads, o->H, extent->sharding),
                      ech_axis_local(o->kv_heads, o->G, extent->sharding),
                      o->D};
    return ech_kernel_scratch(query->kernels, op, query->threads, dims);
}

/* Two products forward, five backward, of half of all scores. */
static double multiplies(const ech_block *block, const ech_node *node, ech_extent extent,
                         ech_phase phase)
{
    double queries = (double)ech_shape_count(&block->value.at[node->in[0]].shape, extent);
    double keys = (double)(is_part(node) ? extent.tokens : extent.sequence);
    return (phase == ECH_FORWARD ? 1 : 2.5) * queries * keys;
}

const ech_layer ech_layer_row_attention = {.name = "attention",
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .scratch = scratch,
                                           .multiplies = multiplies,
                                           .core = true};

const ech_layer ech_layer_row_attend = {.name = "attend",
                                        .forward = forward,
                                        .backward_input = backward_input,
                                        .scratch = scratch,
                                        .multiplies = multiplies,
                                        .fuses_add = true,
                                        .core = true};

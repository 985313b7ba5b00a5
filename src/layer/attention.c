/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention with grouped keys and values (Ainslie et al. 2023, arXiv:2305.13245). Saves the
 * output and one number per row (log sum exp); B recomputes probabilities (Dao et al. 2022,
 * arXiv:2205.14135).
 *
 * With sequence chunks, keys and values of all chunks are in a KV cache, and so are their
 * gradients. Backwards run from the last chunk to the first, so later chunks have added to the
 * gradients of an earlier one before its backward.
 *
 * With context parallelism each context rank has some of the tokens. Ulysses (Jacobs et al. 2023,
 * arXiv:2309.14509) exchanges a rank's tokens of all heads for all tokens of its heads. Ring
 * self-attention (Li et al. 2021, arXiv:2105.13120), with the online softmax (Liu et al. 2023,
 * arXiv:2310.01889), saves no rows of scores: keys and values go around the ring in c - 1 neighbour
 * steps; while one part is attended to, the next one arrives. Rank r's part j comes from rank r -
 * j. The backward processes the last part first: parts are fetched a second time, in the other
 * direction, and the gradients of keys and values travel back to their rank with them. A rank's
 * tokens are two runs, one from the front and one from the back (zig-zag), so that causal work is
 * balanced. A window that does not reach all ranks needs no ring: keys and values go directly to
 * the ranks that see them, and their gradients back.
 */
#include <math.h>
#include <string.h>

#include "layer/layers.h"

typedef struct attention_options {
    double p;
    ech_attention_rule rule;
    int64_t H, G, D, E; /* unsharded; values are E wide */
    ech_axis heads, kv_heads;
    int part; /* of the ring; if `slides`: how many ranks before this one its keys come from */
    bool slides; /* keys come from the ranks that are seen alone, not around the ring */
} attention_options;

/* The saved values; for a part of the ring only LSE. */
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
                               .E = block->value.at[a->v].shape.size[3],
                               .heads = query->axis[2],
                               .kv_heads = key->axis[2]};
}

/* (B,T',H,E) for queries (B,T',H,D). */
static ech_shape shape_of_out(const ech_block *block, const ech_layer_attention_args *a)
{
    ech_shape out = block->value.at[a->q].shape;
    out.size[3] = block->value.at[a->v].shape.size[3];
    return out;
}

/* (B,H,T') of an output (B,T',H,E). */
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

static void add_sinks(ech_node *node, int sinks)
{
    if (sinks < 0) return;
    ech_node_param(node, sinks);
    node->added = 1; /* heads of keys do not count */
    node->b.param = 1;
}

static int add_attention(ech_block *block, const ech_layer_attention_args *a)
{
    attention_options options = options_of(block, a);
    bool chunks = block->options.sequence_chunks > 1;
    unsigned train = chunks ? 1u << ECH_TRAIN : 0, evaluate = chunks ? 1u << ECH_EVALUATE : 0;
    unsigned all = train | evaluate | 1u << ECH_GENERATE;
    ech_shape out = shape_of_out(block, a);
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
    add_sinks(node, a->sinks);
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

/* The keys (0) or values (1) of (B,T',G,D+E). */
static ech_tensor part_of(const ech_tensor *kv, int64_t D, int part)
{
    return ech_tensor_narrow(kv, 3, part ? D : 0, part ? kv->shape[3] - D : D);
}

static void pack_forward(const ech_call *call)
{
    for (int i = 0; i < 2; i++) {
        ech_tensor part = part_of(&call->out[0], *(const int64_t *)call->node->options, i);
        call->kernels->copy(call->context, &call->in[i], &part);
    }
}

static void pack_backward(const ech_call *call)
{
    for (int i = 0; i < 2; i++) {
        ech_tensor part = part_of(&call->dout[0], *(const int64_t *)call->node->options, i);
        call->kernels->copy(call->context, &part, &call->din[i]);
    }
}

const ech_layer ech_layer_row_pack = {
    .name = "pack", .forward = pack_forward, .backward_input = pack_backward, .core = true};

int ech_layer_pack(ech_block *block, int k, int v)
{
    ech_shape shape = block->value.at[k].shape;
    ech_node *node =
        ech_block_node(block, &ech_layer_row_pack, &shape.size[3], sizeof shape.size[3]);
    ech_node_in(node, k);
    ech_node_in(node, v);
    shape.size[3] += block->value.at[v].shape.size[3];
    return ech_node_out(block, node, "out", shape);
}

static int add_shift(ech_block *block, const ech_layer *layer, int kv)
{
    return ech_block_add(block, layer, kv, -1, 0, block->value.at[kv].shape);
}

static int add_slide(ech_block *block, int kv, int distance)
{
    const ech_exchange exchange[] = {{ECH_COLLECTIVE_SLIDE, ECH_MESH_CONTEXT, distance},
                                     {ECH_COLLECTIVE_SLIDE, ECH_MESH_CONTEXT, -distance}};
    ech_exchange *copy = ech_pool_alloc(block->pool, sizeof exchange);
    int slid = add_shift(block, &ech_layer_row_slide, kv);
    memcpy(copy, exchange, sizeof exchange);
    block->node.at[block->node.n - 1].exchange = copy;
    return slid;
}

/* A part's node; the first makes output and lse (*out, *lse), the others add to them. */
static void add_part(ech_block *block, const attention_options *options,
                     const ech_layer_attention_args *a, int kv, int *out, int *lse)
{
    ech_shape shape = shape_of_out(block, a);
    ech_node *node = ech_block_node(block, &ech_layer_row_attend, options, sizeof *options);
    ech_node_in(node, a->q);
    ech_node_in(node, kv);
    node->b = (ech_reads){.in = 3 | ech_node_starts(node, a->starts), .out = 1, .keep = 1};
    if (options->part == 0) {
        *lse = ech_node_keep_wide(block, node, "lse", shape_of_lse(&shape));
        *out = ech_node_out(block, node, "out", shape);
        add_sinks(node, a->sinks);
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
    int from = ech_layer_pack(block, k, v);
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
    kv[0] = ech_layer_pack(block, a->k, a->v);
    for (int part = 0; part < parts; options.part = ++part) {
        if (part + 1 < parts) kv[part + 1] = add_shift(block, &ech_layer_row_shift, kv[part]);
        add_part(block, &options, a, kv[part], &out, &lse);
    }
    refetch(block, a->k, a->v, kv, parts);
    return out;
}

/* Returns how many ranks before it, and after it, a rank's queries see the keys of: all others
 * without a window. A rank has two runs of `run` tokens. */
static int ranks_seen(const ech_block *block, int64_t window)
{
    int others = block->options.sharding.context - 1;
    int64_t run = block->options.sequence / (2 * others + 2);
    if (window == 0 || run == 0 || (window - 1 + run - 1) / run >= others) return others;
    return (int)((window - 1 + run - 1) / run);
}

/* Parts 0, 1, -1, 2, ...: each comes from the rank that has it while the one before is attended to.
 * For the backward they come once more, the last first. */
static int add_slides(ech_block *block, const ech_layer_attention_args *a, int seen)
{
    int parts = 2 * seen + 1, out = -1, lse = -1;
    attention_options options = options_of(block, a);
    options.slides = true;
    ECH_FREED int *kv = ech_calloc((size_t)parts + 1, sizeof *kv);
    kv[0] = ech_layer_pack(block, a->k, a->v);
    for (int i = 0; i < parts; i++) {
        options.part = i % 2 ? (i + 1) / 2 : -(i / 2);
        if (i + 1 < parts) kv[i + 1] = add_slide(block, kv[0], i % 2 ? -(i + 1) / 2 : i / 2 + 1);
        add_part(block, &options, a, kv[i], &out, &lse);
    }
    int again = ech_layer_pack(block, a->k, a->v);
    ech_block_set_recompute(block, kv[0], again);
    for (int i = parts - 1; i > 0; i--)
        ech_block_set_recompute(block, kv[i],
                                add_slide(block, again, i % 2 ? (i + 1) / 2 : -(i / 2)));
    return out;
}

int ech_layer_attention(ech_block *block, const ech_layer_attention_args *attention)
{
    ech_layer_attention_args a = *attention;
    /* Keys and values of a chunk are in the cache, so only its queries are saved. */
    if (block->options.sequence_chunks > 1 && block->value.at[a.q].base >= 0)
        a.q = ech_layer_copy(block, a.q);
    if (block->options.sharding.context < 2) return add_attention(block, &a);
    if (block->options.ulysses) return add_ulysses(block, a);
    int seen = ranks_seen(block, a.window);
    return seen < block->options.sharding.context - 1 ? add_slides(block, &a, seen)
                                                      : add_ring(block, &a);
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

/* The keys and values that the call's queries may see, and their positions. */
typedef struct seen {
    ech_tensor k, v;
    const ech_tensor *starts;
    ech_attention_shard place;
    ech_dropout dropout;
} seen;

/* Returns the context rank that has a part's keys; -1: none has, which may be if keys slide. */
static int owner_of(const attention_options *o, int index, int size)
{
    int owner = index - o->part;
    if (o->slides) return owner < size && owner >= 0 ? owner : -1;
    return (owner + size) % size;
}

/* Returns the sinks of the call's heads, or their gradients. With Ulysses the call has a part of
 * the tensor rank's heads. */
static ech_tensor sinks_of(const ech_call *call, const ech_tensor *all)
{
    int64_t H = call->in[0].shape[2];
    return all->shape[0] == H ? *all : ech_tensor_narrow(all, 0, call->context_index * H, H);
}

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
        int owner = owner_of(o, call->context_index, call->context_size);
        s.k = part_of(&call->in[1], o->D, 0);
        s.v = part_of(&call->in[1], o->D, 1);
        if (owner >= 0) {
            s.place.key = ech_context_rows(call->options, call->extent, rows->first_sample, owner);
        } else { /* no key is seen */
            s.place.key.tokens = s.place.key.split = 0;
            s.k = ech_tensor_narrow(&s.k, 1, 0, 0);
            s.v = ech_tensor_narrow(&s.v, 1, 0, 0);
        }
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
    bool sinks = call->param[0].data != NULL;
    if (sinks) {
        ech_tensor own = sinks_of(call, &call->param[0]);
        call->kernels->sinks_forward(call->context, &own, &call->out[0], &call->keep[LSE]);
    }
    call->kernels->attention_forward(call->context, &call->in[0], &s.k, &s.v, &o->rule, &s.place,
                                     s.starts, &s.dropout, o->part != 0 || sinks, &call->out[0],
                                     &call->keep[LSE]);
}

/* The first tokens of (B,T',H,D). */
static ech_tensor first_of(ech_tensor x, int64_t tokens)
{
    return ech_tensor_narrow(&x, 1, 0, tokens);
}

/* The gradient is 0 for heads of other context ranks. */
static void backward_sinks(const ech_call *call)
{
    ech_tensor all = call->dparam[0], own = sinks_of(call, &all);
    ech_tensor sinks = sinks_of(call, &call->param[0]);
    bool accumulate = call->accumulate[0];
    if (own.shape[0] < all.shape[0] && !accumulate) {
        call->kernels->fill(call->context, &all, 0);
        accumulate = true;
    }
    call->kernels->sinks_backward(call->context, &call->dout[0], &call->out[0], &call->keep[LSE],
                                  &sinks, accumulate, &own);
}

/* The last chunk comes first: it writes the gradients of all keys, the others add. */
static void backward_input(const ech_call *call)
{
    const attention_options *o = call->node->options;
    seen s = find_seen(call);
    ech_tensor dkv[2] = {call->din[1], call->din[2]};
    int64_t first = call->rows.start[0], end = first + call->rows.tokens;
    bool adds = call->add[1].data != NULL;
    if (call->dparam[0].data) backward_sinks(call);
    for (int i = 0; i < 2; i++) {
        /* The call adds to the gradient itself. */
        ECH_ASSERT(!call->add[i].data || call->add[i].data == call->din[i].data);
        if (is_part(call->node)) dkv[i] = first_of(part_of(&call->din[1], o->D, i), s.k.shape[1]);
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
                      o->D,
                      o->E};
    return ech_kernel_scratch(query->kernels, op, query->threads, dims);
}

/* Returns the sum of min(max(w, 0), m) over whole numbers w < v. */
static double sum_below(double v, double m)
{
    if (v <= 0) return 0;
    return v <= m ? v * (v - 1) / 2 : m * (m - 1) / 2 + (v - m) * m;
}

/* Counts pairs of one of n queries from position a on and one of m keys from b on, where the key is
 * less than x positions before the query, or after it. */
static double pairs_below(double n, double a, double m, double b, double x)
{
    double first = a - b - x + 1;
    return n * m - (sum_below(first + n, m) - sum_below(first, m));
}

double ech_layer_attention_pairs(const ech_rows *query, const ech_rows *key, int64_t window)
{
    double sum = 0, most = (double)(window > 0 ? window : query->whole);
    for (int i = 0; i < 4; i++) {
        double n = (double)(i / 2 ? query->tokens - query->split : query->split);
        double m = (double)(i % 2 ? key->tokens - key->split : key->split);
        double a = (double)query->start[i / 2], b = (double)key->start[i % 2];
        sum += pairs_below(n, a, m, b, most) - pairs_below(n, a, m, b, 0);
    }
    return sum;
}

/* Returns the number of scores that the window leaves over half of all, on average over context
 * ranks. */
static double share_seen(const ech_block *block, const attention_options *o, bool part,
                         ech_extent extent)
{
    int c = block->options.sharding.context;
    double T = (double)extent.tokens, sum = 0;
    if (o->rule.window == 0) return 1;
    if (!part) {
        ech_rows all = ech_rows_context(0, extent.sequence, extent.sequence, 1, 0, false);
        return ech_layer_attention_pairs(&all, &all, o->rule.window) /
               ech_layer_attention_pairs(&all, &all, 0);
    }
    for (int i = 0; i < c; i++) {
        int owner = owner_of(o, i, c);
        if (owner < 0) continue;
        ech_rows query = ech_context_rows(&block->options, extent, 0, i);
        ech_rows key = ech_context_rows(&block->options, extent, 0, owner);
        sum += ech_layer_attention_pairs(&query, &key, o->rule.window);
    }
    return sum / (c * T * T / 2);
}

/* Two products forward, five backward, of half of all scores: one and three D wide, the others E
 * wide. */
static ech_products products(const ech_block *block, const ech_node *node, ech_extent extent,
                             ech_phase phase)
{
    const attention_options *o = node->options;
    double rows =
        (double)ech_shape_count(&block->value.at[node->in[0]].shape, extent) / (double)o->D;
    double queries = (double)extent.tokens,
           keys = (double)(is_part(node) ? extent.tokens : extent.sequence);
    double share = share_seen(block, o, is_part(node), extent);
    double D = (double)o->D, E = (double)o->E, wide = phase == ECH_FORWARD ? D + E : 3 * D + 2 * E;
    return (ech_products){queries, keys, D, wide / (2 * D) * rows / queries * share};
}

const ech_layer ech_layer_row_attention = {.name = "attention",
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .scratch = scratch,
                                           .products = products,
                                           .finishes_in_b = true,
                                           .needs_out = ECH_NEED_8_BITS,
                                           .core = true};

const ech_layer ech_layer_row_attend = {.name = "attend",
                                        .forward = forward,
                                        .backward_input = backward_input,
                                        .scratch = scratch,
                                        .products = products,
                                        .fuses_add = true,
                                        .finishes_in_b = true,
                                        .needs_out = ECH_NEED_8_BITS,
                                        .core = true};

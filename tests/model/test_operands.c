/* SPDX-License-Identifier: Apache-2.0
 *
 * The operands (ech_operand) of every call of every family's blocks are compared with the memory
 * that the layer's functions read and write. A function gets all values of its node. Memory that
 * changes must belong to a written operand. If all memory is spoiled that no operand reads, the
 * function must write the same bits; if an operand that it reads is spoiled, it must write others.
 */

#include <math.h>
#include <stdio.h>

#include "layer/layers.h"
#include "model/cut_model.h"
#include "unit.h"

enum { BATCH = 2, MOST_PARAMS = 64 };
static const int64_t training_step = 2, position = 5;

/* One decoder builds all families from properties: these have each property that changes layers. */
static const char *const families[] = {"gpt2",  "qwen3",   "gemma3_text",
                                       "olmo2", "mixtral", "qwen2_moe"};
/* Of logistic, which has no dropout, and nothing to cut. */
static const char *const logistic_grids[] = {"", "parallel.schedule=pipedream",
                                             "precision.compute=bf16 precision.residual=fp32",
                                             "parallel.device=walled", "memory.recompute=full"};
static const char *const grids[] = {
    "",
    "model.embd_pdrop=0 model.resid_pdrop=0 model.attn_pdrop=0",
    "data.document_mask=true",
    "parallel.schedule=pipedream",
    "precision.compute=bf16 precision.residual=fp32",
    "model.reversible=true",
    "model.reversible=true precision.compute=bf16 parallel.tensor=2 parallel.sequence=true",
    /* which fuses all that can be fused */
    "parallel.device=walled",
    "parallel.device=walled model.embd_pdrop=0 model.resid_pdrop=0 model.attn_pdrop=0",
    "parallel.device=walled parallel.tensor=2 parallel.sequence=true memory.recompute=full",
    "parallel.tensor=2",
    "parallel.tensor=2 memory.recompute=full",
    "parallel.tensor=2 parallel.context=2 parallel.expert=2",
    "memory.sequence_chunks=2 memory.recompute=selective",
    "parallel.tensor=2 parallel.sequence=true",
    "parallel.tensor=4 parallel.sequence=keep",
    "parallel.context=2 data.document_mask=true",
    "parallel.context=3 model.sliding_window=2 model.attention_sinks=true",
    "parallel.context=2 parallel.context_method=ulysses model.attention_sinks=true "
    "model.sliding_window=5 model.attn_logit_softcapping=3 model.attention_scale=0.5",
    "parallel.context=3 parallel.tensor=2",
    "parallel.context=2 parallel.context_method=ulysses data.document_mask=true",
    "memory.sequence_chunks=2 data.document_mask=true",
    /* the loss of 288 rows, 256 and 32 at a time */
    "parallel.tensor=2 model.vocab_size=8300 training.micro_batch_size=12",
};
/* Of DeepSeek-V3. */
#define LATENTS                                                                                    \
    "model.q_lora_rank=6 model.kv_lora_rank=5 model.qk_nope_head_dim=3 model.qk_rope_head_dim=4 "  \
    "model.v_head_dim=2 "
static const char *const latents[] = {
    LATENTS,
    LATENTS "data.document_mask=true parallel.device=walled",
    LATENTS "parallel.tensor=2 parallel.sequence=true memory.recompute=full",
    LATENTS "parallel.tensor=2 parallel.context=2 precision.compute=bf16",
    LATENTS "parallel.context=2 parallel.context_method=ulysses memory.recompute=selective",
    LATENTS "parallel.tensor=2 memory.sequence_chunks=2",
};
/* Of Switch. */
static const char *const codes[] = {
    "model.hidden_act=relu memory.encode=fp8 parallel.device=walled precision.compute=bf16",
    "memory.encode=fp10 memory.encode_norms=true parallel.tensor=2 parallel.sequence=true",
};
static const char *const activations[] = {
    "model.hidden_act=gelu_new model.mlp_bias=true model.moe_shared_experts=1 "
    "parallel.device=walled",
    "model.hidden_act=swiglu",
    "model.hidden_act=relu2 model.moe_shared_experts=1",
    "model.hidden_act=relu2 model.mlp_bias=true model.moe_shared_experts=1 "
    "parallel.device=walled",
    "model.hidden_act=relu model.mlp_bias=true model.moe_shared_experts=1 "
    "parallel.device=walled",
    "model.hidden_act=gelu model.mlp_bias=true model.moe_shared_experts=1 "
    "parallel.device=walled",
    "model.hidden_act=gelu model.embedding_multiplier=3 model.residual_multiplier=0.5 "
    "model.logits_scaling=4 model.final_logit_softcapping=2 model.moe_shared_experts=1 "
    "parallel.tensor=2",
    "model.hidden_act=geglu model.norm_unit_offset=true model.head_dim=4 "
    "model.moe_shared_experts=1 "
    "model.partial_rotary_factor=0.5 model.rope_interleaved=true",
    "model.hidden_act=geglu_exact model.moe_shared_experts=1 model.moe_shared_gate=true",
    "model.hidden_act=swiglu_clamped model.moe_shared_experts=1 model.moe_shared_gate=true "
    "parallel.tensor=2 parallel.sequence=true memory.recompute=full",
    "model.hidden_act=relu model.moe_shared_experts=1 parallel.tensor=2 parallel.sequence=true "
    "memory.recompute=selective",
};
/* Of Mixtral. */
static const char *const gates[] = {
    "model.router_aux_loss_coef=0.1",
    "model.moe_gate=noisy_topk parallel.tensor=2 parallel.sequence=true",
    "model.moe_gate=noisy_topk model.router_load_coef=0.1",
    "model.moe_gate=hierarchical model.n_group=2 model.router_load_coef=0.1",
    "model.moe_gate=bias",
    "model.moe_gate=bias parallel.tensor=2 parallel.sequence=true memory.recompute=full "
    "model.moe_shared_experts=1",
    "model.moe_bound=1 parallel.context=2 parallel.expert=2",
    "model.moe_dropout=0.3 parallel.tensor=2 parallel.sequence=true memory.recompute=full",
    "model.moe_dropout=0.3 model.moe_bound=1 parallel.context=2 parallel.expert=2",
};
enum {
    GATES = sizeof gates / sizeof *gates,
    ACTIVATIONS = sizeof activations / sizeof *activations,
    FAMILIES = sizeof families / sizeof *families,
    GRIDS = sizeof grids / sizeof *grids,
    LOGISTIC_GRIDS = sizeof logistic_grids / sizeof *logistic_grids,
    MOST_LAYERS = 128,
    CELLS = 4 /* pixels of a pool's window */
};

/* ---- memory ---- */

/* A value of the block, a parameter or its gradient. */
typedef struct region {
    char *data, *drawn, *before, *result; /* NULL: the list has none */
    bool *read, *written;                 /* [n] as the operands say */
    int64_t n;
    size_t item;
    ech_dtype dtype;
    int64_t starts; /* of ECH_STARTS: T; 0: none */
    /* of a table's name: choice, slot, lengths, n of counts; p of places in windows; 0: another
     * value. v: a variance, also of a parameter, or sums of exponentials */
    char table;
    int64_t width;  /* of its rows */
} region;

typedef struct bench {
    const char *family, *grid;
    int64_t choices; /* model.num_experts_per_tok */
    const ech_model *model;
    const ech_block *block;
    ech_extent extent;
    ech_purpose purpose;
    ech_phase phase;
    const ech_block_call *call;
    bool accumulate;
    region *value, *param, *dparam; /* [values], [params], [params] */
    double sums[ECH_LOSS_SUMS], first_sums[ECH_LOSS_SUMS], hits[ECH_HITS], scale;
    ech_kernel_context *context;
} bench;

static bool seen[MOST_LAYERS][ECH_PHASES];

static char table_of(const char *name)
{
    if (strcmp(name, "lengths") == 0) return 'l';
    if (strstr(name, ".chosen")) return 'p';
    if (strstr(name, "variance") || strstr(name, "statistics")) return 'v';
    if (strstr(name, ".choice")) return 'c';
    return strstr(name, ".slot") ? 's' : 'n';
}

/* Element i of tables with which all of a buffer is in use: choices, slots and counts of expert 0
 * to width - 1. `other`: with which no row goes anywhere. */
static int32_t table_element(const region *r, int64_t i, bool other)
{
    if (r->table == 'l') return other ? 0 : INT16_MAX;
    if (r->table == 'c') return other ? -1 : (int32_t)(i % r->width);
    if (r->table == 's') return (int32_t)(other ? -1 : r->n - 1 - i);
    return other ? 0 : (int32_t)(r->starts / r->n + (i >= r->n - r->starts % r->n));
}

static void draw(const region *r, uint32_t stream)
{
    double drawn[4];
    for (int64_t i = 0; i < r->n; i++) {
        if (r->dtype == ECH_F64) {
            if (i % 4 == 0)
                ech_random_normals((ech_random_key){.seed = 3, .stream = stream}, (uint64_t)i / 4,
                                   drawn);
            ((double *)(void *)r->drawn)[i] =
                r->table == 'v' ? 0.5 + fabs(drawn[i % 4]) : drawn[i % 4];
        } else if (r->dtype == ECH_U8) { /* codes, and cells of windows */
            r->drawn[i] = (char)(i % CELLS);
        } else if (r->dtype == ECH_F32) {
            ((float *)(void *)r->drawn)[i] = i % 2 ? 0.5f : 1;
        } else if (r->table) {
            ((int32_t *)(void *)r->drawn)[i] = table_element(r, i, false);
        } else if (!r->starts) {
            ((int32_t *)(void *)r->drawn)[i] = (int32_t)(7 * i % CUT_MODEL_IDS);
        }
    }
}

static region make_region(int64_t n, ech_dtype dtype, int64_t starts, uint32_t stream, char table,
                          int64_t width)
{
    region r = {.n = n,
                .dtype = dtype,
                .item = ech_dtype_bytes(dtype),
                .starts = starts,
                .table = table,
                .width = width};
    r.data = ech_calloc((size_t)n + 1, r.item);
    r.drawn = ech_calloc((size_t)n + 1, r.item);
    r.before = ech_calloc((size_t)n + 1, r.item);
    r.result = ech_calloc((size_t)n + 1, r.item);
    r.read = ech_calloc((size_t)n + 1, sizeof *r.read);
    r.written = ech_calloc((size_t)n + 1, sizeof *r.written);
    draw(&r, stream);
    return r;
}

static void free_region(region *r)
{
    free(r->data);
    free(r->drawn);
    free(r->before);
    free(r->result);
    free(r->read);
    free(r->written);
}

/* Not a number, another token, another beginning of its document. */
static void spoil(const region *r, int64_t i)
{
    if (r->dtype == ECH_F64)
        ((double *)(void *)r->data)[i] = (double)NAN;
    else if (r->dtype == ECH_F32)
        ((float *)(void *)r->data)[i] = NAN;
    else if (r->dtype == ECH_U8)
        r->data[i] = (char)((i + 1) % CELLS);
    else if (r->table)
        ((int32_t *)(void *)r->data)[i] = table_element(r, i, true);
    else if (r->starts)
        ((int32_t *)(void *)r->data)[i] = (int32_t)(i % r->starts);
    else
        ((int32_t *)(void *)r->data)[i] = (int32_t)((7 * i + 1) % CUT_MODEL_IDS);
}

static int regions(const bench *b)
{
    return (int)b->block->value.n + 2 * (int)b->model->param.n;
}

static region *region_at(const bench *b, int i)
{
    int values = (int)b->block->value.n, params = (int)b->model->param.n;
    if (i < values) return &b->value[i];
    return i < values + params ? &b->param[i - values] : &b->dparam[i - values - params];
}

static region *region_of(const bench *b, const ech_operand *o)
{
    if (ech_operand_is_value(o)) return &b->value[o->value];
    return o->port == ECH_PORT_PARAM ? &b->param[o->value] : &b->dparam[o->value];
}

static void open_regions(bench *b)
{
    b->value = ech_calloc(b->block->value.n, sizeof *b->value);
    b->param = ech_calloc(b->model->param.n, sizeof *b->param);
    b->dparam = ech_calloc(b->model->param.n, sizeof *b->dparam);
    for (size_t v = 0; v < b->block->value.n; v++) {
        const ech_block_value *value = &b->block->value.at[v];
        if (value->base >= 0 || !(value->purposes & 1u << b->purpose)) continue;
        bool starts = value->source == ECH_FROM_BATCH && value->slot == ECH_STARTS;
        bool lengths = value->source == ECH_FROM_BATCH && value->slot == ECH_LENGTHS;
        bool table = value->role == ECH_ROLE_TABLE || lengths;
        bool sums = strstr(value->name, "statistics"); /* of exponentials: positive */
        int64_t width = value->shape.size[value->shape.dims - 1];
        b->value[v] = make_region(ech_shape_count(&value->shape, b->extent),
                                  ech_type_dtype(value->type, value->dtype, ech_types_of(ECH_F64)),
                                  starts  ? b->extent.sequence
                                  : table ? b->extent.batch * b->extent.tokens * b->choices
                                          : 0,
                                  (uint32_t)v, table || sums ? table_of(value->name) : 0, width);
    }
    for (size_t p = 0; p < b->model->param.n; p++) {
        int64_t n =
            ech_shape_count(&b->model->param.at[p].shape, ech_extent_of_params(b->extent.sharding));
        if (!ech_block_uses(b->block, (int)p)) continue;
        bool variance = strstr(b->model->param.at[p].name, "variance");
        b->param[p] = make_region(n, ECH_F64, 0, 1000 + (uint32_t)p, variance ? 'v' : 0, 0);
        b->dparam[p] = make_region(n, ECH_F64, 0, 2000 + (uint32_t)p, 0, 0);
    }
}

static void close_regions(bench *b)
{
    for (int i = 0; i < regions(b); i++) free_region(region_at(b, i));
    free(b->value);
    free(b->param);
    free(b->dparam);
}

/* ---- a call with all ports ---- */

static ech_tensor tensor_of(const bench *b, int value, int like)
{
    if (value < 0) return (ech_tensor){0};
    char *data = b->value[ech_block_base(b->block, value)].data;
    return data ? ech_block_tensor(b->block, like, b->extent, ech_types_of(ECH_F64), data)
                : (ech_tensor){0};
}

static ech_tensor param_tensor(const bench *b, const region *r, int param)
{
    const ech_shape *shape = &b->model->param.at[param].shape;
    int64_t sizes[ECH_MAX_DIMS];
    ech_shape_resolve(shape, ech_extent_of_params(b->extent.sharding), sizes);
    return ech_tensor_view(r->data, ECH_F64, shape->dims, sizes);
}

static bool is_forward(const bench *b)
{
    return b->phase == ECH_FORWARD || b->call->recompute;
}

/* Gradients of parameters, or partials of layer states. */
static bool writes_gradients(const bench *b)
{
    bool partials = b->call->node >= 0 &&
                    b->block->node.at[b->call->node].layer->writes_partials;
    return !is_forward(b) || partials;
}

/* A value of the forward: in the backward, itself or what is made again for it. */
static ech_tensor tensor_now(const bench *b, int value)
{
    bool backward = b->phase != ECH_FORWARD;
    return tensor_of(b, backward ? ech_block_backward_value(b->block, value) : value, value);
}

static void take_all(const bench *b, const ech_node *node, ech_call *call)
{
    const ech_block_call *c = b->call;
    for (int i = 0; i < node->ins; i++) {
        if (node->in[i] < 0) continue; /* in a cache */
        call->in[i] = tensor_now(b, node->in[i]);
        call->din[i] = tensor_of(b, c->din[i], node->in[i]);
        call->add[i] = tensor_of(b, c->add[i], node->in[i]);
    }
    for (int i = 0; i < node->outs; i++) {
        call->out[i] = tensor_now(b, node->out[i]);
        call->dout[i] = tensor_of(b, c->dout[i], node->out[i]);
    }
    for (int i = 0; i < node->keeps; i++) call->keep[i] = tensor_now(b, node->keep[i]);
    for (int i = 0; i < node->params; i++) {
        int p = node->param[i];
        call->param[i] = param_tensor(b, &b->param[p], p);
        if (writes_gradients(b)) call->dparam[i] = param_tensor(b, &b->dparam[p], p);
        call->accumulate[i] = b->accumulate;
    }
}

/* Returns a rank with neighbours on both sides, if there are three or more. */
static int context_index(const bench *b)
{
    return b->model->options.sharding.context > 2 ? 1 : 0;
}

/* Returns the rows of the sequence chunk whose F has carried rows of earlier chunks, and whose B
 * has carried rows of later ones. */
static ech_rows rows_of(const bench *b)
{
    const ech_block_options *options = &b->model->options;
    ech_rows rows = ech_context_rows(options, b->extent, 4, context_index(b));
    if (options->sequence_chunks > 1 && b->phase == ECH_FORWARD) rows.start[0] = b->extent.tokens;
    if (b->purpose == ECH_GENERATE) rows.position = &position;
    return rows;
}

static ech_call make_call(bench *b)
{
    const ech_sharding *sharding = &b->extent.sharding;
    return (ech_call){.kernels = ech_kernels_ref(ECH_F64),
                      .state_share = 1,
                      .context = b->context,
                      .extent = b->extent,
                      .purpose = b->purpose,
                      .seed = 11,
                      .step = &training_step,
                      .layer = 3,
                      .options = &b->model->options,
                      .rows = rows_of(b),
                      .shard = rows_of(b),
                      .tensor_size = sharding->tensor > 1 ? sharding->tensor : 1,
                      .context_index = context_index(b),
                      .context_size = sharding->context > 1 ? sharding->context : 1,
                      .loss_sums = b->sums,
                      .hits = b->hits,
                      .loss_factor = &b->scale,
                      .group_factor = &b->scale};
}

static size_t scratch_of(const bench *b, const ech_node *node)
{
    ech_scratch_query query = {.block = b->block,
                               .node = node,
                               .kernels = ech_kernels_ref(ECH_F64),
                               .threads = 1,
                               .extent = b->extent,
                               .phase = is_forward(b) ? ECH_FORWARD : b->phase,
                               .purpose = b->purpose};
    const ech_operand *o = NULL;
    while ((o = ech_call_next(b->block, b->call, b->purpose, o)))
        if (o->port == ECH_PORT_SCRATCH) return node->layer->scratch(&query);
    return 0;
}

static void dispatch(bench *b, const ech_call *call)
{
    const ech_layer *layer = call->node->layer;
    size_t bytes = scratch_of(b, call->node), held = (bytes + 127) / 64 * 64;
    b->context->scratch = bytes ? aligned_alloc(64, held) : NULL;
    b->context->scratch_bytes = bytes;
    if (bytes) memset(b->context->scratch, 0xff, held); /* not numbers */
    if (is_forward(b))
        layer->forward(call);
    else if (b->phase == ECH_BACKWARD_INPUT)
        layer->backward_input(call);
    else
        layer->backward_weight(call);
    free(b->context->scratch);
}

/* On memory as it is now. `over`: an operand that is written where the input of its index lies, or
 * NULL. */
static void run(bench *b, const ech_operand *over)
{
    ech_call call = make_call(b);
    memset(b->sums, 0, sizeof b->sums);
    b->scale = 0.25;
    if (b->call->node < 0) {
        call.add[0] = tensor_of(b, b->call->add[0], b->call->add[0]);
        call.dout[0] = tensor_of(b, b->call->dout[0], b->call->dout[0]);
        call.din[0] = tensor_of(b, b->call->din[0], b->call->din[0]);
        call.kernels->add(call.context, &call.add[0], &call.dout[0], &call.din[0]);
        return;
    }
    call.node = &b->block->node.at[b->call->node];
    take_all(b, call.node, &call);
    if (over) call.port[over->port][over->index].data = call.in[over->index].data;
    dispatch(b, &call);
}

/* ---- what is said ---- */

static void mark(const region *r, bool *marks, const ech_tensor *x)
{
    int64_t first = ((char *)x->data - r->data) / (int64_t)r->item, count = ech_tensor_count(x);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first, left = i;
        for (int d = x->dims - 1; d >= 0; d--) {
            at += left % x->shape[d] * x->stride[d];
            left /= x->shape[d];
        }
        marks[at] = true;
    }
}

static void mark_operand(const bench *b, const ech_operand *o)
{
    region *r = region_of(b, o);
    ech_tensor x =
        ech_operand_is_value(o) ? tensor_of(b, o->value, o->like) : param_tensor(b, r, o->value);
    bool adds = o->mode == ECH_ADD && (o->port != ECH_PORT_DPARAM || b->accumulate);
    if (o->mode == ECH_READ || adds) mark(r, r->read, &x);
    if (o->mode != ECH_READ) mark(r, r->written, &x);
}

static void mark_all(const bench *b)
{
    for (int i = 0; i < regions(b); i++) {
        region *r = region_at(b, i);
        if (!r->data) continue;
        memset(r->read, 0, (size_t)r->n * sizeof *r->read);
        memset(r->written, 0, (size_t)r->n * sizeof *r->written);
    }
    for (const ech_operand *o = NULL; (o = ech_call_next(b->block, b->call, b->purpose, o));)
        if (o->port != ECH_PORT_SCRATCH) mark_operand(b, o);
}

/* ---- what is done ---- */

static void complain(const bench *b, int at, const char *what)
{
    int values = (int)b->block->value.n, params = (int)b->model->param.n;
    const char *name = at < 0        ? "the loss"
                       : at < values ? b->block->value.at[at].name
                                     : b->model->param.at[(at - values) % params].name;
    fail_msg("%s %s, %s, purpose %d, phase %d, call %d (%s%s): %s %s%s", b->family, b->grid,
             b->block->name, (int)b->purpose, (int)b->phase,
             (int)(b->call - b->block->program[b->phase].at),
             b->call->node < 0 ? "a sum" : b->block->node.at[b->call->node].layer->name,
             b->call->recompute ? " recompute" : "", what,
             at >= values + params ? "the gradient of " : "", name);
}

/* Memory as drawn, but for tables that are written: that of a single row has one place to say.
 * spoiled: all that is not said to be read, or with `only`, all of that region. */
static void prepare(const bench *b, bool spoiled, const region *only)
{
    for (int i = 0; i < regions(b); i++) {
        region *r = region_at(b, i);
        if (!r->data) continue;
        memcpy(r->data, r->drawn, (size_t)r->n * r->item);
        for (int64_t k = 0; k < r->n; k++)
            if (r == only || ((spoiled || (r->table && r->written[k])) && !r->read[k])) spoil(r, k);
        memcpy(r->before, r->data, (size_t)r->n * r->item);
    }
}

static bool differs(const region *r, int64_t k, const char *other)
{
    return memcmp(r->data + (size_t)k * r->item, other + (size_t)k * r->item, r->item) != 0;
}

/* Whether what was written differs from the first result; *at: where. */
static bool is_other_result(const bench *b, int *at)
{
    *at = -1;
    if (memcmp(b->sums, b->first_sums, sizeof b->sums) != 0) return true;
    for (*at = 0; *at < regions(b); ++*at) {
        const region *r = region_at(b, *at);
        for (int64_t k = 0; r->data && k < r->n; k++)
            if (r->written[k] && differs(r, k, r->result)) return true;
    }
    return false;
}

static void check_unwritten(const bench *b)
{
    for (int i = 0; i < regions(b); i++) {
        const region *r = region_at(b, i);
        for (int64_t k = 0; r->data && k < r->n; k++)
            if (!r->written[k] && differs(r, k, r->before)) complain(b, i, "writes");
    }
}

static void keep_result(bench *b)
{
    for (int i = 0; i < regions(b); i++) {
        region *r = region_at(b, i);
        bool written = false, changed = false;
        for (int64_t k = 0; r->data && k < r->n; k++) {
            written |= r->written[k];
            changed |= differs(r, k, r->before);
        }
        if (written && !changed) complain(b, i, "does not write");
        if (r->data) memcpy(r->result, r->data, (size_t)r->n * r->item);
    }
    memcpy(b->first_sums, b->sums, sizeof b->sums);
}

static bool is_read(const region *r)
{
    bool read = false;
    for (int64_t k = 0; r->data && k < r->n; k++) read |= r->read[k];
    return read;
}

/* The call writes its result over its input. It reads each part before it writes it. */
static void check_overwriting(bench *b, const ech_operand *o)
{
    int from = ech_operand_overwrites(b->block, b->call, o);
    if (from < 0) return;
    prepare(b, false, NULL);
    run(b, o);
    const region *there = &b->value[from], *result = &b->value[o->value];
    int at;
    assert_int_equal(there->n, result->n);
    memcpy(result->data, there->data, (size_t)there->n * there->item);
    if (is_other_result(b, &at)) complain(b, from, "cannot overwrite");
}

/* Its kernel takes logits and targets, too, and looks at their shapes. */
static bool is_loss_alone(const bench *b)
{
    return b->phase == ECH_FORWARD && b->call->node >= 0 &&
           b->block->node.at[b->call->node].layer == &ech_layer_row_head_loss;
}

static void check_call(bench *b)
{
    int at;
    mark_all(b);
    prepare(b, false, NULL);
    run(b, NULL);
    check_unwritten(b);
    keep_result(b);
    prepare(b, true, NULL);
    run(b, NULL);
    check_unwritten(b);
    if (is_other_result(b, &at)) complain(b, at, "reads something else for");
    for (int i = 0; i < regions(b) && !is_loss_alone(b); i++) {
        if (!is_read(region_at(b, i))) continue;
        prepare(b, false, region_at(b, i));
        run(b, NULL);
        if (!is_other_result(b, &at)) complain(b, i, "does not read");
    }
    for (const ech_operand *o = NULL; (o = ech_call_next(b->block, b->call, b->purpose, o));)
        if (o->overwrites) check_overwriting(b, o);
}

/* ---- all calls ---- */

/* A collective moves one value to another, or works in place. One that moves rows by counts also
 * reads tables, and each of its rounds writes a part. */
static void check_collective(const bench *b)
{
    const ech_operand *from = ech_call_next(b->block, b->call, b->purpose, NULL), *to, *end;
    const ech_node *node = &b->block->node.at[b->call->node];
    const ech_layer *layer = node->layer;
    bool part = is_forward(b) ? node->goes_on : node->is_part;
    for (int i = 1; i < node->ins && ech_node_goes_by_counts(node); i++) {
        assert_int_equal(from->mode, ECH_READ);
        from = ech_call_next(b->block, b->call, b->purpose, from);
    }
    to = ech_call_next(b->block, b->call, b->purpose, from);
    end = ech_call_next(b->block, b->call, b->purpose, to);
    assert_true(from && to && !end);
    assert_int_equal(from->mode, ECH_READ);
    assert_int_equal(to->mode, part ? ECH_ADD : ECH_WRITE);
    assert_int_equal(from->value == to->value, layer->in_place);
}

static void note_seen(const bench *b)
{
    for (int i = 0; b->call->node >= 0 && i < ech_layers_count; i++)
        if (b->block->node.at[b->call->node].layer == ech_layers[i])
            seen[i][is_forward(b) ? ECH_FORWARD : b->phase] = true;
}

/* Over an expert group tables fill slices where a bound says that these have room for as many rows
 * as there are. */
static bool has_room_left(const bench *b)
{
    if (b->model->options.sharding.expert < 2 || strstr(b->grid, "model.moe_bound=1 "))
        return false;
    for (const ech_operand *o = NULL; (o = ech_call_next(b->block, b->call, b->purpose, o));)
        if (ech_operand_is_value(o) &&
            ech_shape_has(&b->block->value.at[o->value].shape, ECH_AXIS_SLICE))
            return true;
    return false;
}

/* Then a round's counts are those of all, or none: tests/kernel looks at them. */
static bool counts_slice(const bench *b)
{
    return b->call->node >= 0 &&
           b->block->node.at[b->call->node].layer == &ech_layer_row_slice_counts;
}

static void check_program(bench *b)
{
    for (size_t i = 0; i < b->block->program[b->phase].n; i++) {
        b->call = &b->block->program[b->phase].at[i];
        if (!(b->call->purposes & 1u << b->purpose)) {
            assert_null(ech_call_next(b->block, b->call, b->purpose, NULL));
            continue;
        }
        if (ech_call_exchange(b->block, b->call, b->phase, b->purpose)) {
            check_collective(b);
            continue;
        }
        if (has_room_left(b) || counts_slice(b)) continue;
        for (int accumulate = 0; accumulate <= writes_gradients(b); accumulate++) {
            b->accumulate = accumulate;
            check_call(b);
        }
        note_seen(b);
    }
}

static ech_extent extent_of(const ech_model *model, ech_purpose purpose)
{
    const ech_block_options *options = &model->options;
    int shares = (options->sharding.context > 1 ? options->sharding.context : 1) *
                 (options->sequence_chunks > 1 ? options->sequence_chunks : 1);
    int64_t tokens = options->sequence / shares;
    int64_t batch = options->rows ? options->rows / tokens : BATCH;
    return (ech_extent){.batch = purpose == ECH_GENERATE ? 1 : batch,
                        .tokens = purpose == ECH_GENERATE ? 1 : tokens,
                        .sequence = options->sequence,
                        .sharding = options->sharding};
}

/* Tokens are generated one at a time where nothing is cut, by a model that has logits of the
 * next. */
static bool has_lists(const ech_model *model, ech_purpose purpose)
{
    const ech_block_options *options = &model->options;
    return purpose != ECH_GENERATE ||
           (model->logits >= 0 && options->sharding.tensor < 2 && options->sharding.context < 2 &&
            options->sequence_chunks < 2);
}

/* ---- images ---- */

static int add_filters(ech_model *model, ech_block *block, int64_t in, int64_t out)
{
    const ech_shape shape = {
        .dims = 4,
        .axis = {ECH_AXIS_CHANNELS, ECH_AXIS_CHANNELS, ECH_AXIS_HEIGHT, ECH_AXIS_WIDTH},
        .size = {out, in, 3, 3}};
    return ech_model_matrix(model, block, "conv.weight", shape, 1);
}

static int add_vector(ech_model *model, ech_block *block, const char *name, int64_t n)
{
    return ech_model_vector(model, block, name, ECH_AXIS_CHANNELS, n, ECH_INIT_ONE);
}

static int add_statistic(ech_model *model, ech_block *block, const char *name, int64_t n)
{
    return ech_model_state(model, block, name, ech_shape_1d(ECH_AXIS_CHANNELS, n),
                           ech_layer_batch_norm_commit, 0.1);
}

/* Convolution, norm, both pools; then a row per sample, and its classes. encode: a choice of
 * memory.encode. replicas: whose rows the norm normalizes together. */
static ech_model *image_model(int encode, int replicas)
{
    enum { C = 3, O = 4, CLASSES = CUT_MODEL_IDS };
    const ech_filter nine = {{3, 3}, {1, 1}, {1, 1}}, four = {{2, 2}, {2, 2}, {0, 0}};
    ech_model *model = ech_calloc(1, sizeof *model);
    model->pool = ech_pool_create();
    model->logits = -1;
    model->options = (ech_block_options){.samples = ECH_SAMPLES_OF_images,
                                         .image = {5, 4, C},
                                         .rows = BATCH,
                                         .sequence = 1,
                                         .wide = ECH_F64,
                                         .loss_rows = 256,
                                         .norm_replicas = replicas,
                                         .encode = encode};
    ech_block *block = ech_model_block(model, "features");
    int x = ech_block_input(block, "images", ech_shape_images(5, 4, C));
    x = ech_layer_conv2d(block, x, add_filters(model, block, C, O),
                         add_vector(model, block, "conv.bias", O), &nine, O);
    ech_layer_batch_norm_args norm = {.step_samples = BATCH, .eps = 1e-5};
    norm.gain = add_vector(model, block, "norm.weight", O);
    norm.bias = add_vector(model, block, "norm.bias", O);
    norm.running_mean = add_statistic(model, block, "norm.mean", O);
    norm.running_variance = add_statistic(model, block, "norm.variance", O);
    x = ech_layer_batch_norm(block, x, &norm);
    x = ech_layer_activation(block, ECH_ACTIVATION_RELU, x, -1);
    x = ech_layer_max_pool(block, x, &four);
    ech_block_output(block, ech_layer_mean_pool(block, x, &(ech_filter){{1, 2}, {1, 1}, {0, 0}}));

    block = ech_model_block(model, "classifier");
    x = ech_layer_flatten(block, ech_block_input(block, "images", ech_shape_images(2, 1, O)));
    int weight = ech_model_matrix(model, block, "fc.weight",
                                  ech_shape_2d(ECH_AXIS_VOCAB, CLASSES, ECH_AXIS_MODEL, 2 * O), 1);
    int bias = ech_model_vector(model, block, "fc.bias", ECH_AXIS_VOCAB, CLASSES, ECH_INIT_ZERO);
    ech_layer_classes_loss(block, x, weight, bias, CLASSES, 0);
    for (size_t k = 0; k < model->block.n; k++)
        ech_block_finish(model->block.at[k], model->param.at);
    return model;
}

/* Takes over the model. */
static void check_model_of(ech_model *model, const char *family, const char *grid)
{
    bench b = {.family = family, .grid = grid, .model = model};
    b.choices = strcmp(family, "switch") == 0 ? 1 : 2;
    assert_int_equal(ech_kernel_context_create(1, &b.context), ECH_OK);
    for (b.purpose = 0; b.purpose < ECH_PURPOSES; b.purpose++) {
        if (!has_lists(model, b.purpose)) continue;
        b.extent = extent_of(model, b.purpose);
        for (size_t k = 0; k < model->block.n; k++) {
            b.block = model->block.at[k];
            open_regions(&b);
            static const ech_phase order[] = {ECH_FORWARD, ECH_RECOMPUTE, ECH_BACKWARD_INPUT,
                                              ECH_BACKWARD_WEIGHT};
            for (int p = 0; p < (b.purpose == ECH_TRAIN ? ECH_PHASES : 1); p++) {
                b.phase = order[p];
                check_program(&b);
            }
            close_regions(&b);
        }
    }
    ech_kernel_context_destroy(b.context);
    ech_model_destroy(model);
}

static void check_model(const char *family, const char *grid)
{
    check_model_of(cut_model(family, grid), family, grid);
}

TEST(test_operands)
{
    assert_true(ech_layers_count <= MOST_LAYERS);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) check_model("gpt2", codes[i]);
    for (int f = 0; f < FAMILIES; f++)
        for (int g = 0; g < GRIDS; g++) check_model(families[f], grids[g]);
    for (int g = 0; g < LOGISTIC_GRIDS; g++) check_model("logistic", logistic_grids[g]);
    check_model_of(image_model(ECH_ENCODE_NONE, 1), "images", "");
    check_model_of(image_model(ECH_ENCODE_FP8, 1), "images", "fp8");
    check_model_of(image_model(ECH_ENCODE_NONE, 2), "images", "synchronized norms");
    for (int g = 0; g < GATES; g++) check_model("mixtral", gates[g]);
    for (int a = 0; a < ACTIVATIONS; a++) check_model("switch", activations[a]);
    for (size_t i = 0; i < sizeof latents / sizeof *latents; i++)
        check_model("deepseek_v3", latents[i]);
    for (int i = 0; i < ech_layers_count; i++) {
        const ech_layer *layer = ech_layers[i];
        if (layer == &ech_layer_row_slice_counts) continue;
        /* Which elements they access depends on the data (tests/kernel/test_codes.c). */
        if (layer == &ech_layer_row_encode_sparse || layer == &ech_layer_row_decode_sparse)
            continue;
        bool has[ECH_PHASES] = {layer->forward != NULL, layer->backward_input != NULL,
                                layer->backward_weight != NULL};
        for (int phase = 0; phase < ECH_PHASES; phase++)
            if (has[phase] && !seen[i][phase])
                fail_msg("no call of phase %d of layer %s was looked at", phase, layer->name);
    }
}

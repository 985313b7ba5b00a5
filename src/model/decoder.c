/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoder-only transformers, built from the properties of the model section: layers x +
 * attention(norm(x)), x + mlp(norm(x)), a final norm and the head. Radford et al. 2019 (GPT-2);
 * Touvron et al. 2023, arXiv:2302.13971 (RMSNorm, rotary positions and SwiGLU). Tensors have the
 * names of the family's files.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/family.h"

char *ech_builder_name(const ech_builder *b, const char *role, const char *what)
{
    ECH_ASSERT(role);
    return b->at ? ech_pool_format(b->model->pool, "%s.%s.%s", b->at, role, what)
                 : ech_pool_format(b->model->pool, "%s.%s", role, what);
}

int ech_builder_linear(const ech_builder *b, const char *role, int x, ech_axis in_axis, int64_t in,
                       ech_axis axis, int64_t out, bool bias, double std)
{
    bool in_first = b->names.in_first;
    ech_shape shape =
        in_first ? ech_shape_2d(in_axis, in, axis, out) : ech_shape_2d(axis, out, in_axis, in);
    int w = ech_model_matrix(b->model, b->block, ech_builder_name(b, role, "weight"), shape, std);
    int shift = -1;
    if (bias)
        shift = ech_model_vector(b->model, b->block, ech_builder_name(b, role, "bias"), axis, out,
                                 ECH_INIT_ZERO);
    int y = ech_layer_linear(b->block, x, w, shift, in_first, axis, out);
    return ech_adapters_add(b, role, x, in_axis, in, axis, out, y);
}

/* Over the last axis of x, of `size` numbers. */
static int norm_over(const ech_builder *b, const char *role, int x, ech_axis axis, int64_t size)
{
    bool offset = b->config->model.norm_unit_offset;
    int gain = ech_model_vector(b->model, b->block, ech_builder_name(b, role, "weight"), axis, size,
                                offset ? ECH_INIT_ZERO : ECH_INIT_ONE);
    if (b->config->model.norm == ECH_NORM_RMS)
        return ech_layer_rmsnorm(b->block, x, gain, offset, b->config->model.rms_norm_eps);
    int shift = ech_model_vector(b->model, b->block, ech_builder_name(b, role, "bias"), axis, size,
                                 ECH_INIT_ZERO);
    return ech_layer_layernorm(b->block, x, gain, shift, b->config->model.layer_norm_epsilon);
}

static int norm(const ech_builder *b, const char *role, int x)
{
    return norm_over(b, role, x, ECH_AXIS_MODEL, b->config->model.hidden_size);
}

/* ---- plugins' layers ---- */

static echelon_sizes sizes_of(const ech_config *config, int64_t layer)
{
    return (echelon_sizes){.hidden_size = config->model.hidden_size,
                           .intermediate_size = config->model.intermediate_size,
                           .num_attention_heads = config->model.num_attention_heads,
                           .num_key_value_heads = config->model.num_key_value_heads,
                           .head_dim = config->model.head_dim,
                           .num_hidden_layers = config->model.num_hidden_layers,
                           .layer = layer};
}

static int plugged(const ech_builder *b, const echelon_layer *row, int x)
{
    static const ech_initializer initializers[] = {[ECHELON_INIT_NORMAL] = ECH_INIT_NORMAL,
                                                   [ECHELON_INIT_ZERO] = ECH_INIT_ZERO,
                                                   [ECHELON_INIT_ONE] = ECH_INIT_ONE};
    echelon_sizes sizes = sizes_of(b->config, b->layer);
    echelon_layer_needs needs = ech_layer_plugged_needs(row, &sizes);
    int weight[ECHELON_MOST_WEIGHTS];
    for (int i = 0; i < needs.weights; i++) {
        const echelon_weight *w = &needs.weight[i];
        ech_shape shape = ech_layer_plugged_shape(&needs, i);
        const char *name = ech_pool_format(b->model->pool, "%s.%s", b->at, w->name);
        double std = w->std > 0 ? w->std : b->model->std;
        weight[i] = shape.dims == 2 ? ech_model_matrix(b->model, b->block, name, shape, std)
                                    : ech_model_vector(b->model, b->block, name, shape.axis[0],
                                                       shape.size[0], ECH_INIT_NORMAL);
        b->model->param.at[weight[i]].initializer = initializers[w->initializer];
        b->model->param.at[weight[i]].std = std;
    }
    return ech_layer_plugged(b->block, x, row, &sizes, weight);
}

static ech_status check_plugged(const ech_config *config, const echelon_layer *row)
{
    ECH_FREED_TEXT why = {0};
    for (int64_t layer = 0; row && layer < config->model.num_hidden_layers; layer++) {
        echelon_sizes sizes = sizes_of(config, layer);
        if (ech_layer_plugged_fits(row, &sizes, (int)config->parallel.tensor, &why)) continue;
        return ech_config_complain(config, "model.mapping", "the plugin's layer %s %s", row->name,
                                   why.at);
    }
    return ECH_OK;
}

/* ---- attention ---- */

/* Numbers of a head that are rotated. */
static int64_t rotary_width(const ech_config *config)
{
    if (config->model.kv_lora_rank > 0) return config->model.qk_rope_head_dim;
    return (int64_t)((double)config->model.head_dim * config->model.partial_rotary_factor);
}

/* Reads n positive numbers that blanks divide. False: others, or not as many. */
static bool read_numbers(const char *text, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++) {
        char *end;
        to[i] = strtod(text, &end);
        if (end == text || !(to[i] > 0) || !isfinite(to[i])) return false;
        text = end;
    }
    return text[strspn(text, " ")] == 0;
}

/* Whether sequences are longer than in pretraining. */
static bool is_long(const ech_config *config)
{
    return config->data.sequence_length >
           config->model.rope_scaling_original_max_position_embeddings;
}

/* Of LongRoPE: the key with the divisors of the run's sequences. */
static const char *divisors_of(const ech_config *config)
{
    return is_long(config) ? config->model.rope_scaling_long_factor
                           : config->model.rope_scaling_short_factor;
}

/* Kinds of scaling, and the keys that each reads. */
static const struct scaling {
    ech_rope_scaling scaling;
    const char *reads;
} scalings[] = {
#define FACTOR   "model.rope_scaling_factor "
#define ORIGINAL "model.rope_scaling_original_max_position_embeddings "
    [ECH_ROPE_SCALING_NONE] = {ECH_ROPE_UNSCALED, ""},
    [ECH_ROPE_SCALING_LINEAR] = {ECH_ROPE_LINEAR, FACTOR},
    [ECH_ROPE_SCALING_DYNAMIC] = {ECH_ROPE_DYNAMIC, FACTOR ORIGINAL},
    [ECH_ROPE_SCALING_LLAMA3] = {ECH_ROPE_LLAMA3,
                                 FACTOR ORIGINAL "model.rope_scaling_low_freq_factor "
                                                 "model.rope_scaling_high_freq_factor"},
    [ECH_ROPE_SCALING_YARN] = {ECH_ROPE_YARN, FACTOR ORIGINAL
                               "model.rope_scaling_beta_fast model.rope_scaling_beta_slow "
                               "model.rope_scaling_truncate model.rope_scaling_mscale "
                               "model.rope_scaling_mscale_all_dim "
                               "model.rope_scaling_attention_factor"},
    [ECH_ROPE_SCALING_LONGROPE] = {ECH_ROPE_LONGROPE,
                                   FACTOR ORIGINAL "model.rope_scaling_short_factor "
                                                   "model.rope_scaling_long_factor "
                                                   "model.rope_scaling_attention_factor"},
};

static ech_rope rope_of(const ech_builder *b)
{
    const ech_config *config = b->config;
    int64_t width = rotary_width(config);
    ech_rope rope = {.theta = config->model.rope_theta,
                     .width = width,
                     .neighbours = config->model.rope_interleaved,
                     .scaling = scalings[config->model.rope_scaling].scaling,
                     .factor = config->model.rope_scaling_factor,
                     .original_positions =
                         (double)config->model.rope_scaling_original_max_position_embeddings,
                     .positions = (double)config->data.sequence_length,
                     .low_freq_factor = config->model.rope_scaling_low_freq_factor,
                     .high_freq_factor = config->model.rope_scaling_high_freq_factor,
                     .beta_fast = config->model.rope_scaling_beta_fast,
                     .beta_slow = config->model.rope_scaling_beta_slow,
                     .truncate = config->model.rope_scaling_truncate,
                     .mscale = config->model.rope_scaling_mscale,
                     .mscale_all_dim = config->model.rope_scaling_mscale_all_dim,
                     .attention_factor = config->model.rope_scaling_attention_factor};
    double local = config->model.rope_local_base_freq;
    if (local > 0 && ech_model_window(config, b->layer) > 0) {
        rope.theta = local;
        rope.scaling = ECH_ROPE_UNSCALED;
    }
    if (rope.scaling == ECH_ROPE_LONGROPE) {
        double *divisors = ech_pool_alloc(b->model->pool, (size_t)(width / 2) * sizeof *divisors);
        ECH_ASSERT(read_numbers(divisors_of(config), width / 2, divisors));
        rope.divisors = divisors;
    }
    return rope;
}

/* Queries, keys and values as heads. */
typedef struct projections {
    int q, k, v;
} projections;

/* A product's columns as heads of that shape, normalized together or each by itself, and rotated
 * by their positions. */
static int prepare_heads(const ech_builder *b, const char *norm_role, int x, ech_shape shape,
                         int starts)
{
    if (b->config->model.head_norm == ECH_HEAD_NORM_FULL)
        x = norm_over(b, norm_role, x, shape.axis[2], shape.size[2] * shape.size[3]);
    x = ech_block_view(b->block, x, 0, shape);
    if (b->config->model.head_norm == ECH_HEAD_NORM_HEAD)
        x = norm_over(b, norm_role, x, ECH_AXIS_HEAD_DIM, b->config->model.head_dim);
    if (!ech_model_rotates(b->config, b->layer)) return x;
    const ech_rope rope = rope_of(b);
    return ech_layer_rotary(b->block, x, &rope, starts);
}

static projections project_apart(const ech_builder *b, int x, int starts)
{
    const ech_config *config = b->config;
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    int64_t G = config->model.num_key_value_heads, D = config->model.head_dim;
    bool bias = config->model.qkv_bias;
    ech_shape query = ech_shape_heads(ECH_AXIS_HEADS, H, D);
    ech_shape key = ech_shape_heads(ECH_AXIS_KV_HEADS, G, D);
    projections to;
    to.q = ech_builder_linear(b, b->names.q, x, ECH_AXIS_MODEL, C, ECH_AXIS_HEADS, H * D, bias,
                              b->model->std);
    to.k = ech_builder_linear(b, b->names.k, x, ECH_AXIS_MODEL, C, ECH_AXIS_KV_HEADS, G * D, bias,
                              b->model->std);
    to.v = ech_builder_linear(b, b->names.v, x, ECH_AXIS_MODEL, C, ECH_AXIS_KV_HEADS, G * D, bias,
                              b->model->std);
    to.q = prepare_heads(b, b->names.q_norm, to.q, query, starts);
    to.k = prepare_heads(b, b->names.k_norm, to.k, key, starts);
    to.v = ech_block_view(b->block, to.v, 0, key);
    return to;
}

/* ---- latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1) ---- */

/* A latent of x (B,T,C), R wide, normalized: RMSNorm with the eps of DeepSeek's own class. */
static int latent(const ech_builder *b, const char *role, const char *norm_role, int x, int64_t R)
{
    int64_t C = b->config->model.hidden_size;
    x = ech_builder_linear(b, role, x, ECH_AXIS_MODEL, C, ECH_AXIS_LATENT, R,
                           b->config->model.qkv_bias, b->model->std);
    int gain = ech_model_vector(b->model, b->block, ech_builder_name(b, norm_role, "weight"),
                                ECH_AXIS_LATENT, R, ECH_INIT_ONE);
    return ech_layer_rmsnorm(b->block, x, gain, 0, 1e-6);
}

/* Heads of `axis`, n of them D wide, from a latent or from x itself. */
static int heads_of(const ech_builder *b, const char *role, int x, ech_axis in_axis, int64_t in,
                    ech_axis axis, int64_t n, int64_t D)
{
    x = ech_builder_linear(b, role, x, in_axis, in, axis, n * D, false, b->model->std);
    return ech_block_view(b->block, x, 0, ech_shape_heads(axis, n, D));
}

static projections project_latent(const ech_builder *b, int x, int starts)
{
    const ech_config *config = b->config;
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    int64_t R = config->model.kv_lora_rank, Q = config->model.q_lora_rank;
    int64_t N = config->model.qk_nope_head_dim, P = config->model.qk_rope_head_dim;
    const ech_axis query = ECH_AXIS_HEADS, key = ECH_AXIS_KV_HEADS, low = ECH_AXIS_LATENT;
    const ech_names *names = &b->names;
    int kv = latent(b, names->kv_a, names->kv_a_norm, x, R);
    int k_rope = ech_builder_linear(b, names->k_rope, x, ECH_AXIS_MODEL, C, ECH_AXIS_HEAD_DIM, P,
                                    config->model.qkv_bias, b->model->std);
    int from = Q ? latent(b, names->q_a, names->q_a_norm, x, Q) : x;
    const ech_axis from_axis = Q ? low : ECH_AXIS_MODEL;
    int q_nope =
        heads_of(b, Q ? names->q_b_nope : names->q_nope, from, from_axis, Q ? Q : C, query, H, N);
    int q_rope =
        heads_of(b, Q ? names->q_b_rope : names->q_rope, from, from_axis, Q ? Q : C, query, H, P);
    int k_nope = heads_of(b, names->k_nope, kv, low, R, key, H, N);
    const ech_rope rope = rope_of(b);
    return (projections){.q = ech_layer_rotary_beside(b->block, q_rope, q_nope, &rope, starts),
                         .k = ech_layer_rotary_beside(b->block, k_rope, k_nope, &rope, starts),
                         .v = heads_of(b, names->v, kv, low, R, key, H, config->model.v_head_dim)};
}

/* The factor of scores; 0: 1 / sqrt(D). */
static double scale_of(const ech_builder *b)
{
    const ech_config *config = b->config;
    if (config->model.attention_scale > 0 || config->model.kv_lora_rank == 0)
        return config->model.attention_scale;
    const ech_rope rope = rope_of(b);
    return ech_rope_scores_factor(&rope) / sqrt((double)config->model.head_dim);
}

/* ---- queries, keys and values in one product ---- */

/* One product makes all three. */
static projections project_together(const ech_builder *b, int x)
{
    const ech_config *config = b->config;
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    int64_t all = H * config->model.head_dim;
    ech_shape heads = ech_shape_heads(ECH_AXIS_HEADS, H, config->model.head_dim);
    int qkv = ech_builder_linear(b, b->names.qkv, x, ECH_AXIS_MODEL, C, ECH_AXIS_QKV, 3 * all,
                                 config->model.qkv_bias, b->model->std);
    return (projections){.q = ech_block_view(b->block, qkv, 0, heads),
                         .k = ech_block_view(b->block, qkv, all, heads),
                         .v = ech_block_view(b->block, qkv, 2 * all, heads)};
}

/* The sinks beside the output product's matrix; -1: none. */
static int sinks(const ech_builder *b)
{
    const char *o = b->names.o, *end = strrchr(o, '.');
    if (!b->config->model.attention_sinks) return -1;
    char *part = ech_pool_format(b->model->pool, "%.*s", (int)(end ? end - o : 0), o);
    return ech_model_vector(b->model, b->block, ech_builder_name(b, part, "sinks"), ECH_AXIS_HEADS,
                            b->config->model.num_attention_heads, ECH_INIT_ZERO);
}

static int attention(const ech_builder *b, int x)
{
    const ech_config *config = b->config;
    if (b->model->family->attention) return plugged(b, b->model->family->attention, x);
    int64_t C = config->model.hidden_size;
    int64_t all = config->model.num_attention_heads * ech_model_value_dim(config);
    int starts = ech_block_starts(b->block);
    projections of = config->model.kv_lora_rank > 0 ? project_latent(b, x, starts)
                     : b->names.qkv                 ? project_together(b, x)
                                                    : project_apart(b, x, starts);
    int y = ech_layer_attention(
        b->block, &(ech_layer_attention_args){.q = of.q,
                                              .k = of.k,
                                              .v = of.v,
                                              .starts = starts,
                                              .dropout = config->model.attn_pdrop,
                                              .scale = scale_of(b),
                                              .softcap = config->model.attn_logit_softcapping,
                                              .window = ech_model_window(config, b->layer),
                                              .sinks = sinks(b)});
    y = ech_block_view(b->block, y, 0, ech_shape_rows(ECH_AXIS_HEADS, all));
    return ech_builder_linear(b, b->names.o, y, ECH_AXIS_HEADS, all, ECH_AXIS_MODEL, C,
                              config->model.o_bias, b->std);
}

/* ---- feed-forward layers ---- */

ech_activation ech_builder_activation(const ech_config *config)
{
#define ROW(NAME, ...) [ECH_HIDDEN_ACT_##NAME] = ECH_ACTIVATION_##NAME,
    static const ech_activation activations[] = {ECH_ACTIVATIONS(ROW)};
    return activations[config->model.hidden_act];
}

int ech_builder_widen(const ech_builder *b, const char *gate_role, const char *up_role, int64_t F,
                      int x)
{
    int64_t C = b->config->model.hidden_size;
    bool bias = b->config->model.mlp_bias;
    int gate = -1;
    ech_activation activation = ech_builder_activation(b->config);
    if (ech_activation_operands(activation) > 1)
        gate = ech_builder_linear(b, gate_role, x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, bias,
                                  b->model->std);
    int up =
        ech_builder_linear(b, up_role, x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, bias, b->model->std);
    if (gate < 0) return ech_layer_activation(b->block, activation, up, -1);
    return ech_layer_activation(b->block, activation, gate, up);
}

int ech_builder_narrow(const ech_builder *b, const char *down, int64_t F, int y)
{
    return ech_builder_linear(b, down, y, ECH_AXIS_FFN, F, ECH_AXIS_MODEL,
                              b->config->model.hidden_size, b->config->model.mlp_bias, b->std);
}

bool ech_model_has_experts(const ech_config *config, int64_t i)
{
    return config->model.num_local_experts > 0 && i >= config->model.moe_first_dense &&
           (i + 1) % config->model.moe_every == 0;
}

static int feed_forward(const ech_builder *b, int x)
{
    int64_t F = b->config->model.intermediate_size;
    if (ech_model_has_experts(b->config, b->layer)) return ech_builder_experts(b, x);
    if (b->model->family->feed_forward) return plugged(b, b->model->family->feed_forward, x);
    int y = ech_builder_widen(b, b->names.gate, b->names.up, F, x);
    return ech_builder_narrow(b, b->names.down, F, y);
}

/* ---- layers ---- */

typedef int (*part)(const ech_builder *b, int x);

/* What a part adds to the residual stream x. */
static int branch(const ech_builder *b, part of, const char *before, const char *after, int x)
{
    int placement = b->config->model.norm_placement;
    if (placement != ECH_NORM_AFTER) x = norm(b, before, x);
    x = of(b, x);
    if (placement != ECH_NORM_BEFORE) x = norm(b, after, x);
    x = ech_layer_dropout(b->block, x, b->config->model.resid_pdrop);
    return ech_layer_scale(b->block, x, b->config->model.residual_multiplier);
}

static int attention_branch(const ech_builder *b, int x)
{
    return branch(b, attention, b->names.attention_norm, b->names.after_attention_norm, x);
}

static int feed_forward_branch(const ech_builder *b, int x)
{
    return branch(b, feed_forward, b->names.mlp_norm, b->names.after_mlp_norm, x);
}

static void build_layer(ech_builder *b)
{
    b->at = ech_pool_format(b->model->pool, "%s.%lld", b->names.layers, (long long)b->layer);
    /* Radford et al. 2019, section 2.3: residual layers are scaled at initialisation. */
    b->std = b->model->std / sqrt(2 * (double)b->model->layers);
    b->block = ech_model_block(b->model, b->at);
    bool two = b->model->options.reversible;
    ech_shape stream = ech_block_stream(b->block, b->config->model.hidden_size);
    int x1 = ech_block_input(b->block, "hidden", stream);
    int x2 = two ? ech_block_input(b->block, "hidden 2", stream) : x1;
    int read = x1;
    x1 = ech_layer_residual(b->block, x1, attention_branch(b, x2));
    if (!b->config->model.parallel_residual) read = x1;
    int y = feed_forward_branch(b, read);
    if (two) ech_block_output(b->block, x1);
    ech_block_output(b->block, ech_layer_residual(b->block, two ? x2 : x1, y));
}

/* Returns the token table's parameter, which a tied head uses. */
static int build_embedding(ech_builder *b)
{
    const ech_config *config = b->config;
    int64_t C = config->model.hidden_size, V = config->model.vocab_size;
    int64_t P = config->model.max_position_embeddings;
    b->block = ech_model_block(
        b->model, ech_pool_format(b->model->pool, "%sembeddings", b->model->family->prefix));
    b->at = NULL;
    int tokens =
        ech_model_matrix(b->model, b->block, ech_builder_name(b, b->names.tokens, "weight"),
                         ech_shape_2d(ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C), b->model->std);
    int positions = -1;
    if (config->model.position_encoding != ECH_POSITION_ROTARY)
        positions =
            ech_model_matrix(b->model, b->block, ech_builder_name(b, b->names.positions, "weight"),
                             ech_shape_2d(ECH_AXIS_POSITION, P, ECH_AXIS_MODEL, C), b->model->std);
    int x = ech_layer_embedding(b->block, ech_block_batch(b->block, ECH_TOKENS), tokens, C);
    double by = config->model.embedding_multiplier;
    x = ech_layer_scale(b->block, x, by > 0 ? by : sqrt((double)C));
    if (positions >= 0) x = ech_layer_position(b->block, x, positions, ech_block_starts(b->block));
    ech_block_output(b->block, ech_layer_dropout(b->block, x, config->model.embd_pdrop));
    return tokens;
}

static void build_head(ech_builder *b, int table)
{
    const ech_config *config = b->config;
    int64_t C = config->model.hidden_size, V = config->model.vocab_size;
    b->block = ech_model_block(b->model, "lm_head");
    b->at = NULL;
    ech_shape stream = ech_block_stream(b->block, C);
    int x = ech_block_input(b->block, "hidden", stream);
    if (b->model->options.reversible)
        x = ech_layer_residual(b->block, x, ech_block_input(b->block, "hidden 2", stream));
    x = norm(b, b->names.last_norm, x);
    if (!config->model.tie_word_embeddings)
        table = ech_model_matrix(b->model, b->block, ech_builder_name(b, b->names.head, "weight"),
                                 ech_shape_2d(ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C), b->model->std);
    int targets = ech_block_batch(b->block, ECH_TARGETS);
    int weights = ech_block_batch(b->block, ECH_WEIGHTS);
    const ech_logits logits = {.factor = 1 / config->model.logits_scaling,
                               .cap = config->model.final_logit_softcapping};
    b->model->logits = ech_layer_head_loss(b->block, x, targets, weights, table, V, logits,
                                           ech_loss_plugged(config->training.loss));
}

/* Truncated normals of sqrt(s / inputs), whatever a matrix' place: its last axis is its inputs
 * (Fedus et al. 2021, arXiv:2101.03961, section 2.4, "reduced initialization", by which training is
 * stable). */
static void initialize_by_inputs(const ech_config *config, ech_model *model)
{
    for (size_t p = 0; p < model->param.n; p++) {
        ech_param *param = &model->param.at[p];
        if (param->initializer != ECH_INIT_NORMAL) continue;
        param->initializer = ECH_INIT_TRUNCATED;
        param->std = sqrt(config->model.initializer_scale /
                          (double)param->shape.size[param->shape.dims - 1]);
    }
}

void ech_decoder_build(const ech_config *config, ech_model *model)
{
    ech_builder b = {.config = config, .model = model, .names = ech_names_of(model->family)};
    int table = build_embedding(&b);
    ech_block *first = model->block.at[0];
    if (model->options.reversible) ech_block_output(first, first->output.at[0]);
    for (b.layer = 0; b.layer < model->layers; b.layer++) build_layer(&b);
    build_head(&b, table);
    if (config->model.initialization == ECH_INITIALIZATION_INPUTS)
        initialize_by_inputs(config, model);
}

/* ---- checks ---- */

static ech_status check_divisors(const ech_config *config, const char *key, const char *text)
{
    int64_t n = rotary_width(config) / 2;
    ECH_FREED double *numbers = ech_calloc((size_t)n + 1, sizeof *numbers);
    if (read_numbers(text, n, numbers)) return ECH_OK;
    return ech_config_complain(config, key,
                               "must be %lld positive numbers, divided by blanks: one of each "
                               "rotary pair",
                               (long long)n);
}

static ech_status check_scaling(const ech_config *config)
{
    char kind[64];
    snprintf(kind, sizeof kind, "model.rope_scaling = %s",
             ech_config_name(config, "model.rope_scaling"));
    ECH_TRY(ech_config_check_read(config, ECH_ROPE_SCALING_KEYS,
                                  scalings[config->model.rope_scaling].reads, kind));
    if (config->model.rope_scaling == ECH_ROPE_SCALING_LONGROPE) {
        ECH_TRY(check_divisors(config, "model.rope_scaling_short_factor",
                               config->model.rope_scaling_short_factor));
        ECH_TRY(check_divisors(config, "model.rope_scaling_long_factor",
                               config->model.rope_scaling_long_factor));
    }
    if (config->model.rope_scaling == ECH_ROPE_SCALING_YARN &&
        config->model.rope_scaling_beta_slow >= config->model.rope_scaling_beta_fast)
        return ech_config_complain(config, "model.rope_scaling_beta_slow",
                                   "must be below model.rope_scaling_beta_fast = %g",
                                   config->model.rope_scaling_beta_fast);
    if (config->model.rope_scaling != ECH_ROPE_SCALING_LLAMA3 ||
        config->model.rope_scaling_low_freq_factor < config->model.rope_scaling_high_freq_factor)
        return ECH_OK;
    return ech_config_complain(config, "model.rope_scaling_low_freq_factor",
                               "must be below model.rope_scaling_high_freq_factor = %g",
                               config->model.rope_scaling_high_freq_factor);
}

/* Latent attention. */
static ech_status check_latent(const ech_config *config)
{
    int64_t N = config->model.qk_nope_head_dim, P = config->model.qk_rope_head_dim;
    if (P % 2)
        return ech_config_complain(config, "model.qk_rope_head_dim",
                                   "rotary positions need an even width");
    if (config->model.head_dim != N + P)
        return ech_config_complain(config, "model.head_dim",
                                   "in latent attention it is model.qk_nope_head_dim + "
                                   "model.qk_rope_head_dim = %lld",
                                   (long long)(N + P));
    if (config->model.num_key_value_heads != config->model.num_attention_heads)
        return ech_config_complain(config, "model.num_key_value_heads",
                                   "latent attention has as many as query heads; use "
                                   "model.num_attention_heads = %lld",
                                   (long long)config->model.num_attention_heads);
    if (config->model.position_encoding != ECH_POSITION_ROTARY ||
        strchr(config->model.rotary_layers, 'N'))
        return ech_config_complain(config, "model.rotary_layers",
                                   "latent attention has rotary positions in all layers; use R");
    if (config->model.head_norm == ECH_HEAD_NORM_NONE) return ECH_OK;
    return ech_config_complain(config, "model.head_norm",
                               "latent attention has norms of latents, and not of heads; use none");
}

static ech_status check_head_width(const ech_config *config)
{
    int64_t D = config->model.head_dim, width = rotary_width(config);
    if (config->model.kv_lora_rank > 0) return ECH_OK;
    if (D % 2 == 0 && width % 2 == 0 && width > 0) return ECH_OK;
    if (config->model.partial_rotary_factor < 1)
        return ech_config_complain(config, "model.partial_rotary_factor",
                                   "rotary positions need an even number of a head's %lld; this "
                                   "rotates %lld",
                                   (long long)D, (long long)width);
    if (ech_config_is_set(config, "model.head_dim"))
        return ech_config_complain(config, "model.head_dim",
                                   "rotary positions need an even head width");
    return ech_config_complain(config, "model.num_attention_heads",
                               "rotary positions need an even head width; hidden_size / heads "
                               "is %lld",
                               (long long)D);
}

ech_status ech_decoder_check(const ech_config *config)
{
    ECH_TRY(check_plugged(config, ech_family_of(config)->attention));
    ECH_TRY(check_plugged(config, ech_family_of(config)->feed_forward));
    if (config->model.num_local_experts > 0) ECH_TRY(ech_experts_check(config));
    if (config->model.kv_lora_rank > 0) ECH_TRY(check_latent(config));
    if (config->model.initialization == ECH_INITIALIZATION_INPUTS)
        ECH_TRY(ech_config_check_read(config, "model.initializer_range", "",
                                      ech_family_of(config)->name));
    if (config->model.head_norm == ECH_HEAD_NORM_FULL && config->model.norm != ECH_NORM_RMS)
        return ech_config_complain(config, "model.head_norm",
                                   "full is built for RMSNorm alone; set model.norm to rmsnorm, or "
                                   "use head or none");
    if (config->model.position_encoding != ECH_POSITION_ROTARY) return ECH_OK;
    ECH_TRY(check_head_width(config));
    return check_scaling(config);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama. Touvron et al. 2023, arXiv:2302.13971 and 2307.09288. Parameters under Hugging Face's names,
 * whose weights are (out,in); rotary pairs are (i, i + D/2).
 *
 * Qwen3, the dense models. Yang et al. 2025, arXiv:2505.09388: Llama with an independent head width and RMSNorm of
 * queries and keys (Dehghani et al. 2023, arXiv:2302.05442, section 2.1, has LayerNorm there).
 *
 * Mixtral. Jiang et al. 2024, arXiv:2401.04088: Llama with experts in place of each feed-forward layer. Qwen3-MoE is Qwen3
 * with such, whose width is a key of its own.
 *
 * Switch is ours, after the Switch Transformer (Fedus et al. 2021, arXiv:2101.03961): Llama's blocks, of which every second one
 * has experts, a token going to one, with ReLU in all feed-forward layers. Weights begin as the paper has them (section 2.4).
 */
#include <math.h>

#include "base/text.h"
#include "layer/layers.h"
#include "model/llama.h"

static void resolve(ech_config *config)
{
    /* 8/3 of the width, rounded up to a multiple of 64: three matrices cost what GPT-2's two do. */
    if (config->model.intermediate_size == ECH_AUTO)
        config->model.intermediate_size = (8 * config->model.hidden_size / 3 + 63) / 64 * 64;
    if (config->model.tie_word_embeddings == ECH_AUTO) config->model.tie_word_embeddings = false;
}

/* What a Switch Transformer has where the run file says nothing; other families have the keys' own defaults. */
static void resolve_switch(ech_config *config)
{
    if (config->model.intermediate_size == ECH_AUTO)
        config->model.intermediate_size = 4 * config->model.hidden_size;
    if (!ech_config_is_set(config, "model.moe_gate")) config->model.moe_gate = ECH_MOE_GATE_SWITCH;
    if (!ech_config_is_set(config, "model.num_experts_per_tok"))
        config->model.num_experts_per_tok = 1;
    if (!ech_config_is_set(config, "model.moe_every")) config->model.moe_every = 2;
    resolve(config);
}

/* Experts of a token together are as wide as a layer without experts. */
static void resolve_experts(ech_config *config)
{
    int64_t k = config->model.num_experts_per_tok;
    resolve(config);
    if (config->model.moe_intermediate_size == ECH_AUTO)
        config->model.moe_intermediate_size = (config->model.intermediate_size + k - 1) / k;
}

static int norm(ech_model *model, ech_block *block, const ech_config *config, const char *name,
                int x)
{
    char *weight = ech_pool_format(model->pool, "%s.weight", name);
    int gain = ech_model_vector(model, block, weight, ECH_AXIS_MODEL, config->model.hidden_size,
                                ECH_INIT_ONE);
    return ech_layer_rmsnorm(block, x, gain, config->model.rms_norm_eps);
}

/* x (B,T,in) -> (B,T,out) with PREFIX.NAME.weight (out,in). */
static int linear(ech_model *model, ech_block *block, const char *prefix, const char *name, int x,
                  ech_axis in_axis, int64_t in, ech_axis axis, int64_t out, double std)
{
    char *weight = ech_pool_format(model->pool, "%s.%s.weight", prefix, name);
    int w = ech_model_matrix(model, block, weight, ech_shape_2d(axis, out, in_axis, in), std);
    return ech_layer_linear(block, x, w, -1, false, axis, out);
}

static int embedding(const ech_config *config, ech_model *model)
{
    int64_t C = config->model.hidden_size, V = config->model.vocab_size;
    ech_block *block = ech_model_block(model, "model.embeddings");
    int table = ech_model_matrix(model, block, "model.embed_tokens.weight",
                                 ech_shape_2d(ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C), model->std);
    int x = ech_layer_embedding(block, ech_block_batch(block, ECH_TOKENS), table, C);
    ech_block_output(block, ech_layer_dropout(block, x, config->model.embd_pdrop));
    return table;
}

static bool is_scaled(const ech_config *config)
{
    return config->model.rope_scaling == ECH_ROPE_SCALING_LLAMA3;
}

static ech_rope rope_of(const ech_config *config)
{
    return (ech_rope){.theta = config->model.rope_theta,
                      .scaled = is_scaled(config),
                      .factor = config->model.rope_scaling_factor,
                      .low_freq_factor = config->model.rope_scaling_low_freq_factor,
                      .high_freq_factor = config->model.rope_scaling_high_freq_factor,
                      .original_positions =
                          (double)config->model.rope_scaling_original_max_position_embeddings};
}

/* A product's columns as heads of that shape, rotated by their positions. norm: the parameter of an RMSNorm of each
 * head before that, one gain (D) for all heads; NULL: there is none. */
static int rotate_heads(const ech_config *config, ech_model *model, ech_block *block,
                        const char *prefix, const char *norm, int x, ech_shape shape, int starts)
{
    const ech_rope rope = rope_of(config);
    x = ech_block_view(block, x, 0, shape);
    if (norm) {
        char *weight = ech_pool_format(model->pool, "%s.%s.weight", prefix, norm);
        int gain = ech_model_vector(model, block, weight, ECH_AXIS_HEAD_DIM, config->model.head_dim,
                                    ECH_INIT_ONE);
        x = ech_layer_rmsnorm(block, x, gain, config->model.rms_norm_eps);
    }
    return ech_layer_rotary(block, x, &rope, starts);
}

static int attention(const ech_config *config, ech_model *model, ech_block *block,
                     const char *prefix, int x, double std)
{
    bool norms_heads = ech_text_has_word("qwen3 qwen3_moe", model->family->name);
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    int64_t G = config->model.num_key_value_heads, D = config->model.head_dim;
    int starts = ech_block_starts(block);
    ech_shape query = ech_shape_heads(ECH_AXIS_HEADS, H, D);
    ech_shape key = ech_shape_heads(ECH_AXIS_KV_HEADS, G, D);
    char *at = ech_pool_format(model->pool, "%s.self_attn", prefix);
    int q =
        linear(model, block, at, "q_proj", x, ECH_AXIS_MODEL, C, ECH_AXIS_HEADS, H * D, model->std);
    int k = linear(model, block, at, "k_proj", x, ECH_AXIS_MODEL, C, ECH_AXIS_KV_HEADS, G * D,
                   model->std);
    int v = linear(model, block, at, "v_proj", x, ECH_AXIS_MODEL, C, ECH_AXIS_KV_HEADS, G * D,
                   model->std);
    q = rotate_heads(config, model, block, at, norms_heads ? "q_norm" : NULL, q, query, starts);
    k = rotate_heads(config, model, block, at, norms_heads ? "k_norm" : NULL, k, key, starts);
    v = ech_block_view(block, v, 0, key);
    int y = ech_layer_attention(block, q, k, v, starts, config->model.attn_pdrop);
    y = ech_block_view(block, y, 0, ech_shape_rows(ECH_AXIS_HEADS, H * D));
    y = linear(model, block, at, "o_proj", y, ECH_AXIS_HEADS, H * D, ECH_AXIS_MODEL, C, std);
    return ech_layer_dropout(block, y, config->model.resid_pdrop);
}

/* What a family calls a feed-forward layer, and the weights of one: PREFIX.at.down.weight. Of experts PREFIX.at.experts.N.down.weight,
 * of those that are shared PREFIX.at.shared_experts.down.weight, and PREFIX.at.gate.weight for the router. */
typedef struct feed_forward_names {
    const char *at, *gate_proj, *up, *down;
} feed_forward_names;

static const feed_forward_names mlp_names = {"mlp", "gate_proj", "up_proj", "down_proj"};
static const feed_forward_names switch_names = {"mlp", "wi_0", "wi",
                                                "wo"}; /* as T5's; wi_0: of SwiGLU */

static bool is_switch(const ech_config *config)
{
    return ech_family_of(config) == &ech_family_row_switch;
}

static ech_activation activation_of(const ech_config *config)
{
    static const ech_activation activations[] = {[ECH_HIDDEN_ACT_RELU] = ECH_ACTIVATION_RELU,
                                                 [ECH_HIDDEN_ACT_GELU] = ECH_ACTIVATION_GELU,
                                                 [ECH_HIDDEN_ACT_SWIGLU] = ECH_ACTIVATION_SWIGLU};
    return is_switch(config) ? activations[config->model.hidden_act] : ECH_ACTIVATION_SWIGLU;
}

/* What is between the products of a feed-forward layer: gate is of SwiGLU alone. */
static int activate(ech_block *block, ech_activation activation, int gate, int up)
{
    if (activation == ECH_ACTIVATION_SWIGLU) return ech_layer_swiglu(block, gate, up);
    return activation == ECH_ACTIVATION_RELU ? ech_layer_relu(block, up)
                                             : ech_layer_gelu(block, up);
}

/* A feed-forward layer in two parts: silu(gate x) up x, or relu(up x) and so on, F wide, and down of that. The weights are
 * AT.down.weight and so on. */
static int widen(const ech_config *config, ech_model *model, ech_block *block, const char *at,
                 const feed_forward_names *names, int64_t F, int x)
{
    int64_t C = config->model.hidden_size;
    ech_activation activation = activation_of(config);
    int gate = -1;
    if (activation == ECH_ACTIVATION_SWIGLU)
        gate = linear(model, block, at, names->gate_proj, x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F,
                      model->std);
    int up = linear(model, block, at, names->up, x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, model->std);
    return activate(block, activation, gate, up);
}

static int narrow(const ech_config *config, ech_model *model, ech_block *block, const char *at,
                  const feed_forward_names *names, int64_t F, int y, double std)
{
    return linear(model, block, at, names->down, y, ECH_AXIS_FFN, F, ECH_AXIS_MODEL,
                  config->model.hidden_size, std);
}

static int mlp(const ech_config *config, ech_model *model, ech_block *block, const char *prefix,
               int x, double std)
{
    const feed_forward_names *names = is_switch(config) ? &switch_names : &mlp_names;
    char *at = ech_pool_format(model->pool, "%s.%s", prefix, names->at);
    int64_t F = config->model.intermediate_size;
    int y = widen(config, model, block, at, names, F, x);
    y = narrow(config, model, block, at, names, F, y, std);
    return ech_layer_dropout(block, y, config->model.resid_pdrop);
}

/* PREFIX.experts.N.NAME.weight of all experts, (E,out,in); %d: N. */
static int stack(const ech_config *config, ech_model *model, ech_block *block, const char *prefix,
                 const char *name, ech_axis axis, int64_t out, ech_axis in_axis, int64_t in,
                 double std)
{
    char *weight = ech_pool_format(model->pool, "%s.experts.%%d.%s.weight", prefix, name);
    ech_shape shape = {.dims = 3,
                       .axis = {ECH_AXIS_EXPERTS, axis, in_axis},
                       .size = {config->model.num_local_experts, out, in}};
    return ech_model_matrix(model, block, weight, shape, std);
}

static ech_gate gate_of(const ech_config *config, bool normalized)
{
    ech_gate gate = {.experts = config->model.num_local_experts,
                     .chosen = config->model.num_experts_per_tok,
                     .groups = config->model.n_group,
                     .groups_chosen = config->model.topk_group,
                     .normalized = normalized,
                     .scale = config->model.routed_scaling_factor,
                     .ports = config->model.moe_gshard_ports,
                     .capacity_factor = config->model.moe_capacity_factor,
                     .samples = config->model.moe_group_samples,
                     .auxiliary = config->model.router_aux_loss_coef,
                     .importance = config->model.router_importance_coef,
                     .load = config->model.router_load_coef};
    ECH_ASSERT(ech_gate_find(ech_config_name(config, "model.moe_gate"), &gate.kind));
    return gate;
}

/* One of the router's products, (logits,C). With noise both begin at 0, so that all experts get as much at first (Shazeer et
 * al. 2017, arXiv:1701.06538, appendix A). */
static int router(ech_model *model, ech_block *block, const char *prefix, const char *name,
                  const ech_gate *gate, int64_t C)
{
    ech_shape shape = ech_shape_2d(ECH_AXIS_CHOICES, ech_gate_logits(gate), ECH_AXIS_MODEL, C);
    char *weight = ech_pool_format(model->pool, "%s.%s.weight", prefix, name);
    int at = ech_model_matrix(model, block, weight, shape, model->std);
    model->param.at[at].type = ECH_TYPE_WIDE;
    if (ech_gate_has_noise(gate->kind)) model->param.at[at].initializer = ECH_INIT_ZERO;
    return at;
}

/* The bias that balances experts: no parameter, but committed once a step. Named as in DeepSeek's models. */
static int bias(const ech_config *config, ech_model *model, ech_block *block, const char *at)
{
    char *name = ech_pool_format(model->pool, "%s.gate.e_score_correction_bias", at);
    ech_shape shape = ech_shape_1d(ECH_AXIS_CHOICES, config->model.num_local_experts);
    return ech_model_state(model, block, name, shape, ech_gate_balance,
                           config->model.router_bias_rate);
}

/* F: width of each. normalized: the gates of a token's experts sum to 1. Shared experts, which all tokens go to, are one
 * feed-forward layer as wide as they are together (Dai et al. 2024, arXiv:2401.06066); they work while rows are on their way. */
static int experts(const ech_config *config, ech_model *model, ech_block *block, const char *prefix,
                   const feed_forward_names *names, int64_t F, bool normalized, int x, double std)
{
    int64_t C = config->model.hidden_size, E = config->model.num_local_experts;
    char *at = ech_pool_format(model->pool, "%s.%s", prefix, names->at);
    char *shared_at = ech_pool_format(model->pool, "%s.shared_experts", at);
    ech_experts is = {.gate = gate_of(config, normalized),
                      .width = F,
                      .activation = activation_of(config),
                      .jitter = config->model.router_jitter_noise,
                      .dropout = config->model.moe_dropout,
                      .bound = config->model.moe_bound};
    is.router = router(model, block, at, "gate", &is.gate, C);
    if (ech_gate_has_noise(is.gate.kind)) is.noise = router(model, block, at, "noise", &is.gate, C);
    if (is.gate.kind == ECH_GATE_bias) is.bias = bias(config, model, block, at);
    if (is.activation == ECH_ACTIVATION_SWIGLU)
        is.gate_proj = stack(config, model, block, at, names->gate_proj, ECH_AXIS_FFN, F,
                             ECH_AXIS_MODEL, C, model->std);
    is.down = stack(config, model, block, at, names->down, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, std);
    is.up =
        stack(config, model, block, at, names->up, ECH_AXIS_FFN, F, ECH_AXIS_MODEL, C, model->std);
    model->experts_used = (double)is.gate.chosen / (double)E;
    int64_t shared = config->model.moe_shared_experts * F;
    ech_routed to = ech_layer_send_rows(block, x, &is);
    int beside = shared ? widen(config, model, block, shared_at, names, shared, x) : -1;
    int y = ech_layer_experts(block, &to, &is);
    if (shared) beside = narrow(config, model, block, shared_at, names, shared, beside, std);
    y = ech_layer_combine(block, y, &to, &is);
    if (shared) y = ech_layer_residual(block, y, beside);
    return ech_layer_dropout(block, y, config->model.resid_pdrop);
}

static int mixtral_experts(const ech_config *config, ech_model *model, ech_block *block,
                           const char *prefix, int x, double std)
{
    static const feed_forward_names names = {"block_sparse_moe", "w1", "w3", "w2"};
    return experts(config, model, block, prefix, &names, config->model.intermediate_size, true, x,
                   std);
}

static int switch_experts(const ech_config *config, ech_model *model, ech_block *block,
                          const char *prefix, int x, double std)
{
    return experts(config, model, block, prefix, &switch_names, config->model.intermediate_size,
                   true, x, std);
}

/* Truncated normals of sqrt(s / inputs), whatever a matrix' place: its last axis is its inputs (section 2.4, "reduced
 * initialization", by which training is stable). */
static void initialize_switch(const ech_config *config, ech_model *model)
{
    for (size_t p = 0; p < model->param.n; p++) {
        ech_param *param = &model->param.at[p];
        if (param->initializer != ECH_INIT_NORMAL) continue;
        param->initializer = ECH_INIT_TRUNCATED;
        param->std = sqrt(config->model.initializer_scale /
                          (double)param->shape.size[param->shape.dims - 1]);
    }
}

static int qwen3_experts(const ech_config *config, ech_model *model, ech_block *block,
                         const char *prefix, int x, double std)
{
    return experts(config, model, block, prefix, &mlp_names, config->model.moe_intermediate_size,
                   config->model.norm_topk_prob, x, std);
}

#define SCALING_KEYS                                                                               \
    "model.rope_scaling_factor model.rope_scaling_low_freq_factor "                                \
    "model.rope_scaling_high_freq_factor model.rope_scaling_original_max_position_embeddings"

static ech_status check_scaling(const ech_config *config)
{
    if (!is_scaled(config))
        return ech_config_check_read(config, SCALING_KEYS, "", "model.rope_scaling = none");
    if (config->model.rope_scaling_low_freq_factor < config->model.rope_scaling_high_freq_factor)
        return ECH_OK;
    return ech_config_complain(config, "model.rope_scaling_low_freq_factor",
                               "must be below model.rope_scaling_high_freq_factor = %g",
                               config->model.rope_scaling_high_freq_factor);
}

static ech_status check_head_width(const ech_config *config)
{
    int64_t D = config->model.head_dim;
    if (D % 2 == 0) return ECH_OK;
    if (ech_config_is_set(config, "model.head_dim"))
        return ech_config_complain(config, "model.head_dim",
                                   "rotary positions need an even head width");
    return ech_config_complain(config, "model.num_attention_heads",
                               "rotary positions need an even head width; hidden_size / heads "
                               "is %lld",
                               (long long)D);
}

#define DECODER(EXPERTS)                                                                           \
    {                                                                                              \
        .embedding = embedding, .layers = "model.layers", .first_norm = "input_layernorm",         \
        .second_norm = "post_attention_layernorm", .last_norm = "model.norm", .norm = norm,        \
        .attention = attention, .mlp = mlp, .experts = EXPERTS                                     \
    }

static const ech_decoder decoder = DECODER(NULL);
static const ech_decoder mixtral_decoder = DECODER(mixtral_experts);
static const ech_decoder qwen3_moe_decoder = DECODER(qwen3_experts);
static const ech_decoder switch_decoder = DECODER(switch_experts);

/* An expert takes a row at least. A folder alone, without a run, does not say of how many. */
static ech_status check_capacity(const ech_config *config)
{
    int64_t T = config->data.sequence_length;
    if (!(config->model.moe_capacity_factor > 0) || T == 0) return ECH_OK;
    ech_gate gate = gate_of(config, true);
    if (ech_gate_capacity(&gate, T) >= 1) return ECH_OK;
    double mean = (double)(gate.samples * T * gate.chosen) / (double)gate.experts;
    return ech_config_complain(config, "model.moe_capacity_factor",
                               "an expert would take no token: of a balance group it has %.3g in "
                               "the mean; use at least %.3g, or 0, by which it takes all",
                               mean, ceil(1e3 / mean) / 1e3);
}

/* Fewer rows than a rank's share would take several rounds of even the most balanced batch. */
static ech_status check_bound(const ech_config *config)
{
    if (!(config->model.moe_bound > 0) || config->model.moe_bound >= 1) return ECH_OK;
    return ech_config_complain(config, "model.moe_bound",
                               "experts would not keep what they get if all are chosen alike; use "
                               "at least 1, or 0, by which they keep all rows");
}

static ech_status check_layers(const ech_config *config)
{
    int64_t L = config->model.num_hidden_layers;
    for (int64_t i = 0; i < L; i++)
        if (ech_model_has_experts(config, i)) return ECH_OK;
    return ech_config_complain(
        config, config->model.moe_first_dense < L ? "model.moe_every" : "model.moe_first_dense",
        "no layer of %lld has experts then; use a smaller number, or a model without experts",
        (long long)L);
}

#define GROUP_KEYS "model.n_group model.topk_group"
#define BIAS_KEYS  "model.router_bias_rate model.routed_scaling_factor"

/* Of gates that do not read such keys. */
static ech_status check_gate_reads(const ech_config *config, const char *keys)
{
    ECH_FREED_TEXT gate = {0};
    ech_text_append(&gate, "model.moe_gate = %s", ech_config_name(config, "model.moe_gate"));
    return ech_config_check_read(config, keys, "", gate.at);
}

/* Groups of experts, of which a hierarchical gate chooses as many experts each, and the gate `bias` the best ones. */
static ech_status check_groups(const ech_config *config)
{
    int64_t E = config->model.num_local_experts, k = config->model.num_experts_per_tok;
    int64_t n = config->model.n_group, chosen = config->model.topk_group;
    bool hierarchical = config->model.moe_gate == ECH_MOE_GATE_HIERARCHICAL;
    if (!hierarchical && config->model.moe_gate != ECH_MOE_GATE_BIAS)
        return check_gate_reads(config, GROUP_KEYS);
    if (hierarchical && n < 2)
        return ech_config_complain(config, "model.n_group",
                                   "model.moe_gate = hierarchical needs two groups or more, of as "
                                   "many experts each; use a divisor of %lld",
                                   (long long)E);
    if (E % n)
        return ech_config_complain(config, "model.n_group",
                                   "groups are of as many experts each; use a divisor of %lld",
                                   (long long)E);
    if (chosen > n)
        return ech_config_complain(config, "model.topk_group",
                                   "above model.n_group = %lld; use at most that", (long long)n);
    if (hierarchical && (k % chosen || k / chosen > E / n))
        return ech_config_complain(
            config, "model.num_experts_per_tok",
            "a token goes to as many experts of each of %s, of %lld at most; "
            "use a multiple of %lld up to %lld",
            ECH_COUNT(chosen, "group"), (long long)(E / n), (long long)chosen,
            (long long)(chosen * (E / n)));
    if (k > chosen * (E / n))
        return ech_config_complain(config, "model.num_experts_per_tok",
                                   "%s of %lld experts have fewer; use at most %lld, or a larger "
                                   "model.topk_group",
                                   ECH_COUNT(chosen, "group"), (long long)(E / n),
                                   (long long)(chosen * (E / n)));
    return ECH_OK;
}

/* Shared experts are a feed-forward layer, no wider than one may be. */
static ech_status check_shared(const ech_config *config)
{
    enum { WIDEST = 10000000 }; /* as model.intermediate_size */
    bool own = ech_family_reads(config, "model.moe_intermediate_size");
    int64_t F = own ? config->model.moe_intermediate_size : config->model.intermediate_size;
    if (config->model.moe_shared_experts <= WIDEST / F) return ECH_OK;
    return ech_config_complain(config, "model.moe_shared_experts",
                               "experts of a width of %lld are wider than %d together; use at most "
                               "%lld",
                               (long long)F, WIDEST, (long long)(WIDEST / F));
}

static ech_status check_experts(const ech_config *config)
{
    int64_t E = config->model.num_local_experts, k = config->model.num_experts_per_tok;
    if (config->model.moe_gate == ECH_MOE_GATE_SWITCH && k != 1)
        return ech_config_complain(config, "model.num_experts_per_tok",
                                   "model.moe_gate = switch goes to one expert; use 1");
    if (config->model.moe_gate == ECH_MOE_GATE_GSHARD && k != 2)
        return ech_config_complain(config, "model.num_experts_per_tok",
                                   "model.moe_gate = gshard goes to two experts; use 2");
    if (k > E)
        return ech_config_complain(config, "model.num_experts_per_tok",
                                   "above model.num_local_experts = %lld; use at most that",
                                   (long long)E);
    if (config->model.moe_gate == ECH_MOE_GATE_DENSE && k != E)
        return ech_config_complain(config, "model.num_experts_per_tok",
                                   "model.moe_gate = dense goes to all experts; use %lld",
                                   (long long)E);
    if (config->model.moe_gate != ECH_MOE_GATE_BIAS) ECH_TRY(check_gate_reads(config, BIAS_KEYS));
    ECH_TRY(check_groups(config));
    ECH_TRY(check_capacity(config));
    ECH_TRY(check_shared(config));
    ECH_TRY(check_bound(config));
    return check_layers(config);
}

/* transformers loads no Llama whose heads do not divide its width, also where heads have another width. */
static ech_status check(const ech_config *config)
{
    if (ech_family_of(config) == &ech_family_row_llama &&
        config->model.hidden_size % config->model.num_attention_heads)
        return ech_config_complain(config, "model.num_attention_heads",
                                   "does not divide model.hidden_size = %lld; use qwen3 for that",
                                   (long long)config->model.hidden_size);
    if (ech_family_of(config)->decoder != &decoder) ECH_TRY(check_experts(config));
    if (is_switch(config))
        ECH_TRY(ech_config_check_read(config, "model.initializer_range", "", "switch"));
    ECH_TRY(check_head_width(config));
    return check_scaling(config);
}

#define FAMILY(NAME, ARCHITECTURE, RESOLVE, DECODER, MORE_KEYS, ALSO_REPLACES, ...)                \
    const ech_family ech_family_row_##NAME = {                                                     \
        .name = #NAME,                                                                             \
        .reads = "model.rope_theta model.rope_scaling " SCALING_KEYS                               \
                 " model.rms_norm_eps model.embd_pdrop model.resid_pdrop model.attn_pdrop "        \
                 "model.num_key_value_heads model.head_dim" MORE_KEYS,                             \
        .resolve = RESOLVE,                                                                        \
        .check = check,                                                                            \
        .decoder = &DECODER,                                                                       \
        .architecture = ARCHITECTURE,                                                              \
        .rows = ech_llama_rows,                                                                    \
        .import_more = ech_llama_import,                                                           \
        .export_more = ech_llama_export,                                                           \
        .replaces = "dtype rope_parameters" ALSO_REPLACES,                                         \
        .prefix = "model.",                                                                        \
        .table = "model.embed_tokens.weight",                                                      \
        .buffers = ".rotary_emb.inv_freq",                                                         \
        __VA_ARGS__}

#define EXPERT_KEYS                                                                                \
    " model.num_local_experts model.num_experts_per_tok model.moe_gate model.moe_dropout "         \
    "model.moe_bound "                                                                             \
    "model.moe_capacity_factor model.moe_group_samples model.router_aux_loss_coef "                \
    "model.router_importance_coef model.router_load_coef model.router_jitter_noise "               \
    "model.moe_gshard_ports model.moe_shared_experts " GROUP_KEYS " " BIAS_KEYS

/* Of ech_llama_rows, ECH_ROW_OURS. */
#define OUR_ROWS " moe_capacity_factor moe_group_samples moe_gshard_ports"

FAMILY(llama, "LlamaForCausalLM", resolve, decoder, "", "", );
FAMILY(qwen3, "Qwen3ForCausalLM", resolve, decoder, "", "", );
FAMILY(mixtral, "MixtralForCausalLM", resolve, mixtral_decoder, EXPERT_KEYS, OUR_ROWS, );
FAMILY(qwen3_moe, "Qwen3MoeForCausalLM", resolve_experts, qwen3_moe_decoder,
       EXPERT_KEYS " model.moe_intermediate_size model.norm_topk_prob model.moe_every "
                   "model.moe_first_dense",
       " num_local_experts" OUR_ROWS, );
FAMILY(switch, "SwitchForCausalLM", resolve_switch, switch_decoder,
       EXPERT_KEYS " model.moe_every model.moe_first_dense model.hidden_act "
                   "model.initializer_scale",
       OUR_ROWS, .initialize = initialize_switch, .ours = true);

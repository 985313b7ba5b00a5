/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama. Touvron et al. 2023, arXiv:2302.13971 and 2307.09288. Parameters under Hugging Face's
 * names, whose weights are (out,in); rotary pairs are (i, i + D/2).
 *
 * Qwen3, the dense models. Yang et al. 2025, arXiv:2505.09388: Llama with an independent head width
 * and RMSNorm of queries and keys (Dehghani et al. 2023, arXiv:2302.05442, section 2.1, has
 * LayerNorm there).
 *
 * Mixtral. Jiang et al. 2024, arXiv:2401.04088: Llama with experts in place of each feed-forward
 * layer. Qwen3-MoE is Qwen3 with such, whose width is a key of its own.
 *
 * Switch is ours, after the Switch Transformer (Fedus et al. 2021, arXiv:2101.03961): Llama's
 * blocks, of which every second one has experts, a token going to one, with ReLU in all
 * feed-forward layers. Weights begin as the paper has them (section 2.4).
 */
#include <math.h>

#include "base/text.h"
#include "model/llama.h"

static void resolve(ech_config *config)
{
    /* 8/3 of the width, rounded up to a multiple of 64: three matrices cost what GPT-2's two do. */
    if (config->model.intermediate_size == ECH_AUTO)
        config->model.intermediate_size = (8 * config->model.hidden_size / 3 + 63) / 64 * 64;
    if (config->model.tie_word_embeddings == ECH_AUTO) config->model.tie_word_embeddings = false;
}

/* What a Switch Transformer has where the run file says nothing; other families have the keys' own
 * defaults. */
static void resolve_switch(ech_config *config)
{
    if (config->model.intermediate_size == ECH_AUTO)
        config->model.intermediate_size = 4 * config->model.hidden_size;
    if (!ech_config_is_set(config, "model.moe_gate")) config->model.moe_gate = ECH_GATE_switch;
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
    return ech_layer_rmsnorm(block, x, gain, 0, config->model.rms_norm_eps);
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
                      .scaling = is_scaled(config) ? ECH_ROPE_LLAMA3 : ECH_ROPE_UNSCALED,
                      .factor = config->model.rope_scaling_factor,
                      .low_freq_factor = config->model.rope_scaling_low_freq_factor,
                      .high_freq_factor = config->model.rope_scaling_high_freq_factor,
                      .original_positions =
                          (double)config->model.rope_scaling_original_max_position_embeddings};
}

/* A product's columns as heads of that shape, rotated by their positions. norm: the parameter of an
 * RMSNorm of each head before that, one gain (D) for all heads; NULL: there is none. */
static int rotate_heads(const ech_config *config, ech_model *model, ech_block *block,
                        const char *prefix, const char *norm, int x, ech_shape shape, int starts)
{
    const ech_rope rope = rope_of(config);
    x = ech_block_view(block, x, 0, shape);
    if (norm) {
        char *weight = ech_pool_format(model->pool, "%s.%s.weight", prefix, norm);
        int gain = ech_model_vector(model, block, weight, ECH_AXIS_HEAD_DIM, config->model.head_dim,
                                    ECH_INIT_ONE);
        x = ech_layer_rmsnorm(block, x, gain, 0, config->model.rms_norm_eps);
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

const ech_llama_names ech_llama_mlp_names = {"mlp", "gate_proj", "up_proj", "down_proj"};
/* As T5's; wi_0: of SwiGLU. */
const ech_llama_names ech_llama_switch_names = {"mlp", "wi_0", "wi", "wo"};

static bool is_switch(const ech_config *config)
{
    return ech_family_of(config) == &ech_family_row_switch;
}

ech_activation ech_llama_activation(const ech_config *config)
{
    static const ech_activation activations[] = {[ECH_HIDDEN_ACT_RELU] = ECH_ACTIVATION_RELU,
                                                 [ECH_HIDDEN_ACT_GELU] = ECH_ACTIVATION_GELU,
                                                 [ECH_HIDDEN_ACT_SWIGLU] = ECH_ACTIVATION_SWIGLU};
    return is_switch(config) ? activations[config->model.hidden_act] : ECH_ACTIVATION_SWIGLU;
}

int ech_llama_widen(const ech_config *config, ech_model *model, ech_block *block, const char *at,
                    const ech_llama_names *names, int64_t F, int x)
{
    int64_t C = config->model.hidden_size;
    ech_activation activation = ech_llama_activation(config);
    int gate = -1;
    if (ech_activation_operands(activation) > 1)
        gate = linear(model, block, at, names->gate_proj, x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F,
                      model->std);
    int up = linear(model, block, at, names->up, x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, model->std);
    return gate < 0 ? ech_layer_activation(block, activation, up, -1)
                    : ech_layer_activation(block, activation, gate, up);
}

int ech_llama_narrow(const ech_config *config, ech_model *model, ech_block *block, const char *at,
                     const ech_llama_names *names, int64_t F, int y, double std)
{
    return linear(model, block, at, names->down, y, ECH_AXIS_FFN, F, ECH_AXIS_MODEL,
                  config->model.hidden_size, std);
}

static int mlp(const ech_config *config, ech_model *model, ech_block *block, const char *prefix,
               int x, double std)
{
    const ech_llama_names *names =
        is_switch(config) ? &ech_llama_switch_names : &ech_llama_mlp_names;
    char *at = ech_pool_format(model->pool, "%s.%s", prefix, names->at);
    int64_t F = config->model.intermediate_size;
    int y = ech_llama_widen(config, model, block, at, names, F, x);
    y = ech_llama_narrow(config, model, block, at, names, F, y, std);
    return ech_layer_dropout(block, y, config->model.resid_pdrop);
}

/* Truncated normals of sqrt(s / inputs), whatever a matrix' place: its last axis is its inputs
 * (section 2.4, "reduced initialization", by which training is stable). */
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
static const ech_decoder mixtral_decoder = DECODER(ech_llama_mixtral_experts);
static const ech_decoder qwen3_moe_decoder = DECODER(ech_llama_qwen3_experts);
static const ech_decoder switch_decoder = DECODER(ech_llama_switch_experts);

/* transformers loads no Llama whose heads do not divide its width, also where heads have another
 * width. */
static ech_status check(const ech_config *config)
{
    if (ech_family_of(config) == &ech_family_row_llama &&
        config->model.hidden_size % config->model.num_attention_heads)
        return ech_config_complain(config, "model.num_attention_heads",
                                   "does not divide model.hidden_size = %lld; use qwen3 for that",
                                   (long long)config->model.hidden_size);
    if (ech_family_of(config)->decoder != &decoder) ECH_TRY(ech_llama_check_experts(config));
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
                 "model.num_key_value_heads model.head_dim" ECH_DECODER_KEYS MORE_KEYS,            \
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

/* Of ech_llama_rows, ECH_ROW_OURS. */
#define OUR_ROWS " moe_capacity_factor moe_group_samples moe_gshard_ports"

FAMILY(llama, "LlamaForCausalLM", resolve, decoder, "", "", );
FAMILY(qwen3, "Qwen3ForCausalLM", resolve, decoder, "", "", );
FAMILY(mixtral, "MixtralForCausalLM", resolve, mixtral_decoder, ECH_LLAMA_EXPERT_KEYS, OUR_ROWS, );
FAMILY(qwen3_moe, "Qwen3MoeForCausalLM", resolve_experts, qwen3_moe_decoder,
       ECH_LLAMA_EXPERT_KEYS " model.moe_intermediate_size model.norm_topk_prob model.moe_every "
                             "model.moe_first_dense",
       " num_local_experts" OUR_ROWS, );
FAMILY(switch, "SwitchForCausalLM", resolve_switch, switch_decoder,
       ECH_LLAMA_EXPERT_KEYS " model.moe_every model.moe_first_dense model.hidden_act "
                             "model.initializer_scale",
       OUR_ROWS, .initialize = initialize_switch, .ours = true);

/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama. Touvron et al. 2023, arXiv:2302.13971 and 2307.09288. Parameters under Hugging Face's names,
 * whose weights are (out,in); rotary pairs are (i, i + D/2). Derived families differ in what llama.h names alone.
 */
#include <stdio.h>
#include <string.h>

#include "layer/layers.h"
#include "model/llama.h"

void ech_llama_resolve(ech_config *config)
{
    /* 8/3 of the width, rounded up to a multiple of 64: three matrices cost what GPT-2's two do. */
    if (config->model.intermediate_size == ECH_AUTO)
        config->model.intermediate_size = (8 * config->model.hidden_size / 3 + 63) / 64 * 64;
    if (config->model.tie_word_embeddings == ECH_AUTO) config->model.tie_word_embeddings = false;
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

static int build_embedding(const ech_config *config, ech_model *model)
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

int ech_llama_attention(const ech_config *config, ech_model *model, ech_block *block,
                        const char *prefix, int x, double std, bool norms_heads)
{
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

static int mlp(const ech_config *config, ech_model *model, ech_block *block, const char *prefix,
               int x, double std)
{
    int64_t C = config->model.hidden_size, F = config->model.intermediate_size;
    char *at = ech_pool_format(model->pool, "%s.mlp", prefix);
    int gate =
        linear(model, block, at, "gate_proj", x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, model->std);
    int up = linear(model, block, at, "up_proj", x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, model->std);
    int y = ech_layer_swiglu(block, gate, up);
    y = linear(model, block, at, "down_proj", y, ECH_AXIS_FFN, F, ECH_AXIS_MODEL, C, std);
    return ech_layer_dropout(block, y, config->model.resid_pdrop);
}

static ech_status check_scaling(const ech_config *config)
{
    static const char keys[] = "model.rope_scaling_factor model.rope_scaling_low_freq_factor "
                               "model.rope_scaling_high_freq_factor "
                               "model.rope_scaling_original_max_position_embeddings";
    if (!is_scaled(config))
        return ech_config_check_read(config, keys, "", "model.rope_scaling = none");
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

ech_status ech_llama_build(const ech_config *config, ech_model *model, ech_decoder_part attention)
{
    const ech_decoder decoder = {.layers = "model.layers",
                                 .first_norm = "input_layernorm",
                                 .second_norm = "post_attention_layernorm",
                                 .last_norm = "model.norm",
                                 .norm = norm,
                                 .attention = attention,
                                 .mlp = mlp};
    ECH_TRY(check_head_width(config));
    ECH_TRY(check_scaling(config));
    ech_decoder_build(config, model, &decoder, build_embedding(config, model));
    return ECH_OK;
}

static void export_scaling(const ech_config *config, ech_text *out)
{
    if (!is_scaled(config)) {
        ech_text_append(out, "null,\n");
        return;
    }
    ech_text_append(out,
                    "{\"rope_type\": \"llama3\", \"factor\": %.17g,\n"
                    "  \"low_freq_factor\": %.17g, \"high_freq_factor\": %.17g,\n"
                    "  \"original_max_position_embeddings\": %lld},\n",
                    config->model.rope_scaling_factor, config->model.rope_scaling_low_freq_factor,
                    config->model.rope_scaling_high_freq_factor,
                    (long long)config->model.rope_scaling_original_max_position_embeddings);
}

void ech_llama_export(const ech_llama *kind, const ech_config *config, int32_t begin_of_text,
                      int32_t end_of_text, ech_dtype dtype, ech_text *out)
{
    ech_text_append(
        out,
        "{\"architectures\": [\"%sForCausalLM\"], \"model_type\": \"%s\",\n"
        " \"vocab_size\": %lld, \"hidden_size\": %lld, \"intermediate_size\": %lld,\n"
        " \"num_hidden_layers\": %lld, \"num_attention_heads\": %lld,\n"
        " \"num_key_value_heads\": %lld, \"head_dim\": %lld,\n"
        " \"max_position_embeddings\": %lld, \"hidden_act\": \"silu\",\n",
        kind->name, ech_family_of(config)->name, (long long)config->model.vocab_size,
        (long long)config->model.hidden_size, (long long)config->model.intermediate_size,
        (long long)config->model.num_hidden_layers, (long long)config->model.num_attention_heads,
        (long long)config->model.num_key_value_heads, (long long)config->model.head_dim,
        (long long)config->model.max_position_embeddings);
    ech_text_append(out, " \"rope_theta\": %.17g, \"rope_scaling\": ", config->model.rope_theta);
    export_scaling(config, out);
    ech_text_append(out,
                    " \"rms_norm_eps\": %.17g,\n"
                    " \"attention_bias\": false, \"%s\": false, \"attention_dropout\": %.17g,\n"
                    " \"initializer_range\": %.17g, \"tie_word_embeddings\": %s,\n"
                    " \"bos_token_id\": %d, \"eos_token_id\": %d, \"torch_dtype\": \"%s\"}\n",
                    config->model.rms_norm_eps, kind->off, config->model.attn_pdrop,
                    config->model.initializer_range,
                    config->model.tie_word_embeddings ? "true" : "false", begin_of_text,
                    end_of_text, ech_model_torch_dtype(dtype));
}

/* Where a file is silent, transformers' configuration classes speak. */
static const ech_family_import_row rows[] = {
    {"hidden_size", "model.hidden_size", NULL, false},
    {"num_hidden_layers", "model.num_hidden_layers", NULL, false},
    {"num_attention_heads", "model.num_attention_heads", NULL, false},
    {"intermediate_size", "model.intermediate_size", NULL, false},
    {"vocab_size", "model.vocab_size", NULL, false},
    {"rms_norm_eps", "model.rms_norm_eps", "1e-6", false},
    {"initializer_range", "model.initializer_range", "0.02", true},
    {"tie_word_embeddings", "model.tie_word_embeddings", "false", false},
    {"attention_dropout", "model.attn_pdrop", "0", true}};

static const ech_family_import_row scaling_rows[] = {
    {"factor", "model.rope_scaling_factor", NULL, false},
    {"low_freq_factor", "model.rope_scaling_low_freq_factor", NULL, false},
    {"high_freq_factor", "model.rope_scaling_high_freq_factor", NULL, false}};

/* transformers 4 has rope_theta and rope_scaling, 5 has both as rope_parameters. The older versions of 4
 * call the type "type". */
static ech_status import_rope_from(const ech_family_import *in, const ech_family_import *inner)
{
    ECH_TRY(ech_family_import_only_one(inner, "partial_rotary_factor"));
    const ech_family_import *of_theta = ech_family_import_get(inner, "rope_theta") ? inner : in;
    const ech_family_import_row theta = {"rope_theta", "model.rope_theta", "10000", false};
    ECH_TRY(ech_family_import_rows(of_theta, &theta, 1));
    const char *key = ech_family_import_get(inner, "rope_type") ? "rope_type" : "type";
    ECH_TRY(ech_family_import_only(inner, key, "default llama3"));
    const char *type = json_string_value(ech_family_import_get(inner, key));
    if (!type || strcmp(type, "llama3") != 0)
        return ech_family_import_set(in, "model.rope_scaling", "none");
    const char *positions = "original_max_position_embeddings";
    const bool has = ech_family_import_get(inner, positions) != NULL;
    const ech_family_import_row original = {has ? positions : "max_position_embeddings",
                                            "model.rope_scaling_original_max_position_embeddings",
                                            NULL, false};
    ECH_TRY(ech_family_import_set(in, "model.rope_scaling", "llama3"));
    ECH_TRY(
        ech_family_import_rows(inner, scaling_rows, sizeof scaling_rows / sizeof *scaling_rows));
    return ech_family_import_rows(has ? inner : in, &original, 1);
}

static ech_status import_rope(const ech_family_import *in)
{
    const char *name =
        ech_family_import_get(in, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    const json_t *rope = ech_family_import_get(in, name);
    ech_text path = {0};
    if (rope && !json_is_object(rope))
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be an object, or null", in->path, name);
    ech_text_append(&path, "%s: %s", in->path, name);
    ech_status st = import_rope_from(in, &(ech_family_import){in->config, path.at, rope});
    ech_text_free(&path);
    return st;
}

ech_status ech_llama_import(const ech_llama *kind, const ech_family_import *in)
{
    char heads[32], width[32];
    ECH_TRY(ech_family_import_only(in, "hidden_act", "silu swish"));
    ECH_TRY(ech_family_import_only_bool(in, "attention_bias", false));
    ECH_TRY(ech_family_import_only_bool(in, kind->off, false));
    ECH_TRY(ech_family_import_only_one(in, "partial_rotary_factor"));
    ECH_TRY(ech_family_import_rows(in, rows, sizeof rows / sizeof *rows));
    int64_t C = in->config->model.hidden_size, H = in->config->model.num_attention_heads;
    snprintf(heads, sizeof heads, "%lld", (long long)H);
    snprintf(width, sizeof width, "%lld", (long long)(C / H));
    const ech_family_import_row more[] = {
        {"max_position_embeddings", "model.max_position_embeddings", kind->positions, false},
        {"num_key_value_heads", "model.num_key_value_heads", heads, false},
        {"head_dim", "model.head_dim", kind->head_dim ? kind->head_dim : width, false}};
    ECH_TRY(ech_family_import_rows(in, more, sizeof more / sizeof *more));
    return import_rope(in);
}

/* ---- Llama itself ---- */

static const ech_llama llama = {.name = "Llama", .off = "mlp_bias", .positions = "2048"};

static int attention(const ech_config *config, ech_model *model, ech_block *block,
                     const char *prefix, int x, double std)
{
    return ech_llama_attention(config, model, block, prefix, x, std, false);
}

/* transformers loads no Llama whose heads do not divide its width, also where heads have another width. */
static ech_status build(const ech_config *config, ech_model *model)
{
    if (config->model.hidden_size % config->model.num_attention_heads)
        return ech_config_complain(config, "model.num_attention_heads",
                                   "does not divide model.hidden_size = %lld; use qwen3 for that",
                                   (long long)config->model.hidden_size);
    return ech_llama_build(config, model, attention);
}

static void export_json(const ech_config *config, int32_t begin_of_text, int32_t end_of_text,
                        ech_dtype dtype, ech_text *out)
{
    ech_llama_export(&llama, config, begin_of_text, end_of_text, dtype, out);
}

static ech_status import_json(const ech_family_import *in)
{
    ECH_TRY(ech_family_import_never(in, "sliding_window"));
    return ech_llama_import(&llama, in);
}

const ech_family ech_family_row_llama = {.name = "llama",
                                         .reads = ECH_LLAMA_READS,
                                         .resolve = ech_llama_resolve,
                                         .build = build,
                                         .export_json = export_json,
                                         .import_json = import_json,
                                         .replaces = "dtype rope_parameters",
                                         .prefix = "model.",
                                         .table = "model.embed_tokens.weight",
                                         .buffers = ".rotary_emb.inv_freq"};

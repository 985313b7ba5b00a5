/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2. Radford et al. 2019. Parameters under Hugging Face's names, whose c_* weights are (in,out).
 */
#include <stdio.h>

#include "layer/layers.h"
#include "model/decoder.h"
#include "model/import.h"

static void resolve(ech_config *config)
{
    if (config->model.intermediate_size == ECH_AUTO)
        config->model.intermediate_size = 4 * config->model.hidden_size;
    if (config->model.tie_word_embeddings == ECH_AUTO) config->model.tie_word_embeddings = true;
}

/* x -> LayerNorm(x) with the parameters NAME.weight and NAME.bias. */
static int norm(ech_model *model, ech_block *block, const ech_config *config, const char *name,
                int x)
{
    int64_t C = config->model.hidden_size;
    char *weight = ech_pool_format(model->pool, "%s.weight", name);
    char *bias = ech_pool_format(model->pool, "%s.bias", name);
    int gain = ech_model_vector(model, block, weight, ECH_AXIS_MODEL, C, ECH_INIT_ONE);
    int shift = ech_model_vector(model, block, bias, ECH_AXIS_MODEL, C, ECH_INIT_ZERO);
    return ech_layer_layernorm(block, x, gain, shift, config->model.layer_norm_epsilon);
}

/* x (B,T,in) -> (B,T,out) with NAME.weight (in,out) and NAME.bias (out). */
static int conv1d(ech_model *model, ech_block *block, const char *name, int x, ech_axis in_axis,
                  int64_t in, ech_axis axis, int64_t out, double std)
{
    char *weight = ech_pool_format(model->pool, "%s.weight", name);
    char *bias = ech_pool_format(model->pool, "%s.bias", name);
    int w = ech_model_matrix(model, block, weight, ech_shape_2d(in_axis, in, axis, out), std);
    int b = ech_model_vector(model, block, bias, axis, out, ECH_INIT_ZERO);
    return ech_layer_linear(block, x, w, b, true, axis, out);
}

/* Returns the token table's parameter. */
static int build_embedding(const ech_config *config, ech_model *model)
{
    int64_t C = config->model.hidden_size, V = config->model.vocab_size;
    int64_t P = config->model.max_position_embeddings;
    ech_block *block = ech_model_block(model, "transformer.embeddings");
    int tokens = ech_model_matrix(model, block, "transformer.wte.weight",
                                  ech_shape_2d(ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C), model->std);
    int positions =
        ech_model_matrix(model, block, "transformer.wpe.weight",
                         ech_shape_2d(ECH_AXIS_POSITION, P, ECH_AXIS_MODEL, C), model->std);
    int x = ech_layer_embedding(block, ech_block_batch(block, ECH_TOKENS), tokens, C);
    x = ech_layer_position(block, x, positions, ech_block_starts(block));
    ech_block_output(block, ech_layer_dropout(block, x, config->model.embd_pdrop));
    return tokens;
}

static int attention(const ech_config *config, ech_model *model, ech_block *block, const char *name,
                     int x, double std)
{
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads, D = C / H;
    ech_shape heads = ech_shape_heads(ECH_AXIS_HEADS, H, D);
    char *in = ech_pool_format(model->pool, "%s.attn.c_attn", name);
    char *out = ech_pool_format(model->pool, "%s.attn.c_proj", name);
    int qkv = conv1d(model, block, in, x, ECH_AXIS_MODEL, C, ECH_AXIS_QKV, 3 * C, model->std);
    int q = ech_block_view(block, qkv, 0, heads);
    int k = ech_block_view(block, qkv, C, heads);
    int v = ech_block_view(block, qkv, 2 * C, heads);
    int starts = ech_block_starts(block);
    int y = ech_layer_attention(block, q, k, v, starts, config->model.attn_pdrop);
    y = ech_block_view(block, y, 0, ech_shape_rows(ECH_AXIS_HEADS, C));
    y = conv1d(model, block, out, y, ECH_AXIS_HEADS, C, ECH_AXIS_MODEL, C, std);
    return ech_layer_dropout(block, y, config->model.resid_pdrop);
}

static int mlp(const ech_config *config, ech_model *model, ech_block *block, const char *name,
               int x, double std)
{
    int64_t C = config->model.hidden_size, F = config->model.intermediate_size;
    char *up = ech_pool_format(model->pool, "%s.mlp.c_fc", name);
    char *down = ech_pool_format(model->pool, "%s.mlp.c_proj", name);
    int y = conv1d(model, block, up, x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, model->std);
    y = ech_layer_gelu(block, y);
    y = conv1d(model, block, down, y, ECH_AXIS_FFN, F, ECH_AXIS_MODEL, C, std);
    return ech_layer_dropout(block, y, config->model.resid_pdrop);
}

static const ech_decoder decoder = {.layers = "transformer.h",
                                    .first_norm = "ln_1",
                                    .second_norm = "ln_2",
                                    .last_norm = "transformer.ln_f",
                                    .norm = norm,
                                    .attention = attention,
                                    .mlp = mlp};

static ech_status build(const ech_config *config, ech_model *model)
{
    ech_decoder_build(config, model, &decoder, build_embedding(config, model));
    return ECH_OK;
}

static void export_json(const ech_config *config, int32_t begin_of_text, int32_t end_of_text,
                        ech_dtype dtype, ech_text *out)
{
    ech_text_append(
        out,
        "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\",\n"
        " \"vocab_size\": %lld, \"n_positions\": %lld, \"n_embd\": %lld,\n"
        " \"n_layer\": %lld, \"n_head\": %lld, \"n_inner\": %lld,\n",
        (long long)config->model.vocab_size, (long long)config->model.max_position_embeddings,
        (long long)config->model.hidden_size, (long long)config->model.num_hidden_layers,
        (long long)config->model.num_attention_heads, (long long)config->model.intermediate_size);
    ech_text_append(out,
                    " \"activation_function\": \"gelu_new\", \"resid_pdrop\": %.17g,\n"
                    " \"embd_pdrop\": %.17g, \"attn_pdrop\": %.17g,\n"
                    " \"layer_norm_epsilon\": %.17g, \"initializer_range\": %.17g,\n"
                    " \"scale_attn_weights\": true, \"tie_word_embeddings\": %s,\n"
                    " \"bos_token_id\": %d, \"eos_token_id\": %d, \"torch_dtype\": \"%s\"}\n",
                    config->model.resid_pdrop, config->model.embd_pdrop, config->model.attn_pdrop,
                    config->model.layer_norm_epsilon, config->model.initializer_range,
                    config->model.tie_word_embeddings ? "true" : "false", begin_of_text,
                    end_of_text, ech_model_torch_dtype(dtype));
}

/* Where a file is silent, transformers' GPT2Config speaks. */
static const ech_family_import_row rows[] = {
    {"n_embd", "model.hidden_size", NULL, false},
    {"n_layer", "model.num_hidden_layers", NULL, false},
    {"n_head", "model.num_attention_heads", NULL, false},
    {"n_head", "model.num_key_value_heads", NULL, false},
    {"n_positions", "model.max_position_embeddings", NULL, false},
    {"vocab_size", "model.vocab_size", NULL, false},
    {"layer_norm_epsilon", "model.layer_norm_epsilon", "1e-5", false},
    {"initializer_range", "model.initializer_range", "0.02", true},
    {"tie_word_embeddings", "model.tie_word_embeddings", "true", false},
    {"embd_pdrop", "model.embd_pdrop", "0.1", true},
    {"resid_pdrop", "model.resid_pdrop", "0.1", true},
    {"attn_pdrop", "model.attn_pdrop", "0.1", true}};

static ech_status import_json(const ech_family_import *in)
{
    char inner[32];
    ECH_TRY(ech_family_import_only(in, "activation_function", "gelu_new gelu_pytorch_tanh"));
    ECH_TRY(ech_family_import_only_bool(in, "scale_attn_weights", true));
    ECH_TRY(ech_family_import_only_bool(in, "scale_attn_by_inverse_layer_idx", false));
    ECH_TRY(ech_family_import_only_bool(in, "add_cross_attention", false));
    ECH_TRY(ech_family_import_rows(in, rows, sizeof rows / sizeof *rows));
    snprintf(inner, sizeof inner, "%lld", 4 * (long long)in->config->model.hidden_size);
    const ech_family_import_row width = {"n_inner", "model.intermediate_size", inner, false};
    return ech_family_import_rows(in, &width, 1);
}

const ech_family ech_family_row_gpt2 = {.name = "gpt2",
                                        .reads = "model.layer_norm_epsilon model.embd_pdrop "
                                                 "model.resid_pdrop model.attn_pdrop "
                                                 "model.num_key_value_heads",
                                        .resolve = resolve,
                                        .build = build,
                                        .export_json = export_json,
                                        .import_json = import_json,
                                        .replaces = "dtype",
                                        .prefix = "transformer.",
                                        .table = "transformer.wte.weight",
                                        .buffers = ".attn.bias .attn.masked_bias"};

/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2. Radford et al. 2019. Parameters under Hugging Face's names, whose c_* weights are
 * (in,out).
 */
#include "layer/layers.h"
#include "model/family.h"

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

static int embedding(const ech_config *config, ech_model *model)
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
    y = ech_layer_activation(block, ECH_ACTIVATION_GELU, y, -1);
    y = conv1d(model, block, down, y, ECH_AXIS_FFN, F, ECH_AXIS_MODEL, C, std);
    return ech_layer_dropout(block, y, config->model.resid_pdrop);
}

static const ech_decoder decoder = {.embedding = embedding,
                                    .layers = "transformer.h",
                                    .first_norm = "ln_1",
                                    .second_norm = "ln_2",
                                    .last_norm = "transformer.ln_f",
                                    .norm = norm,
                                    .attention = attention,
                                    .mlp = mlp};

static int64_t inner(const ech_config *config)
{
    return 4 * config->model.hidden_size;
}

/* Defaults are those of transformers' GPT2Config. */
static const ech_family_row rows[] = {
    {"vocab_size", "model.vocab_size", .initial = NULL},
    {"n_positions", "model.max_position_embeddings", .initial = NULL},
    {"n_embd", "model.hidden_size", .initial = NULL},
    {"n_layer", "model.num_hidden_layers", .initial = NULL},
    {"n_head", "model.num_attention_heads", .initial = NULL},
    {"n_head", "model.num_key_value_heads", .use = ECH_ROW_UNWRITTEN},
    {"n_inner", "model.intermediate_size", .derived = inner},
    {"activation_function", .initial = "gelu_new gelu_pytorch_tanh"},
    {"resid_pdrop", "model.resid_pdrop", "0.1", .use = ECH_ROW_MAY_DIFFER},
    {"embd_pdrop", "model.embd_pdrop", "0.1", .use = ECH_ROW_MAY_DIFFER},
    {"attn_pdrop", "model.attn_pdrop", "0.1", .use = ECH_ROW_MAY_DIFFER},
    {"layer_norm_epsilon", "model.layer_norm_epsilon", .initial = "1e-5"},
    {"initializer_range", "model.initializer_range", "0.02", .use = ECH_ROW_MAY_DIFFER},
    {"scale_attn_weights", .initial = "true"},
    {"tie_word_embeddings", "model.tie_word_embeddings", .initial = "true"},
    {"scale_attn_by_inverse_layer_idx", .initial = "false", .use = ECH_ROW_UNWRITTEN},
    {"add_cross_attention", .initial = "false", .use = ECH_ROW_UNWRITTEN},
    {.name = NULL}};

const ech_family ech_family_row_gpt2 = {.name = "gpt2",
                                        .reads = "model.layer_norm_epsilon model.embd_pdrop "
                                                 "model.resid_pdrop model.attn_pdrop "
                                                 "model.num_key_value_heads" ECH_DECODER_KEYS,
                                        .resolve = resolve,
                                        .decoder = &decoder,
                                        .architecture = "GPT2LMHeadModel",
                                        .rows = rows,
                                        .replaces = "dtype",
                                        .prefix = "transformer.",
                                        .table = "transformer.wte.weight",
                                        .buffers = ".attn.bias .attn.masked_bias"};

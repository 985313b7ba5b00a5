/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2. Radford et al. 2019. Weights of Hugging Face's Conv1D are (in,out). GPT2Config has the
 * same defaults.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    {"vocab_size", "model.vocab_size", .initial = NULL},
    {"n_positions", "model.max_position_embeddings", .initial = NULL},
    {"n_embd", "model.hidden_size", .initial = NULL},
    {"n_layer", "model.num_hidden_layers", .initial = NULL},
    {"n_head", "model.num_attention_heads", .initial = NULL},
    {"n_head", "model.num_key_value_heads", .use = ECH_ROW_UNWRITTEN},
    {"n_inner", "model.intermediate_size", .derived = ech_inner_quadruple},
    {"activation_function", "model.hidden_act", "gelu_new", .values = ECH_PLAIN_ACTS},
    {"resid_pdrop", "model.resid_pdrop", "0.1", .use = ECH_ROW_MAY_DIFFER},
    {"embd_pdrop", "model.embd_pdrop", "0.1", .use = ECH_ROW_MAY_DIFFER},
    {"attn_pdrop", "model.attn_pdrop", "0.1", .use = ECH_ROW_MAY_DIFFER},
    {"layer_norm_epsilon", "model.layer_norm_epsilon", .initial = "1e-5"},
    {"initializer_range", "model.initializer_range", "0.02", .use = ECH_ROW_MAY_DIFFER},
    {"scale_attn_weights", .initial = "true", .property = "scores that are not scaled"},
    {"tie_word_embeddings", "model.tie_word_embeddings", .initial = "true"},
    {"scale_attn_by_inverse_layer_idx", .initial = "false", .use = ECH_ROW_UNWRITTEN,
     .property = "scale of scores by layer"},
    {"add_cross_attention", .initial = "false", .use = ECH_ROW_UNWRITTEN,
     .property = "cross attention"},
    ECH_ROWS_END};

static const ech_names names = {.tokens = "transformer.wte",
                                .positions = "transformer.wpe",
                                .layers = "transformer.h",
                                .last_norm = "transformer.ln_f",
                                .attention_norm = "ln_1",
                                .mlp_norm = "ln_2",
                                .qkv = "attn.c_attn",
                                .o = "attn.c_proj",
                                .up = "mlp.c_fc",
                                .down = "mlp.c_proj",
                                .in_first = true};

const ech_family ech_family_row_gpt2 = {
    .name = "gpt2",
    .help = "GPT-2: learned positions, LayerNorm, GELU, biases, tied head",
    .reads = ECH_DECODER_KEYS,
    .constants = "model.norm=layernorm model.position_encoding=learned model.qkv_bias=true "
                 "model.o_bias=true model.mlp_bias=true",
    .defaults = "model.hidden_act=gelu_new model.tie_word_embeddings=true",
    .architecture = "GPT2LMHeadModel",
    .rows = rows,
    .replaces = "dtype",
    .names = &names,
    .prefix = "transformer.",
    .buffers = ".attn.bias .attn.masked_bias"};

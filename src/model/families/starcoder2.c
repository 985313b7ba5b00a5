/* SPDX-License-Identifier: Apache-2.0
 *
 * StarCoder2. Lozhkov et al. 2024, arXiv:2402.19173: rotary positions and grouped-query attention
 * with GPT-2's LayerNorm, GELU and biases.
 */
#include "model/family.h"

#define BIAS(key, use_of) ECH_ROW("use_bias", key, .initial = "true", .use = use_of)

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS("2"),
    ECH_ROW_HEAD_DIM,
    ECH_ROW_POSITIONS("4096"),
    {"hidden_act", "model.hidden_act", .initial = "gelu_pytorch_tanh",
     .values = "gelu_pytorch_tanh=gelu_new gelu_new=gelu_new relu=relu"},
    ECH_ROWS_ROPE,
    {"norm_epsilon", "model.layer_norm_epsilon", .initial = "1e-5"},
    BIAS("model.qkv_bias", 0),
    BIAS("model.o_bias", ECH_ROW_UNWRITTEN),
    BIAS("model.mlp_bias", ECH_ROW_UNWRITTEN),
    ECH_ROW_WINDOW("0"),
    {"residual_dropout", "model.resid_pdrop", .initial = "0", .use = ECH_ROW_MAY_DIFFER},
    {"embedding_dropout", "model.embd_pdrop", .initial = "0", .use = ECH_ROW_MAY_DIFFER},
    ECH_ROWS_TRAINING("0.018042"),
    ECH_ROW_TIED("true"),
    ECH_ROW_WHOLE_ROTARY,
    ECH_ROWS_END};

static const ech_names names = {.up = "mlp.c_fc", .down = "mlp.c_proj"};

const ech_family ech_family_row_starcoder2 = {
    .name = "starcoder2",
    .help = "StarCoder2: rotary positions with GPT-2's LayerNorm, GELU and biases",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .constants = "model.norm=layernorm",
    .defaults = "model.hidden_act=gelu_new model.qkv_bias=true model.o_bias=true "
                "model.mlp_bias=true model.tie_word_embeddings=true",
    .architecture = "Starcoder2ForCausalLM",
    .windows = &ech_windows_of_all,
    .rows = rows,
    .names = &names,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES("")};

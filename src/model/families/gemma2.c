/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 2. Gemma Team 2024, arXiv:2408.00118: norms with gains of 1 + w before and after attention
 * and feed-forward layers, GeGLU, attention windows in every second layer, soft-caps of scores and
 * logits, and embeddings times the square root of their width.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS("4"),
    {"head_dim", "model.head_dim", .initial = "256"},
    ECH_ROW_POSITIONS("8192"),
    {"hidden_activation", "model.hidden_act", "gelu_pytorch_tanh", .values = ECH_GATED_ACTS},
    ECH_ROWS_ROPE,
    ECH_ROW_RMS_EPS("1e-6"),
    ECH_ROWS_ATTENTION_BIAS("false"),
    ECH_ROW_WINDOW("4096"),
    ECH_ROWS_SOFTCAPS("50", "30"),
    ECH_ROW_CAUSAL,
    ECH_ROWS_LLAMA_REST("true"),
    ECH_ROWS_END};

static const ech_windows windows = {.has = ech_windows_but_every, .otherwise = 2};

static ech_status import(const ech_family_import *in)
{
    return ech_scale_import(in, "query_pre_attn_scalar", 256, ECH_SCALE_ROOT);
}

static void export(const ech_config *config, json_t *json)
{
    ech_scale_export(config, "query_pre_attn_scalar", ECH_SCALE_ROOT, json);
}

static const ech_names names = {.mlp_norm = "pre_feedforward_layernorm"};

const ech_family ech_family_row_gemma2 = {
    .name = "gemma2",
    .help = "Gemma 2: norms before and after, GeGLU, windows in every second layer, soft-caps",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .constants = "model.norm_unit_offset=true model.norm_placement=both "
                 "model.embedding_multiplier=0",
    .defaults = "model.hidden_act=geglu model.tie_word_embeddings=true model.sliding_window=4096 "
                "model.window_layers=LG model.attn_logit_softcapping=50 "
                "model.final_logit_softcapping=30",
    .check = ech_scale_check_root,
    .architecture = "Gemma2ForCausalLM",
    .also = "model.attention_scale",
    .windows = &windows,
    .rows = rows,
    .names = &names,
    .import_more = import,
    .export_more = export,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES(" hidden_act")};

/* SPDX-License-Identifier: Apache-2.0
 *
 * The text models of Gemma 3. Gemma Team 2025, arXiv:2503.19786: Gemma 2 without soft-caps, with
 * norms of each head's queries and keys. All layers but every sixth one have attention windows and
 * a rotary base of their own.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS("4"),
    {"head_dim", "model.head_dim", .initial = "256"},
    ECH_ROW_POSITIONS("131072"),
    {"hidden_activation", "model.hidden_act", "gelu_pytorch_tanh", .values = ECH_GATED_ACTS},
    ECH_ROWS_ROPE,
    ECH_ROW_RMS_EPS("1e-6"),
    ECH_ROWS_ATTENTION_BIAS("false"),
    ECH_ROW_WINDOW("4096"),
    {"attn_logit_softcapping", .initial = "null", .use = ECH_ROW_UNWRITTEN,
     .property = "soft-caps of scores in gemma3_text"},
    {"final_logit_softcapping", "model.final_logit_softcapping", "0", .use = ECH_ROW_REAL,
     .null = "0"},
    ECH_ROW_CAUSAL,
    ECH_ROWS_LLAMA_REST("true"),
    ECH_ROWS_END};

static const ech_windows windows = {
    .has = ech_windows_but_every, .number = "sliding_window_pattern", .otherwise = 6, .least = 1};

static const ech_rope_names rope = {
    .theta_initial = "1e6", .local = "rope_local_base_freq", .local_initial = "10000"};

static ech_status import(const ech_family_import *in)
{
    return ech_scale_import(in, "query_pre_attn_scalar", 256, ECH_SCALE_ROOT);
}

static void export(const ech_config *config, json_t *json)
{
    ech_scale_export(config, "query_pre_attn_scalar", ECH_SCALE_ROOT, json);
}

static ech_status check(const ech_config *config)
{
    ECH_TRY(ech_scale_check_root(config));
    return ech_rope_check_by_type(config);
}

static const ech_names names = {.mlp_norm = "pre_feedforward_layernorm"};

const ech_family ech_family_row_gemma3_text = {
    .name = "gemma3_text",
    .help = "Gemma 3, text: Gemma 2 with head norms; all layers but every sixth have windows",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS " model.rope_local_base_freq",
    .constants = "model.norm_unit_offset=true model.norm_placement=both model.head_norm=head "
                 "model.embedding_multiplier=0",
    .defaults = "model.hidden_act=geglu model.tie_word_embeddings=true model.sliding_window=4096 "
                "model.window_layers=LLLLLG model.rope_theta=1000000 "
                "model.rope_local_base_freq=10000",
    .check = check,
    .architecture = "Gemma3ForCausalLM",
    .also = "model.attention_scale",
    .windows = &windows,
    .rows = rows,
    .names = &names,
    .import_more = import,
    .export_more = export,
    .rope = &rope,
    ECH_ROTARY_FILES(" hidden_act sliding_window_pattern")};

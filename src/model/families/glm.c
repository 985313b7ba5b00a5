/* SPDX-License-Identifier: Apache-2.0
 *
 * GLM-4 of 2024, and GLM-Edge. GLM team 2024, arXiv:2406.12793: Llama with rotary pairs of
 * neighbours in a part of each head, and biases of queries, keys and values.
 */
#include "model/family.h"

const ech_family_row ech_glm_rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS("2"),
    {"head_dim", "model.head_dim", .initial = "128"},
    ECH_ROW_POSITIONS("131072"),
    ECH_ROW_GATED_ACT,
    ECH_ROWS_ROPE,
    {"partial_rotary_factor", "model.partial_rotary_factor", .use = ECH_ROW_UNREAD},
    ECH_ROW_RMS_EPS("1.5625e-7"),
    {"attention_bias", "model.qkv_bias", .initial = "true"},
    ECH_ROWS_TRAINING("0.02"),
    ECH_ROW_TIED("false"),
    ECH_ROW_NO_PAD,
    ECH_ROWS_END};

const ech_family_fused ech_glm_fused[] = {
    {.file = ".mlp.gate_up_proj", .parts = ".mlp.gate_proj .mlp.up_proj", .order = ECH_FUSED_PARTS},
    {.file = NULL}};

const ech_rope_names ech_glm_rope = {.part_initial = "0.5"};

const ech_family ech_family_row_glm = {
    .name = "glm",
    .help = "GLM-4 of 2024: Llama with partial rotary pairs of neighbours and biases of q, k, v",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .constants = "model.rope_interleaved=true",
    .defaults = "model.qkv_bias=true model.partial_rotary_factor=0.5",
    .architecture = "GlmForCausalLM",
    .rows = ech_glm_rows,
    .rope = &ech_glm_rope,
    ECH_ROTARY_FILES(""),
    .fused = ech_glm_fused};

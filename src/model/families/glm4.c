/* SPDX-License-Identifier: Apache-2.0
 *
 * GLM-4 of 2025. GLM team 2024, arXiv:2406.12793: Llama with norms before and after each part,
 * rotary pairs of neighbours in a part of each head, and biases of queries, keys and values.
 */
#include "model/family.h"

static const ech_names names = {.after_attention_norm = "post_self_attn_layernorm",
                                .after_mlp_norm = "post_mlp_layernorm"};

const ech_family ech_family_row_glm4 = {
    .name = "glm4",
    .help = "GLM-4: Llama with norms after each part, too, and partial rotary pairs of neighbours",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .constants = "model.norm_placement=both model.rope_interleaved=true",
    .defaults = "model.qkv_bias=true model.partial_rotary_factor=0.5",
    .architecture = "Glm4ForCausalLM",
    .rows = ech_glm_rows,
    .names = &names,
    .rope = &ech_glm_rope,
    ECH_ROTARY_FILES(""),
    .fused = ech_glm_fused};

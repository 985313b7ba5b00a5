/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen3, the dense models. Yang et al. 2025, arXiv:2505.09388: Llama with an independent head width
 * and RMSNorm of queries and keys (Dehghani et al. 2023, arXiv:2302.05442, section 2.1, has
 * LayerNorm there).
 */
#include "model/family.h"

static const ech_family_row rows[] = {ECH_ROWS_SIZES,
                                      ECH_ROW_KV_HEADS_OR_NULL("32"),
                                      {"head_dim", "model.head_dim", .initial = "128"},
                                      ECH_ROW_POSITIONS("32768"),
                                      ECH_ROW_GATED_ACT,
                                      ECH_ROWS_ROPE,
                                      ECH_ROW_RMS_EPS("1e-6"),
                                      ECH_ROWS_ATTENTION_BIAS("false"),
                                      ECH_ROWS_LLAMA_REST("false"),
                                      ECH_ROWS_END};

const ech_family ech_family_row_qwen3 = {
    .name = "qwen3",
    .help =
        "Qwen3: Llama with RMSNorm of each head's queries and keys, and an independent head width",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .constants = "model.head_norm=head",
    .architecture = "Qwen3ForCausalLM",
    .windows = &ech_windows_of_last,
    .rows = rows,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES("")};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen2 and Qwen2.5, the dense models. Yang et al. 2024, arXiv:2407.10671: Llama with biases of
 * queries, keys and values.
 */
#include "model/family.h"

static const ech_family_row rows[] = {ECH_ROWS_SIZES, ECH_ROW_KV_HEADS_OR_NULL("32"),
                                      ECH_ROWS_LLAMA("32768", "1e-6"), ECH_ROWS_LLAMA_REST("false"),
                                      ECH_ROWS_END};

const ech_family ech_family_row_qwen2 = {
    .name = "qwen2",
    .help = "Qwen2 and Qwen2.5: Llama with biases of queries, keys and values",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .constants = "model.qkv_bias=true",
    .architecture = "Qwen2ForCausalLM",
    .windows = &ech_windows_of_last,
    .rows = rows,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES("")};

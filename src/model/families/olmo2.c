/* SPDX-License-Identifier: Apache-2.0
 *
 * OLMo 2. Team OLMo 2024, arXiv:2501.00656: Llama with norms after attention and feed-forward
 * layers instead of before them, and norms of all heads' queries together, and of their keys.
 */
#include "model/family.h"

static const ech_family_row rows[] = {ECH_ROWS_SIZES,
                                      ECH_ROW_KV_HEADS_AS_HEADS,
                                      ECH_ROWS_LLAMA("2048", "1e-5"),
                                      ECH_ROWS_ATTENTION_BIAS("false"),
                                      ECH_ROWS_LLAMA_REST("false"),
                                      ECH_ROW_NO_WINDOW,
                                      ECH_ROWS_END};

const ech_family ech_family_row_olmo2 = {
    .name = "olmo2",
    .help = "OLMo 2: Llama with norms after attention and MLP, and of all heads together",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .constants = "model.norm_placement=after model.head_norm=full",
    .architecture = "Olmo2ForCausalLM",
    .rows = rows,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES("")};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Mistral. Jiang et al. 2023, arXiv:2310.06825: Llama, with one attention window in all layers in
 * its first version. A file without sliding_window means a window of 4096; null means none.
 */
#include "model/family.h"

static const ech_family_row rows[] = {ECH_ROWS_SIZES,
                                      ECH_ROW_KV_HEADS_OR_NULL("8"),
                                      ECH_ROWS_LLAMA("131072", "1e-6"),
                                      ECH_ROW_WINDOW("4096"),
                                      ECH_ROWS_TRAINING("0.02"),
                                      ECH_ROW_TIED("false"),
                                      ECH_ROW_WHOLE_ROTARY,
                                      ECH_ROWS_END};

const ech_family ech_family_row_mistral = {
    .name = "mistral",
    .help = "Mistral: Llama with grouped-query attention and, at first, attention windows",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .architecture = "MistralForCausalLM",
    .windows = &ech_windows_of_all,
    .rows = rows,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES("")};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen2 and Qwen2.5, the dense models. Yang et al. 2024, arXiv:2407.10671: Llama with biases of
 * queries, keys and values.
 */
#include "model/family.h"

static const ech_family_row rows[] = {ECH_ROWS_SIZES,
                                      {"num_key_value_heads", "model.num_key_value_heads",
                                       .initial = "32", .derived = ech_rows_heads},
                                      ECH_ROW_HEAD_DIM,
                                      ECH_ROW_POSITIONS("32768"),
                                      ECH_ROW_GATED_ACT,
                                      ECH_ROWS_ROPE,
                                      ECH_ROW_RMS_EPS("1e-6"),
                                      ECH_ROWS_TRAINING("0.02"),
                                      ECH_ROW_TIED("false"),
                                      ECH_ROW_WHOLE_ROTARY,
                                      ECH_ROWS_END};

static const ech_windows windows = {
    .has = ech_windows_from, .number = "max_window_layers", .otherwise = 28, .switched = "4096"};

const ech_family ech_family_row_qwen2 = {.name = "qwen2",
                                         .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
                                         .constants = "model.qkv_bias=true",
                                         .architecture = "Qwen2ForCausalLM",
                                         .windows = &windows,
                                         .rows = rows,
                                         .import_more = ech_family_import_rotary,
                                         .export_more = ech_rope_export,
                                         .replaces = "dtype rope_parameters",
                                         .prefix = "model.",
                                         .buffers = ".rotary_emb.inv_freq"};

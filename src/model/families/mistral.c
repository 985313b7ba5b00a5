/* SPDX-License-Identifier: Apache-2.0
 *
 * Mistral. Jiang et al. 2023, arXiv:2310.06825: Llama, with one attention window in all layers in
 * its first version. A file without sliding_window means a window of 4096; null means none.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    {"num_key_value_heads", "model.num_key_value_heads", .initial = "8", .derived = ech_rows_heads},
    ECH_ROW_HEAD_DIM,
    ECH_ROW_POSITIONS("131072"),
    ECH_ROW_GATED_ACT,
    ECH_ROWS_ROPE,
    ECH_ROW_RMS_EPS("1e-6"),
    ECH_ROW_WINDOW("4096"),
    ECH_ROWS_TRAINING("0.02"),
    ECH_ROW_TIED("false"),
    ECH_ROW_WHOLE_ROTARY,
    ECH_ROWS_END};

const ech_family ech_family_row_mistral = {.name = "mistral",
                                           .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
                                           .architecture = "MistralForCausalLM",
                                           .windows = &ech_windows_of_all,
                                           .rows = rows,
                                           .import_more = ech_family_import_rotary,
                                           .export_more = ech_rope_export,
                                           .replaces = "dtype rope_parameters",
                                           .prefix = "model.",
                                           .buffers = ".rotary_emb.inv_freq"};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Mistral. Jiang et al. 2023, arXiv:2310.06825: Llama, with attention windows in its first version.
 * A file without sliding_window means windows of 4096, so that it must say null.
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
    {"sliding_window", .initial = "null", .use = ECH_ROW_NEEDED, .property = "attention windows"},
    {"layer_types", .initial = "full_attention", .use = ECH_ROW_UNWRITTEN | ECH_ROW_LIST,
     .property = "attention windows"},
    ECH_ROWS_TRAINING("0.02"),
    ECH_ROW_TIED("false"),
    ECH_ROW_WHOLE_ROTARY,
    ECH_ROWS_END};

const ech_family ech_family_row_mistral = {.name = "mistral",
                                           .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
                                           .architecture = "MistralForCausalLM",
                                           .rows = rows,
                                           .import_more = ech_family_import_rotary,
                                           .export_more = ech_rope_export,
                                           .replaces = "dtype rope_parameters",
                                           .prefix = "model.",
                                           .buffers = ".rotary_emb.inv_freq"};

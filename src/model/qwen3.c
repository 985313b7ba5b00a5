/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen3, the dense models. Yang et al. 2025, arXiv:2505.09388: Llama with an independent head width and RMSNorm of
 * queries and keys (Dehghani et al. 2023, arXiv:2302.05442, section 2.1, has LayerNorm there).
 */
#include "model/llama.h"

static const ech_llama qwen3 = {
    .name = "Qwen3", .off = "use_sliding_window", .positions = "32768", .head_dim = "128"};

static int attention(const ech_config *config, ech_model *model, ech_block *block,
                     const char *prefix, int x, double std)
{
    return ech_llama_attention(config, model, block, prefix, x, std, true);
}

static ech_status build(const ech_config *config, ech_model *model)
{
    return ech_llama_build(config, model, attention);
}

static void export_json(const ech_config *config, int32_t begin_of_text, int32_t end_of_text,
                        ech_dtype dtype, ech_text *out)
{
    ech_llama_export(&qwen3, config, begin_of_text, end_of_text, dtype, out);
}

static ech_status import_json(const ech_family_import *in)
{
    ECH_TRY(ech_family_import_only_all(in, "layer_types", "full_attention"));
    return ech_llama_import(&qwen3, in);
}

const ech_family ech_family_row_qwen3 = {.name = "qwen3",
                                         .reads = ECH_LLAMA_READS,
                                         .resolve = ech_llama_resolve,
                                         .build = build,
                                         .export_json = export_json,
                                         .import_json = import_json,
                                         .replaces = "dtype rope_parameters",
                                         .prefix = "model.",
                                         .table = "model.embed_tokens.weight",
                                         .buffers = ".rotary_emb.inv_freq"};

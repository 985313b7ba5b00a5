/* SPDX-License-Identifier: Apache-2.0
 *
 * Granite 3, the dense models (IBM 2024): Llama with four multipliers, after maximal update
 * parametrization (Yang et al. 2022, arXiv:2203.03466).
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS_AS_HEADS,
    ECH_ROWS_LLAMA("2048", "1e-6"),
    ECH_ROWS_ATTENTION_BIAS("false"),
    ECH_ROW_MLP_BIAS("false"),
    {"embedding_multiplier", "model.embedding_multiplier", .initial = "1"},
    {"residual_multiplier", "model.residual_multiplier", .initial = "1"},
    {"logits_scaling", "model.logits_scaling", .initial = "1"},
    ECH_ROWS_LLAMA_REST("false"),
    ECH_ROWS_END};

/* A factor of 0 in the file is none that a run file can have. */
static ech_status import(const ech_family_import *in)
{
    const json_t *factor = ech_family_import_get(in, "embedding_multiplier");
    if (json_is_number(factor) && !(json_number_value(factor) > 0))
        ECH_FAIL(ECH_EINPUT, "%s: embedding_multiplier = %g: must be above 0", in->path,
                 json_number_value(factor));
    return ech_scale_import(in, "attention_multiplier", 1, ECH_SCALE_FACTOR);
}

static void export(const ech_config *config, json_t *json)
{
    ech_scale_export(config, "attention_multiplier", ECH_SCALE_FACTOR, json);
}

/* In a run file, 0 is the square root of the width. */
static ech_status check(const ech_config *config)
{
    if (config->model.embedding_multiplier > 0) return ECH_OK;
    return ech_config_complain(config, "model.embedding_multiplier", "must be above 0 in granite");
}

const ech_family ech_family_row_granite = {
    .name = "granite",
    .help = "Granite: Llama with multipliers of embeddings, residuals, scores and logits",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .check = check,
    .architecture = "GraniteForCausalLM",
    .also = "model.attention_scale",
    .rows = rows,
    .import_more = import,
    .export_more = export,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES("")};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen3-MoE. Yang et al. 2025, arXiv:2505.09388: Qwen3 with experts, whose width is a key of its
 * own.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS("4"),
    ECH_ROWS_LLAMA("32768", "1e-6"),
    {"num_experts", "model.num_local_experts", .use = ECH_ROW_UNREAD},
    {"num_experts_per_tok", "model.num_experts_per_tok", .initial = "8"},
    {"moe_intermediate_size", "model.moe_intermediate_size", .initial = "768"},
    {"norm_topk_prob", "model.norm_topk_prob", .initial = "false"},
    {"decoder_sparse_step", "model.moe_every", .initial = "1"},
    ECH_ROWS_CAPACITY,
    ECH_ROWS_ATTENTION_BIAS("false"),
    ECH_ROWS_LLAMA_REST("false"),
    ECH_ROWS_END};

static const ech_windows windows = {.switched = "4096", .alike = true};

static ech_status import_more(const ech_family_import *in)
{
    ECH_TRY(ech_family_import_experts(in, "128"));
    return ech_family_import_dense(in);
}

const ech_family ech_family_row_qwen3_moe = {
    .name = "qwen3_moe",
    .help = "Qwen3-MoE: Qwen3 with experts of their own width in place of the feed-forward layers",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS ECH_EXPERT_KEYS " model.moe_first_dense",
    .constants = "model.head_norm=head",
    .defaults = "model.num_local_experts=8",
    .architecture = "Qwen3MoeForCausalLM",
    .windows = &windows,
    .rows = rows,
    .import_more = import_more,
    .export_more = ech_family_export_dense,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES(" num_local_experts" ECH_CAPACITY_NAMES)};

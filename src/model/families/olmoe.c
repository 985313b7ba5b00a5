/* SPDX-License-Identifier: Apache-2.0
 *
 * OLMoE. Muennighoff et al. 2024, arXiv:2409.02060: Llama with experts in place of the feed-forward
 * layers, and norms of all heads' queries together, and of their keys.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS_AS_HEADS,
    ECH_ROW_POSITIONS("4096"),
    ECH_ROW_GATED_ACT,
    ECH_ROWS_ROPE,
    ECH_ROW_RMS_EPS("1e-5"),
    {"num_experts", "model.num_local_experts", .use = ECH_ROW_UNREAD},
    {"num_experts_per_tok", "model.num_experts_per_tok", .initial = "8"},
    {"norm_topk_prob", "model.norm_topk_prob", .initial = "false"},
    ECH_ROWS_CAPACITY,
    ECH_ROWS_ATTENTION_BIAS("false"),
    {"clip_qkv", .initial = "null", .property = "clipped queries, keys and values"},
    ECH_ROWS_LLAMA_REST("false"),
    ECH_ROW_NO_WINDOW,
    ECH_ROWS_END};

static ech_status import_more(const ech_family_import *in)
{
    return ech_family_import_experts(in, "64");
}

const ech_family ech_family_row_olmoe = {
    .name = "olmoe",
    .help = "OLMoE: Llama with experts, and norms of all heads together",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS ECH_EXPERT_KEYS,
    .constants = "model.head_norm=full",
    .defaults = "model.num_local_experts=8",
    .architecture = "OlmoeForCausalLM",
    .rows = rows,
    .import_more = import_more,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES(" num_local_experts" ECH_CAPACITY_NAMES)};

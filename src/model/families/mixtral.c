/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtral. Jiang et al. 2024, arXiv:2401.04088: Llama with experts in place of each feed-forward
 * layer.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS_OR_NULL("8"),
    ECH_ROWS_LLAMA("131072", "1e-5"),
    {"num_local_experts", "model.num_local_experts", .initial = "8"},
    {"num_experts_per_tok", "model.num_experts_per_tok", .initial = "2"},
    {"router_jitter_noise", "model.router_jitter_noise", "0",
     .use = ECH_ROW_MAY_DIFFER | ECH_ROW_UNWRITTEN},
    ECH_ROWS_CAPACITY,
    ECH_ROWS_LLAMA_REST("false"),
    ECH_ROW_WINDOW("0"),
    ECH_ROWS_END};

static const ech_names names = {.router = "block_sparse_moe.gate",
                                .noise = "block_sparse_moe.noise",
                                .expert_gate = "block_sparse_moe.experts.%d.w1",
                                .expert_up = "block_sparse_moe.experts.%d.w3",
                                .expert_down = "block_sparse_moe.experts.%d.w2",
                                .shared_gate = "block_sparse_moe.shared_experts.w1",
                                .shared_up = "block_sparse_moe.shared_experts.w3",
                                .shared_down = "block_sparse_moe.shared_experts.w2"};

const ech_family ech_family_row_mixtral = {
    .name = "mixtral",
    .help = "Mixtral: Llama with experts in place of the feed-forward layers; each token uses some",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS ECH_EXPERT_KEYS,
    .defaults = "model.num_local_experts=8",
    .architecture = "MixtralForCausalLM",
    .windows = &ech_windows_of_all,
    .rows = rows,
    .names = &names,
    .rope = &(const ech_rope_names){.theta_initial = "1000000"},
    ECH_ROTARY_FILES(ECH_CAPACITY_NAMES)};

/* SPDX-License-Identifier: Apache-2.0
 *
 * DeepSeek-V3, R1 and Moonlight. DeepSeek-AI 2024, arXiv:2412.19437: latent attention (DeepSeek-V2,
 * arXiv:2405.04434), and experts that sigmoids and a balancing bias choose from groups, beside
 * shared experts. Multi-token prediction is left out: the layers of a file that do it are not
 * read.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS_OR_NULL("128"),
    ECH_ROWS_LATENT,
    ECH_ROW_POSITIONS("4096"),
    ECH_ROW_GATED_ACT,
    ECH_ROWS_ROPE,
    {"rope_interleave", "model.rope_interleaved", .initial = "true"},
    ECH_ROW_RMS_EPS("1e-6"),
    {"n_routed_experts", "model.num_local_experts", .initial = "256"},
    {"num_experts_per_tok", "model.num_experts_per_tok", .initial = "8"},
    {"moe_intermediate_size", "model.moe_intermediate_size", .initial = "2048"},
    {"n_shared_experts", "model.moe_shared_experts", .initial = "1"},
    {"first_k_dense_replace", "model.moe_first_dense", .initial = "3"},
    {"moe_layer_freq", .initial = "1", .property = "dense layers between layers of experts"},
    {"topk_method", .initial = "noaux_tc", .property = "such a choice of experts"},
    {"scoring_func", .initial = "sigmoid", .property = "such scores of experts"},
    {"n_group", "model.n_group", .initial = "8"},
    {"topk_group", "model.topk_group", .initial = "4"},
    {"norm_topk_prob", "model.norm_topk_prob", .initial = "true"},
    {"routed_scaling_factor", "model.routed_scaling_factor", .initial = "2.5"},
    ECH_ROWS_CAPACITY,
    ECH_ROWS_ATTENTION_BIAS("false"),
    ECH_ROWS_LLAMA_REST("false"),
    ECH_ROWS_END};

static ech_status check(const ech_config *config)
{
    ECH_TRY(ech_latent_check(config));
    if (config->model.moe_shared_experts > 0) return ECH_OK;
    return ech_config_complain(config, "model.moe_shared_experts",
                               "deepseek_v3 has shared experts; use at least 1");
}

static void export_more(const ech_config *config, json_t *json)
{
    (void)config;
    json_object_set_new(json, "num_nextn_predict_layers", json_integer(0));
}

const ech_family ech_family_row_deepseek_v3 = {
    .name = "deepseek_v3",
    .help = "DeepSeek-V3, Moonlight: latent attention, shared experts, and a bias that balances "
            "experts",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS ECH_LATENT_KEYS ECH_ROUTED_KEYS,
    .constants = "model.moe_gate=bias",
    .defaults = "model.num_local_experts=8 model.moe_shared_experts=1 model.kv_lora_rank=512 "
                "model.rope_interleaved=true",
    .check = check,
    .shares = true,
    .predicts_more = true,
    .architecture = "DeepseekV3ForCausalLM",
    .rows = rows,
    .import_more = ech_latent_import,
    .export_more = export_more,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES(" head_dim qk_head_dim" ECH_CAPACITY_NAMES),
    .fused = ech_latent_fused};

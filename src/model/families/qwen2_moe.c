/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen2-MoE and Qwen1.5-MoE. Yang et al. 2024, arXiv:2407.10671: Qwen2 with experts, and a shared
 * expert with a gate of its own. Its width in the file is that of several experts.
 */
#include <stdio.h>

#include "model/family.h"

#define SHARED "shared_expert_intermediate_size"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS_OR_NULL("16"),
    ECH_ROWS_LLAMA("32768", "1e-6"),
    {"num_experts", "model.num_local_experts", .use = ECH_ROW_UNREAD},
    {"num_experts_per_tok", "model.num_experts_per_tok", .initial = "4"},
    {"moe_intermediate_size", "model.moe_intermediate_size", .initial = "1408"},
    {"norm_topk_prob", "model.norm_topk_prob", .initial = "false"},
    {"decoder_sparse_step", "model.moe_every", .initial = "1"},
    ECH_ROWS_CAPACITY,
    {"qkv_bias", "model.qkv_bias", .initial = "true"},
    ECH_ROWS_LLAMA_REST("false"),
    ECH_ROWS_END};

static const ech_names names = {.shared_gate = "mlp.shared_expert.gate_proj",
                                .shared_up = "mlp.shared_expert.up_proj",
                                .shared_down = "mlp.shared_expert.down_proj"};

static ech_status import_shared(const ech_family_import *in)
{
    int64_t width = 5632, F = in->config->model.moe_intermediate_size;
    const json_t *value = ech_family_import_get(in, SHARED);
    char text[32];
    if (value && !ech_json_to_int(value, 1, 10000000, &width))
        ECH_FAIL(ECH_EINPUT, "%s: " SHARED ": must be a number from 1 to 10000000", in->path);
    if (width % F)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: " SHARED " = %lld: not supported; only multiples of moe_intermediate_size = "
                 "%lld",
                 in->path, (long long)width, (long long)F);
    snprintf(text, sizeof text, "%lld", (long long)(width / F));
    return ech_family_import_set(in, "model.moe_shared_experts", text);
}

/* Every second layer, of the first n. */
static bool has_window(const ech_config *config, int64_t n, int64_t i)
{
    (void)config;
    return i % 2 == 0 && i < n;
}

static const ech_windows windows = {
    .has = has_window, .number = "max_window_layers", .otherwise = 28, .switched = "4096"};

static ech_status import_more(const ech_family_import *in)
{
    ECH_TRY(ech_family_import_experts(in, "60"));
    ECH_TRY(import_shared(in));
    return ech_family_import_dense(in);
}

static void export_more(const ech_config *config, json_t *json)
{
    int64_t width = config->model.moe_shared_experts * config->model.moe_intermediate_size;
    json_object_set_new(json, SHARED, json_integer(width));
    ech_family_export_dense(config, json);
}

static ech_status check(const ech_config *config)
{
    if (config->model.moe_shared_experts > 0) return ECH_OK;
    return ech_config_complain(config, "model.moe_shared_experts",
                               "qwen2_moe has shared experts; use at least 1, or qwen3_moe");
}

const ech_family ech_family_row_qwen2_moe = {
    .name = "qwen2_moe",
    .help = "Qwen2-MoE: Qwen2 with experts, and a shared expert with a gate of its own",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS ECH_EXPERT_KEYS " model.moe_first_dense",
    .constants = "model.moe_shared_gate=true",
    .defaults = "model.num_local_experts=8 model.moe_shared_experts=1 model.qkv_bias=true",
    .check = check,
    .shares = true,
    .architecture = "Qwen2MoeForCausalLM",
    .windows = &windows,
    .rows = rows,
    .names = &names,
    .import_more = import_more,
    .export_more = export_more,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES(" num_local_experts" ECH_CAPACITY_NAMES)};

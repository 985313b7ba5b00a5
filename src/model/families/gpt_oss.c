/* SPDX-License-Identifier: Apache-2.0
 *
 * gpt-oss. OpenAI 2025, arXiv:2508.10925: experts with biases and a clamped SwiGLU, attention
 * sinks, attention windows in every second layer, YaRN. The experts of the largest logits are
 * weighted by the softmax of these. Files have all experts of a layer in one tensor.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS_OR_NULL("8"),
    {"head_dim", "model.head_dim", .initial = "64"},
    ECH_ROW_POSITIONS("131072"),
    {"hidden_act", "model.hidden_act", "silu", .values = "silu=swiglu_clamped"},
    ECH_ROWS_ROPE,
    ECH_ROW_RMS_EPS("1e-5"),
    {"num_local_experts", "model.num_local_experts", .use = ECH_ROW_UNREAD},
    {"num_experts_per_tok", "model.num_experts_per_tok", .initial = "4"},
    ECH_ROWS_CAPACITY,
    ECH_ROWS_ATTENTION_BIAS("true"),
    ECH_ROW_WINDOW("128"),
    ECH_ROWS_LLAMA_REST("false"),
    ECH_ROWS_END};

static const ech_windows windows = {.has = ech_windows_but_every, .otherwise = 2};

/* The constants of the activation (kernel/activations.h). */
static ech_status import_constant(const ech_family_import *in, const char *name, double is)
{
    const json_t *value = ech_family_import_get(in, name);
    if (!value || (json_is_number(value) && json_number_value(value) == is)) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED, "%s: %s: not supported; only %g", in->path, name, is);
}

static const ech_rope_names rope = {
    .theta_initial = "150000",
    .scaling =
        "{\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 32.0, \"beta_slow\": 1.0, "
        "\"truncate\": false, \"original_max_position_embeddings\": 4096}"};

static ech_status import_more(const ech_family_import *in)
{
    ECH_TRY(import_constant(in, "swiglu_alpha", 1.702));
    ECH_TRY(import_constant(in, "swiglu_limit", 7));
    return ech_family_import_experts(in, "128");
}

static void export_more(const ech_config *config, json_t *json)
{
    (void)config;
    json_object_set_new(json, "swiglu_alpha", json_real(1.702));
    json_object_set_new(json, "swiglu_limit", json_real(7));
}

static ech_status check(const ech_config *config)
{
    if (!config->model.attention_sinks)
        return ech_config_complain(config, "model.attention_sinks",
                                   "gpt_oss has attention sinks; set it to true");
    if (config->model.moe_bias) return ECH_OK;
    return ech_config_complain(config, "model.moe_bias",
                               "gpt_oss has these biases; set it to true");
}

static const ech_names names = {.router = "mlp.router"};

static const ech_family_fused fused[] = {
    {.file = ".mlp.experts.gate_up_proj",
     .parts = ".mlp.experts.%d.gate_proj.weight .mlp.experts.%d.up_proj.weight",
     .order = ECH_FUSED_ROWS,
     .transposed = true},
    {.file = ".mlp.experts.gate_up_proj_bias",
     .parts = ".mlp.experts.%d.gate_proj.bias .mlp.experts.%d.up_proj.bias",
     .order = ECH_FUSED_ROWS},
    {.file = ".mlp.experts.down_proj",
     .parts = ".mlp.experts.%d.down_proj.weight",
     .order = ECH_FUSED_PARTS,
     .transposed = true},
    {.file = ".mlp.experts.down_proj_bias",
     .parts = ".mlp.experts.%d.down_proj.bias",
     .order = ECH_FUSED_PARTS},
    {.file = NULL}};

const ech_family ech_family_row_gpt_oss = {
    .name = "gpt_oss",
    .help =
        "gpt-oss: experts with biases and a clamped SwiGLU, sinks, windows in every second layer",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS ECH_EXPERT_KEYS,
    .defaults = "model.num_local_experts=8 model.num_experts_per_tok=4 model.qkv_bias=true "
                "model.o_bias=true model.hidden_act=swiglu_clamped model.attention_sinks=true "
                "model.moe_bias=true model.sliding_window=128 model.window_layers=LG "
                "model.rope_theta=150000",
    .check = check,
    .architecture = "GptOssForCausalLM",
    .also = "model.attention_sinks model.moe_bias",
    .windows = &windows,
    .rows = rows,
    .names = &names,
    .import_more = import_more,
    .export_more = export_more,
    .rope = &rope,
    ECH_ROTARY_FILES(ECH_CAPACITY_NAMES),
    .fused = fused};

/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of Llama and its kin. Defaults are those of transformers' configuration classes.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/llama.h"

static int64_t heads(const ech_config *config)
{
    return config->model.num_attention_heads;
}

static int64_t head_dim(const ech_config *config)
{
    return config->model.hidden_size / config->model.num_attention_heads;
}

const ech_family_row ech_llama_rows[] = {
    {"vocab_size", "model.vocab_size", .initial = NULL},
    {"hidden_size", "model.hidden_size", .initial = NULL},
    {"intermediate_size", "model.intermediate_size", .initial = NULL},
    {"num_hidden_layers", "model.num_hidden_layers", .initial = NULL},
    {"num_attention_heads", "model.num_attention_heads", .initial = NULL},
    {"num_key_value_heads", "model.num_key_value_heads", .derived = heads,
     .family = "llama qwen3 switch"},
    {"num_key_value_heads", "model.num_key_value_heads", "4", .family = "qwen3_moe"},
    {"num_key_value_heads", "model.num_key_value_heads", "8", .family = "mixtral"},
    {"head_dim", "model.head_dim", .derived = head_dim, .family = "llama mixtral qwen3_moe switch"},
    {"head_dim", "model.head_dim", "128", .family = "qwen3"},
    {"max_position_embeddings", "model.max_position_embeddings", "2048", .family = "llama switch"},
    {"max_position_embeddings", "model.max_position_embeddings", "32768",
     .family = "qwen3 qwen3_moe"},
    {"max_position_embeddings", "model.max_position_embeddings", "131072", .family = "mixtral"},
    {"hidden_act", .initial = "silu swish", .family = "llama qwen3 mixtral qwen3_moe"},
    {"hidden_act", "model.hidden_act", "relu", .family = "switch", .use = ECH_ROW_NAME},
    {"moe_gate", "model.moe_gate", "switch", .family = "switch", .use = ECH_ROW_NAME},
    {"rope_theta", "model.rope_theta", .use = ECH_ROW_UNREAD},
    {"rope_scaling", .initial = "null", .use = ECH_ROW_UNREAD},
    {"rms_norm_eps", "model.rms_norm_eps", .initial = "1e-6",
     .family = "llama qwen3 qwen3_moe switch"},
    {"rms_norm_eps", "model.rms_norm_eps", .initial = "1e-5", .family = "mixtral"},
    {"num_local_experts", "model.num_local_experts", "8", .family = "mixtral switch"},
    {"num_experts", "model.num_local_experts", .family = "qwen3_moe", .use = ECH_ROW_UNREAD},
    {"num_experts_per_tok", "model.num_experts_per_tok", "2", .family = "mixtral"},
    {"num_experts_per_tok", "model.num_experts_per_tok", "8", .family = "qwen3_moe"},
    {"num_experts_per_tok", "model.num_experts_per_tok", "1", .family = "switch"},
    {"moe_every", "model.moe_every", "2", .family = "switch"},
    {"moe_first_dense", "model.moe_first_dense", "0", .family = "switch"},
    {"moe_intermediate_size", "model.moe_intermediate_size", "768", .family = "qwen3_moe"},
    {"norm_topk_prob", "model.norm_topk_prob", "false", .family = "qwen3_moe"},
    {"decoder_sparse_step", "model.moe_every", "1", .family = "qwen3_moe"},
    {"router_jitter_noise", "model.router_jitter_noise", "0", .family = "mixtral",
     .use = ECH_ROW_MAY_DIFFER | ECH_ROW_UNWRITTEN},
    {"moe_capacity_factor", "model.moe_capacity_factor", "0", .family = "mixtral qwen3_moe switch",
     .use = ECH_ROW_OURS | ECH_ROW_MAY_DIFFER},
    {"moe_group_samples", "model.moe_group_samples", "1", .family = "mixtral qwen3_moe switch",
     .use = ECH_ROW_OURS | ECH_ROW_MAY_DIFFER},
    {"moe_gshard_ports", "model.moe_gshard_ports", "false", .family = "mixtral qwen3_moe switch",
     .use = ECH_ROW_OURS | ECH_ROW_MAY_DIFFER},
    {"attention_bias", .initial = "false", .family = "llama qwen3 qwen3_moe"},
    {"mlp_bias", .initial = "false", .family = "llama"},
    {"use_sliding_window", .initial = "false", .family = "qwen3 qwen3_moe"},
    {"attention_dropout", "model.attn_pdrop", "0", .use = ECH_ROW_MAY_DIFFER},
    {"initializer_range", "model.initializer_range", "0.02",
     .family = "llama qwen3 mixtral qwen3_moe", .use = ECH_ROW_MAY_DIFFER},
    {"initializer_scale", "model.initializer_scale", "0.1", .family = "switch",
     .use = ECH_ROW_MAY_DIFFER},
    {"tie_word_embeddings", "model.tie_word_embeddings", .initial = "false"},
    {"partial_rotary_factor", .initial = "1", .use = ECH_ROW_UNWRITTEN},
    {"sliding_window", .initial = "null", .family = "llama", .use = ECH_ROW_UNWRITTEN},
    {"sliding_window", .initial = "null", .family = "mixtral"},
    {"layer_types", .initial = "full_attention", .family = "qwen3",
     .use = ECH_ROW_UNWRITTEN | ECH_ROW_LIST},
    {.name = NULL}};

#define DENSE    "mlp_only_layers"
#define ORIGINAL "original_max_position_embeddings"

static const ech_family_row scaling_rows[] = {
    {"rope_type", .initial = "llama3", .use = ECH_ROW_UNREAD},
    {"factor", "model.rope_scaling_factor", .initial = NULL},
    {"low_freq_factor", "model.rope_scaling_low_freq_factor", .initial = NULL},
    {"high_freq_factor", "model.rope_scaling_high_freq_factor", .initial = NULL},
    {ORIGINAL, "model.rope_scaling_" ORIGINAL, .use = ECH_ROW_UNREAD},
    {.name = NULL}};

static bool is_qwen3_moe(const ech_config *config)
{
    return ech_family_of(config) == &ech_family_row_qwen3_moe;
}

static void export_dense(const ech_config *config, json_t *json)
{
    json_t *layers = json_array();
    for (int64_t i = 0; i < config->model.moe_first_dense; i++)
        json_array_append_new(layers, json_integer(i));
    json_object_set_new(json, DENSE, layers);
}

void ech_llama_export(const ech_config *config, json_t *json)
{
    if (is_qwen3_moe(config)) export_dense(config, json);
    if (config->model.rope_scaling == ECH_ROPE_SCALING_LLAMA3)
        json_object_set_new(json, "rope_scaling", ech_family_export_rows(config, scaling_rows));
}

/* transformers 4 has rope_theta and rope_scaling, 5 has both as rope_parameters. The older versions
 * of 4 call the type "type". */
static ech_status import_rope_from(const ech_family_import *in, const ech_family_import *inner)
{
    const char *key = ech_family_import_get(inner, "rope_type") ? "rope_type" : "type";
    const bool has = ech_family_import_get(inner, ORIGINAL) != NULL;
    bool mixtral = ech_family_of(in->config) == &ech_family_row_mixtral;
    const ech_family_row theta = {"rope_theta", "model.rope_theta",
                                  .initial = mixtral ? "1000000" : "10000"},
                         part = {"partial_rotary_factor", .initial = "1"},
                         type = {key, .initial = "default llama3"},
                         original = {has ? ORIGINAL : "max_position_embeddings",
                                     "model.rope_scaling_" ORIGINAL, .initial = NULL};
    ECH_TRY(ech_family_import_row(inner, &part));
    ECH_TRY(ech_family_import_row(ech_family_import_get(inner, theta.name) ? inner : in, &theta));
    ECH_TRY(ech_family_import_row(inner, &type));
    const char *name = json_string_value(ech_family_import_get(inner, key));
    if (!name || strcmp(name, "llama3") != 0)
        return ech_family_import_set(in, "model.rope_scaling", "none");
    ECH_TRY(ech_family_import_set(in, "model.rope_scaling", "llama3"));
    ECH_TRY(ech_family_import_rows(inner, scaling_rows));
    return ech_family_import_row(has ? inner : in, &original);
}

static ech_status import_rope(const ech_family_import *in)
{
    const char *name =
        ech_family_import_get(in, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    const json_t *rope = ech_family_import_get(in, name);
    if (rope && !json_is_object(rope))
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be an object, or null", in->path, name);
    ECH_FREED_TEXT path = {0};
    ech_text_append(&path, "%s: %s", in->path, name);
    return import_rope_from(in, &(ech_family_import){in->config, path.at, rope});
}

/* transformers 4 writes num_experts, 5 num_local_experts; both read both. */
static ech_status import_experts(const ech_family_import *in)
{
    const char *name = "num_experts";
    if (!ech_family_import_get(in, name)) name = "num_local_experts";
    const ech_family_row row = {name, "model.num_local_experts", .initial = "128"};
    return ech_family_import_row(in, &row);
}

/* Which layers are said to be dense: the first ones. Others may be listed that decoder_sparse_step
 * makes dense. */
static ech_status import_dense(const ech_family_import *in)
{
    const json_t *list = ech_family_import_get(in, DENSE);
    int64_t first = 0, i, L = in->config->model.num_hidden_layers;
    char text[32];
    ECH_FREED bool *listed = ech_calloc((size_t)L + 1, sizeof *listed);
    if (list && !json_is_array(list))
        ECH_FAIL(ECH_EINPUT, "%s: " DENSE ": must be a list", in->path);
    for (size_t k = 0; k < json_array_size(list); k++) {
        if (!ech_json_to_int(json_array_get(list, k), 0, L - 1, &i))
            ECH_FAIL(ECH_EINPUT, "%s: " DENSE ": must be numbers of layers, from 0 to %lld",
                     in->path, (long long)(L - 1));
        listed[i] = true;
    }
    while (listed[first]) first++;
    for (i = first; i < L; i++)
        if (listed[i] && (i + 1) % in->config->model.moe_every == 0)
            ECH_FAIL(ECH_EUNSUPPORTED,
                     "%s: " DENSE ": layer %lld, but not all before it; only the first layers can "
                     "be dense, and those between every decoder_sparse_step-th",
                     in->path, (long long)i);
    snprintf(text, sizeof text, "%lld", (long long)first);
    return ech_family_import_set(in, "model.moe_first_dense", text);
}

ech_status ech_llama_import(const ech_family_import *in)
{
    if (is_qwen3_moe(in->config)) {
        ECH_TRY(import_experts(in));
        ECH_TRY(import_dense(in));
    }
    return import_rope(in);
}

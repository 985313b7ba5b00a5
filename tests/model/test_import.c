/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json into the model section: what fills keys, what may not differ, what is refused and by
 * which name; and what we export imports again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "model/import_names.h"
#include "unit.h"

#define GPT2                                                                                       \
    "\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 4, "                    \
    "\"n_positions\": 64, \"vocab_size\": 300"
#define LLAMA                                                                                      \
    "\"model_type\": \"llama\", \"hidden_size\": 32, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, \"intermediate_size\": 40, \"vocab_size\": 300"
#define QWEN3                                                                                      \
    "\"model_type\": \"qwen3\", \"hidden_size\": 20, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, \"intermediate_size\": 40, \"vocab_size\": 300"
#define QWEN3_MOE                                                                                  \
    "\"model_type\": \"qwen3_moe\", \"hidden_size\": 20, \"num_hidden_layers\": 5, "               \
    "\"num_attention_heads\": 4, \"intermediate_size\": 40, \"vocab_size\": 300"
#define SIZES                                                                                      \
    "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "                  \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 40, \"vocab_size\": 300"
#define MISTRAL    "\"model_type\": \"mistral\", " SIZES
#define QWEN2      "\"model_type\": \"qwen2\", " SIZES
#define GEMMA2     "\"model_type\": \"gemma2\", " SIZES
#define GEMMA3     "\"model_type\": \"gemma3_text\", " SIZES
#define GRANITE    "\"model_type\": \"granite\", " SIZES
#define STARCODER2 "\"model_type\": \"starcoder2\", " SIZES
#define PHI3       "\"model_type\": \"phi3\", " SIZES
#define SMOLLM3    "\"model_type\": \"smollm3\", " SIZES
#define SMOLLM3_5                                                                                  \
    "\"model_type\": \"smollm3\", \"hidden_size\": 32, \"num_hidden_layers\": 5, "                 \
    "\"num_attention_heads\": 4, \"intermediate_size\": 40, \"vocab_size\": 300"
#define OLMO2      "\"model_type\": \"olmo2\", " SIZES
#define OLMO3      "\"model_type\": \"olmo3\", " SIZES
#define GPT_OSS    "\"model_type\": \"gpt_oss\", " SIZES
#define OLMOE      "\"model_type\": \"olmoe\", " SIZES
#define QWEN2_MOE  "\"model_type\": \"qwen2_moe\", \"moe_intermediate_size\": 20, " SIZES
#define SCALING                                                                                    \
    "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4, "                         \
    "\"original_max_position_embeddings\": 8192"
#define LONGROPE                                                                                   \
    "\"original_max_position_embeddings\": 1024, "                                                 \
    "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 1], "                  \
    "\"long_factor\": [2, 3, 4, 5]}"

#define REVERSIBLE                                                                                 \
    "{\"model_type\": \"echelon-reversible-gpt2\", \"n_embd\": 32, \"n_layer\": 2, "               \
    "\"n_head\": 4, \"n_positions\": 64, \"vocab_size\": 300}"

static ech_status import(ech_config *config, const char *json)
{
    return ech_model_import_text(config, "DIR/config.json", json, strlen(json), NULL);
}

static void assert_ends(const char *keys, int32_t begin, int32_t end)
{
    char json[400];
    ech_model_text_ends ends;
    ech_config *config = import_config();
    snprintf(json, sizeof json, "{" GPT2 "%s}", keys);
    assert_int_equal(ech_model_import_text(config, "config.json", json, strlen(json), &ends),
                     ECH_OK);
    assert_int_equal(ends.begin, begin);
    assert_int_equal(ends.end, end);
    ech_config_destroy(config);
}

TEST(ends_of_text)
{
    assert_ends("", 299, 299);
    assert_ends(", \"eos_token_id\": 7", 7, 7);
    assert_ends(", \"eos_token_id\": [9, 8], \"bos_token_id\": 0", 0, 9);
    assert_ends(", \"eos_token_id\": 300, \"bos_token_id\": -1", 299, 299);
    assert_ends(", \"eos_token_id\": null, \"bos_token_id\": \"a\"", 299, 299);
}

static ech_config *imported(const char *json)
{
    ech_config *config = import_config();
    if (import(config, json) != ECH_OK) fail_msg("%s: %s", json, ech_last_error());
    return config;
}

/* Words of keys and values that a configuration has. */
static void assert_has(const ech_config *config, const char *words)
{
    char *all = ech_strdup(words), *rest = all;
    for (char *key; (key = strsep(&rest, " "));) {
        char *value = strchr(key, '=');
        ech_text is = {0};
        *value++ = 0;
        ech_config_format(config, key, &is);
        if (strcmp(is.at, value) != 0) fail_msg("%s = %s, not %s", key, is.at, value);
        ech_text_free(&is);
    }
    free(all);
}

#define SPARSE(first, every) "model.moe_first_dense=" #first " model.moe_every=" #every
#define SCALED                                                                                     \
    "model.rope_theta=500000 model.rope_scaling=llama3 model.rope_scaling_factor=8 "               \
    "model.rope_scaling_high_freq_factor=4 "                                                       \
    "model.rope_scaling_original_max_position_embeddings=8192"

/* What is not there has transformers' defaults. */
TEST(keys_are_filled)
{
    static const struct {
        const char *json, *words;
    } cases[] = {
        {GPT2 ", \"n_inner\": null, \"embd_pdrop\": 0.25",
         "model.architecture=gpt2 model.hidden_size=32 model.num_hidden_layers=2 "
         "model.num_attention_heads=4 model.intermediate_size=128 "
         "model.max_position_embeddings=64 model.vocab_size=300 model.tie_word_embeddings=true "
         "model.embd_pdrop=0.25 model.attn_pdrop=0.1"},
        {LLAMA ", \"attention_dropout\": 0.5",
         "model.rms_norm_eps=1.0e-06 model.attn_pdrop=0.5 model.num_key_value_heads=4 "
         "model.tie_word_embeddings=false"},
        {LLAMA, "model.rope_theta=10000 model.rope_scaling=none"},
        {PHI3 ", \"max_position_embeddings\": 8192, " LONGROPE,
         "model.rope_scaling=longrope model.rope_scaling_factor=8 "
         "model.rope_scaling_original_max_position_embeddings=1024"},
        {LLAMA ", \"original_max_position_embeddings\": 9, \"max_position_embeddings\": 20, "
               "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}",
         "model.rope_scaling=dynamic model.rope_scaling_original_max_position_embeddings=20"},
        {LLAMA ", \"rope_theta\": 7e5, \"rope_scaling\": null",
         "model.rope_theta=700000 model.rope_scaling=none"},
        {LLAMA ", \"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"llama3\", " SCALING "}",
         SCALED},
        {LLAMA ", \"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 5e5, " SCALING
               "}",
         SCALED},
        {LLAMA ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 9}",
         "model.rope_theta=9 model.rope_scaling=none"},
        /* Heads may have another width than the model's over their number. */
        {LLAMA, "model.head_dim=8"},
        {LLAMA ", \"head_dim\": null", "model.head_dim=8"},
        {LLAMA ", \"head_dim\": 16", "model.head_dim=16"},
        {QWEN3, "model.architecture=qwen3 model.head_dim=128 model.rms_norm_eps=1.0e-06 "
                "model.rope_theta=10000 model.max_position_embeddings=32768 "
                "model.tie_word_embeddings=false"},
        {QWEN3 ", \"head_dim\": 6, \"use_sliding_window\": false, \"sliding_window\": 4096, "
               "\"max_window_layers\": 1, \"layer_types\": [\"full_attention\", "
               "\"full_attention\"]",
         "model.head_dim=6 model.sliding_window=0"},
        {QWEN3 ", \"use_sliding_window\": true, \"max_window_layers\": 1",
         "model.sliding_window=4096 model.window_layers=GL"},
        {QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 7",
         "model.sliding_window=7 model.window_layers=G"}, /* 28 layers are before the first */
        {QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": null",
         "model.sliding_window=0"},
        {QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 7, \"layer_types\": "
               "[\"sliding_attention\", \"full_attention\"]",
         "model.sliding_window=7 model.window_layers=LG"},
        {QWEN2_MOE ", \"shared_expert_intermediate_size\": 40, \"use_sliding_window\": true",
         "model.window_layers=LG"},
        {QWEN2_MOE ", \"shared_expert_intermediate_size\": 40, \"use_sliding_window\": true, "
                   "\"max_window_layers\": 0",
         "model.window_layers=G"},
        {QWEN3_MOE ", \"use_sliding_window\": true, \"sliding_window\": 9",
         "model.sliding_window=9 model.window_layers=L"},
        {STARCODER2 ", \"sliding_window\": 5", "model.sliding_window=5"},
        {STARCODER2, "model.sliding_window=0"},
        {SMOLLM3, "model.rotary_layers=R model.sliding_window=0"}, /* of two, none is the fourth */
        {SMOLLM3 ", \"no_rope_layer_interval\": 2", "model.rotary_layers=RN"},
        {SMOLLM3_5 ", \"no_rope_layers\": [0, 1, 1, 0, 0, 1, 1]", "model.rotary_layers=NRRN"},
        {SMOLLM3_5 ", \"no_rope_layers\": [0, 0, 1, 0, 0]", "model.rotary_layers=NNR"},
        {SMOLLM3_5 ", \"no_rope_layer_interval\": 2, \"use_sliding_window\": true, "
                   "\"sliding_window\": 9",
         "model.rotary_layers=RN model.sliding_window=9 model.window_layers=GL"},
        {SMOLLM3 ", \"use_sliding_window\": true", "model.sliding_window=0"},
        {MISTRAL, "model.sliding_window=4096 model.window_layers=L"},
        {MISTRAL ", \"sliding_window\": null", "model.sliding_window=0"},
        {MISTRAL ", \"sliding_window\": 7, \"layer_types\": [\"sliding_attention\", "
                 "\"sliding_attention\"]",
         "model.sliding_window=7"},
        {GEMMA2, "model.sliding_window=4096 model.window_layers=LG model.attention_scale=0.0625 "
                 "model.attn_logit_softcapping=50 model.final_logit_softcapping=30 "
                 "model.head_dim=256 model.hidden_act=geglu model.tie_word_embeddings=true"},
        /* the classes of transformers 5.24 do not read it */
        {GEMMA2 ", \"sliding_window_pattern\": 1", "model.window_layers=LG"},
        {OLMO3 ", \"sliding_window_pattern\": 1", "model.window_layers=L"},
        {GEMMA3, "model.rope_theta=1000000 model.rope_local_base_freq=10000 "
                 "model.attn_logit_softcapping=0 model.final_logit_softcapping=0"},
        {GEMMA3 ", \"sliding_window_pattern\": 2, \"rope_theta\": 7, "
                "\"rope_local_base_freq\": 5",
         "model.window_layers=LG model.rope_theta=7 model.rope_local_base_freq=5"},
        {GEMMA3 ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", "
                "\"rope_theta\": 9, \"factor\": 8}, \"sliding_attention\": {\"rope_type\": "
                "\"default\", \"rope_theta\": 3}}",
         "model.rope_theta=9 model.rope_scaling=linear model.rope_scaling_factor=8 "
         "model.rope_local_base_freq=3"},
        {GRANITE, "model.attention_scale=1 model.embedding_multiplier=1 "
                  "model.residual_multiplier=1 model.logits_scaling=1"},
        {GRANITE ", \"attention_multiplier\": 0.5, \"embedding_multiplier\": 12, "
                 "\"residual_multiplier\": 0.25, \"logits_scaling\": 8.0",
         "model.attention_scale=0.5 model.embedding_multiplier=12 "
         "model.residual_multiplier=0.25 model.logits_scaling=8"},
        {OLMO2, "model.architecture=olmo2 model.rms_norm_eps=1.0e-05 model.head_dim=8"},
        {OLMO3, "model.sliding_window=4096 model.window_layers=L model.rope_theta=500000 "
                "model.rope_local_base_freq=500000"},
        /* Layers with a window have the base, but not the scaling. */
        {OLMO3 ", \"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"linear\", "
               "\"factor\": 8}, \"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         "model.window_layers=GL model.rope_theta=500000 model.rope_local_base_freq=500000 "
         "model.rope_scaling=linear"},
        {OLMO3 ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", "
               "\"rope_theta\": 9, \"factor\": 8}, \"sliding_attention\": {\"rope_type\": "
               "\"default\", \"rope_theta\": 3}}",
         "model.rope_theta=9 model.rope_scaling=linear model.rope_local_base_freq=3"},
        {GPT_OSS,
         "model.architecture=gpt_oss model.num_local_experts=128 "
         "model.num_experts_per_tok=4 model.head_dim=64 model.hidden_act=swiglu_clamped "
         "model.qkv_bias=true model.o_bias=true model.sliding_window=128 model.window_layers=LG "
         "model.rope_theta=150000 model.rope_scaling=yarn model.rope_scaling_factor=32 "
         "model.rope_scaling_truncate=false "
         "model.rope_scaling_original_max_position_embeddings=4096"},
        {GPT_OSS ", \"rope_scaling\": {\"rope_type\": \"default\"}", "model.rope_scaling=none"},
        {OLMOE, "model.architecture=olmoe model.num_local_experts=64 "
                "model.num_experts_per_tok=8 model.norm_topk_prob=false"},
        {OLMOE ", \"clip_qkv\": null, \"num_experts\": 6, \"norm_topk_prob\": true, "
               "\"num_experts_per_tok\": 2",
         "model.num_local_experts=6 model.norm_topk_prob=true model.num_experts_per_tok=2"},
        {QWEN3_MOE, "model.architecture=qwen3_moe model.num_local_experts=128 "
                    "model.num_experts_per_tok=8 model.moe_intermediate_size=768 "
                    "model.norm_topk_prob=false model.num_key_value_heads=4 model.head_dim=5"},
        {QWEN3_MOE, SPARSE(0, 1)},
        {QWEN3_MOE ", \"mlp_only_layers\": null", SPARSE(0, 1)},
        {QWEN3_MOE ", \"mlp_only_layers\": [1, 0, 0]", SPARSE(2, 1)},
        {QWEN3_MOE ", \"mlp_only_layers\": [2, 4], \"decoder_sparse_step\": 2", SPARSE(0, 2)},
        {QWEN3_MOE ", \"mlp_only_layers\": [0, 1, 2], \"decoder_sparse_step\": 4", SPARSE(3, 4)},
        {QWEN3_MOE ", \"num_experts\": 6, \"norm_topk_prob\": true",
         "model.num_local_experts=6 model.norm_topk_prob=true"},
        {QWEN3_MOE ", \"num_local_experts\": 6", "model.num_local_experts=6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_text json = {0};
        ech_text_append(&json, "{%s}", cases[i].json);
        ech_config *config = imported(json.at);
        assert_has(config, cases[i].words);
        ech_config_destroy(config);
        ech_text_free(&json);
    }
}

/* What is exported is imported as the same section. */
TEST(there_and_back)
{
    static const char *const texts[] = {
        "{" GPT2 ", \"tie_word_embeddings\": false}",
        "{" LLAMA ", \"num_key_value_heads\": 2, \"rope_scaling\": {\"rope_type\": \"llama3\", "
        "" SCALING "}}",
        "{" MISTRAL ", \"sliding_window\": 7}",
        "{" MISTRAL ", \"sliding_window\": null}",
        "{" GEMMA2 ", \"query_pre_attn_scalar\": 224, \"final_logit_softcapping\": null, "
        "\"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
        "{" GEMMA3 ", \"query_pre_attn_scalar\": 168, \"rope_local_base_freq\": 77, "
        "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}, "
        "\"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
        "{" PHI3 ", \"max_position_embeddings\": 8192, " LONGROPE "}",
        "{" QWEN2
        ", \"use_sliding_window\": true, \"sliding_window\": 7, \"max_window_layers\": 1}",
        "{" QWEN3_MOE ", \"use_sliding_window\": true, \"sliding_window\": 7}",
        "{" SMOLLM3_5 ", \"use_sliding_window\": true, \"sliding_window\": 7, "
        "\"no_rope_layers\": [0, 1, 1, 0, 0], \"layer_types\": [\"sliding_attention\", "
        "\"full_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"]}",
        "{" OLMO2 ", \"attention_bias\": true, \"head_dim\": 12}",
        "{" OLMO3 ", \"sliding_window\": 7, \"rope_theta\": 500000, \"rope_scaling\": "
        "{\"rope_type\": \"linear\", \"factor\": 8.0}, "
        "\"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
        "{" OLMO3 ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"llama3\", "
        "\"rope_theta\": 11, " SCALING "}, \"sliding_attention\": {\"rope_theta\": 5}}}",
        "{" GPT_OSS ", \"num_local_experts\": 6, \"num_experts_per_tok\": 3, "
        "\"attention_bias\": false, \"sliding_window\": 7}",
        "{" GPT_OSS ", \"rope_scaling\": {\"rope_type\": \"default\"}}",
        "{" OLMOE ", \"num_experts\": 6, \"num_experts_per_tok\": 3, \"norm_topk_prob\": true}",
        "{" GRANITE ", \"attention_multiplier\": 0.015625, \"embedding_multiplier\": 12.0, "
        "\"residual_multiplier\": 0.22, \"logits_scaling\": 8.0}",
        "{" QWEN3 ", \"num_key_value_heads\": 2, \"head_dim\": 8, \"tie_word_embeddings\": true}",
        "{" QWEN3_MOE ", \"num_key_value_heads\": 2, \"head_dim\": 8, \"num_experts\": 6, "
        "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 24, \"norm_topk_prob\": true, "
        "\"decoder_sparse_step\": 2, \"mlp_only_layers\": [0, 1, 2]}",
        "{\"model_type\": \"echelon-gshard-qwen3_moe\", \"hidden_size\": 20, "
        "\"num_hidden_layers\": 5, \"num_attention_heads\": 4, \"intermediate_size\": 40, "
        "\"vocab_size\": 300, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, "
        "\"moe_capacity_factor\": 1.25, \"moe_group_samples\": 2, \"moe_gshard_ports\": true}",
        "{\"model_type\": \"echelon-switch\", \"hidden_size\": 20, \"num_hidden_layers\": 5, "
        "\"num_attention_heads\": 2, \"intermediate_size\": 40, \"vocab_size\": 300}",
        "{\"model_type\": \"echelon-shared-switch\", \"hidden_size\": 20, "
        "\"num_hidden_layers\": 5, \"num_attention_heads\": 2, \"intermediate_size\": 40, "
        "\"vocab_size\": 300, \"n_shared_experts\": 2, \"hidden_act\": \"gelu_new\", "
        "\"moe_gate\": \"bias\", \"num_experts_per_tok\": 2, \"moe_every\": 1, "
        "\"moe_first_dense\": 3, \"n_group\": 2, \"topk_group\": 1, "
        "\"routed_scaling_factor\": 2.5, \"initializer_scale\": 0.2}",
        REVERSIBLE};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ech_config *config = imported(texts[i]);
        ech_text json = {0}, before = {0}, after = {0};
        assert_int_equal(ech_model_resolve(config, 300), ECH_OK);
        const ech_model_text_ends ends = {6, 7};
        const ech_model_export_options options = {.dtype = ECH_BF16, .ends = &ends};
        assert_int_equal(ech_model_export(config, &options, &json), ECH_OK);
        assert_non_null(strstr(json.at, "\"bos_token_id\": 6,\n \"eos_token_id\": 7"));
        ech_config *back = imported(json.at);
        assert_int_equal(ech_model_resolve(back, 300), ECH_OK);
        ech_config_print(config, &before);
        ech_config_print(back, &after);
        assert_string_equal(before.at, after.at);
        ech_text_free(&json);
        ech_text_free(&before);
        ech_text_free(&after);
        ech_config_destroy(config);
        ech_config_destroy(back);
    }
}

/* ---- changed values ---- */

/* What says nothing of the model: a type of weights, names, ids of tokens. */
static const char unread[] = "architectures torch_dtype bos_token_id eos_token_id pad_token_id";

/* Another value of the same type; a number for null. Release with json_decref. */
static json_t *other_value(const json_t *value)
{
    const char *text = json_string_value(value);
    char longer[80];
    if (text) {
        snprintf(longer, sizeof longer, "%s_x", text);
        return json_string(longer);
    }
    if (json_is_boolean(value)) return json_boolean(!json_is_true(value));
    if (json_is_real(value)) return json_real(1.5 * json_real_value(value) + 0.25);
    return json_integer(json_is_integer(value) ? 2 * json_integer_value(value) + 1 : 3);
}

/* The resolved section; NULL: it is refused. Release with free. */
static char *section_of(const json_t *file)
{
    char *json = json_dumps(file, 0);
    ech_config *config = import_config();
    ech_text out = {0};
    bool quiet = ech_log_set_quiet(true);
    if (import(config, json) == ECH_OK && ech_model_resolve(config, 300) == ECH_OK)
        ech_config_print(config, &out);
    ech_log_set_quiet(quiet);
    ech_config_destroy(config);
    free(json);
    return out.at;
}

/* Changes each value within `value`, a part of the file, by itself; returns how many. */
static int change_each(json_t *file, json_t *value, const char *section)
{
    int changes = 0;
    const char *key;
    json_t *inner;
    json_object_foreach(value, key, inner)
    {
        if (ech_text_has_word(unread, key)) continue;
        bool lists = json_is_array(inner) && json_array_size(inner) > 0;
        if (json_is_object(inner)) changes += change_each(file, inner, section);
        if (json_is_object(inner) || (json_is_array(inner) && !lists)) continue;
        json_t *whole = json_deep_copy(inner);
        json_t *other = other_value(lists ? json_array_get(inner, 0) : inner);
        if (lists)
            json_array_set_new(inner, 0, other);
        else
            json_object_set_new(value, key, other);
        char *now = section_of(file);
        if (now && strcmp(now, section) == 0) fail_msg("%s is ignored", key);
        free(now);
        changes++;
        json_object_set_new(value, key, whole);
    }
    return changes;
}

/* Each value of a file that we write changes the section, or the file is refused: none is ignored.
 * tests/app/check_families.py does the same with all families' files of transformers, and compares
 * logits. */
TEST(no_value_is_ignored)
{
    static const char *const texts[] = {
        "{" GEMMA3 ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}}",
        "{" PHI3 ", " LONGROPE "}", "{" QWEN2_MOE ", \"shared_expert_intermediate_size\": 40}",
        "{\"model_type\": \"gpt_neox\", " SIZES ", \"rope_scaling\": {\"rope_type\": "
        "\"llama3\", " SCALING "}}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ech_config *config = imported(texts[i]);
        ech_text out = {0};
        const ech_model_export_options options = {.dtype = ECH_F32};
        assert_int_equal(ech_model_resolve(config, 300), ECH_OK);
        assert_int_equal(ech_model_export(config, &options, &out), ECH_OK);
        json_auto_t *file = json_loads(out.at, 0, NULL);
        ECH_FREED char *section = section_of(file);
        assert_non_null(section);
        assert_in_range(change_each(file, file, section), 15, 60);
        ech_config_destroy(config);
        ech_text_free(&out);
    }
}

#define PUBLISHED(type, C, L, H, G, F, V, more)                                                    \
    "{\"model_type\": \"" type "\", \"hidden_size\": " #C ", \"num_hidden_layers\": " #L           \
    ", \"num_attention_heads\": " #H ", \"num_key_value_heads\": " #G                              \
    ", \"intermediate_size\": " #F ", \"vocab_size\": " #V more "}"

/* Parameters of published models, by their authors and indexes of weights. */
TEST(published_sizes)
{
    static const struct {
        const char *json;
        int64_t params;
    } cases[] = {
        /* Mistral 7B v0.1 with its window, v0.3, Mistral Nemo */
        {PUBLISHED("mistral", 4096, 32, 32, 8, 14336, 32000, ", \"sliding_window\": 4096"),
         7241732096},
        {PUBLISHED("mistral", 4096, 32, 32, 8, 14336, 32768, ", \"sliding_window\": null"),
         7248023552},
        {PUBLISHED("mistral", 5120, 40, 32, 8, 14336, 131072,
                   ", \"sliding_window\": null, \"head_dim\": 128"),
         12247782400},
        /* Qwen2.5 0.5B and 7B */
        {PUBLISHED("qwen2", 896, 24, 14, 2, 4864, 151936, ", \"tie_word_embeddings\": true"),
         494032768},
        {PUBLISHED("qwen2", 3584, 28, 28, 4, 18944, 152064, ""), 7615616512},
        /* Gemma 2 2B and 9B */
        {PUBLISHED("gemma2", 2304, 26, 8, 4, 9216, 256000, ""), 2614341888},
        {PUBLISHED("gemma2", 3584, 42, 16, 8, 14336, 256000, ""), 9241705984},
        /* Gemma 3 270M, 1B */
        {PUBLISHED("gemma3_text", 640, 18, 4, 1, 2048, 262144, ""), 268098176},
        {PUBLISHED("gemma3_text", 1152, 26, 4, 1, 6912, 262144, ""), 999885952},
        /* Granite 3.1 2B and 8B */
        {PUBLISHED("granite", 2048, 40, 32, 8, 8192, 49155, ", \"tie_word_embeddings\": true"),
         2533531648},
        {PUBLISHED("granite", 4096, 40, 32, 8, 12800, 49155, ", \"tie_word_embeddings\": true"),
         8170848256},
        /* StarCoder2 3B and 7B */
        {PUBLISHED("starcoder2", 3072, 30, 24, 2, 12288, 49152, ""), 3030371328},
        {PUBLISHED("starcoder2", 4608, 32, 36, 4, 18432, 49152, ""), 7173923840},
        /* Phi-3 mini and Phi-4 */
        {PUBLISHED("phi3", 3072, 32, 32, 32, 8192, 32064, ", \"sliding_window\": 2047"),
         3821079552},
        {PUBLISHED("phi3", 5120, 40, 40, 10, 17920, 100352, ""), 14659507200},
        /* Qwen1.5-MoE A2.7B and Qwen2 57B-A14B */
        {PUBLISHED("qwen2_moe", 2048, 24, 16, 16, 5632, 151936, ""), 14315784192},
        {PUBLISHED("qwen2_moe", 3584, 28, 28, 4, 18944, 151936,
                   ", \"num_experts\": 64, \"num_experts_per_tok\": 8, "
                   "\"moe_intermediate_size\": 2560, "
                   "\"shared_expert_intermediate_size\": 20480"),
         57408658944},
        /* SmolLM3 3B */
        {PUBLISHED("smollm3", 2048, 36, 16, 4, 11008, 128256, ""), 3075098624},
        /* OLMo 2 7B and 13B, OLMo 3 7B and 32B, OLMoE 1B-7B */
        {PUBLISHED("olmo2", 4096, 32, 32, 32, 11008, 100352, ""), 7298617344},
        {PUBLISHED("olmo2", 5120, 40, 40, 40, 13824, 100352, ""), 13716198400},
        {PUBLISHED("olmo3", 4096, 32, 32, 32, 11008, 100278, ""), 7298011136},
        {PUBLISHED("olmo3", 5120, 64, 40, 8, 27648, 100278, ""), 32233522176},
        {PUBLISHED("olmoe", 2048, 16, 16, 16, 1024, 50304, ", \"num_experts\": 64"), 6919161856},
        /* gpt-oss 20B and 120B */
        {PUBLISHED("gpt_oss", 2880, 24, 64, 8, 2880, 201088, ", \"num_local_experts\": 32"),
         20914757184},
        {PUBLISHED("gpt_oss", 2880, 36, 64, 8, 2880, 201088, ", \"num_local_experts\": 128"),
         116829156672},
        /* DeepSeek-V3 and Moonlight 16B-A3B, without multi-token prediction and biases of gates */
        {PUBLISHED("deepseek_v3", 7168, 61, 128, 128, 18432, 129280, ""), 671026404352},
        {PUBLISHED("deepseek_v3", 2048, 27, 16, 16, 11264, 163840,
                   ", \"q_lora_rank\": null, \"n_routed_experts\": 64, \"n_shared_experts\": 2, "
                   "\"moe_intermediate_size\": 1408, \"first_k_dense_replace\": 1, "
                   "\"n_group\": 1, \"topk_group\": 1, \"num_experts_per_tok\": 6"),
         15960108544},
        /* GLM-4 9B and 32B of 2025 */
        {PUBLISHED("glm4", 4096, 40, 32, 2, 13696, 151552, ""), 9400279040},
        {PUBLISHED("glm4", 6144, 61, 48, 2, 23040, 151552, ", \"attention_bias\": false"),
         32566081536},
        /* Pythia 160M and 6.9B, GPT-NeoX 20B */
        {PUBLISHED("gpt_neox", 768, 12, 12, 12, 3072, 50304, ""), 162322944},
        {PUBLISHED("gpt_neox", 4096, 32, 32, 32, 16384, 50432, ""), 6857302016},
        {PUBLISHED("gpt_neox", 6144, 44, 64, 64, 24576, 50432, ""), 20554567680},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_config *config = imported(cases[i].json);
        ech_model *model;
        assert_int_equal(ech_model_resolve(config, 300), ECH_OK);
        assert_int_equal(ech_model_create_whole(config, &model), ECH_OK);
        assert_int_equal(ech_model_params(model), cases[i].params);
        ech_model_destroy(model);
        ech_config_destroy(config);
    }
}

/* Without a file to begin with, transformers' default would lie beyond a small vocabulary. */
TEST(exports_no_padding)
{
    static const char original[] = "{\"pad_token_id\": 7}";
    ech_config *config = imported("{" SMOLLM3 "}");
    ech_text fresh = {0}, kept = {0};
    ech_model_export_options options = {.dtype = ECH_F32};
    assert_int_equal(ech_model_resolve(config, 300), ECH_OK);
    assert_int_equal(ech_model_export(config, &options, &fresh), ECH_OK);
    assert_non_null(strstr(fresh.at, "\"pad_token_id\": null"));
    options.path = "config.json";
    options.text = original;
    options.n = sizeof original - 1;
    assert_int_equal(ech_model_export(config, &options, &kept), ECH_OK);
    assert_non_null(strstr(kept.at, "\"pad_token_id\": 7"));
    ech_text_free(&fresh);
    ech_text_free(&kept);
    ech_config_destroy(config);
}

TEST(says_both_values)
{
    ech_config *config = import_config();
    assert_int_equal(ech_config_set(config, "model.hidden_size=64"), ECH_OK);
    assert_int_equal(import(config, "{" GPT2 "}"), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "model.hidden_size = 64"));
    assert_non_null(strstr(ech_last_error(), "DIR/config.json says 32"));
    ech_config_destroy(config);
    config = import_config();
    import_set(config, "model.hidden_size=32 model.intermediate_size=auto model.attn_pdrop=0.3");
    assert_int_equal(import(config, "{" GPT2 "}"), ECH_OK);
    assert_has(config, "model.intermediate_size=128 model.attn_pdrop=0.3");
    ech_config_destroy(config);
}

/* A reversible model has a type of its own, both ways; weights of the one kind are not taken for
 * the other. */
TEST(reversible_has_a_type)
{
    ech_config *config = imported(REVERSIBLE);
    ech_text json = {0};
    assert_string_equal(ech_family_of(config)->name, "gpt2");
    assert_int_equal(config->model.reversible, 1);
    assert_int_equal(ech_model_resolve(config, 300), ECH_OK);
    assert_int_equal(config->memory.invert, 1);
    assert_int_equal(ech_model_export(config, &(ech_model_export_options){.dtype = ECH_F32}, &json),
                     ECH_OK);
    assert_non_null(strstr(json.at, "\"model_type\": \"echelon-reversible-gpt2\""));
    assert_non_null(strstr(json.at, "\"EchelonReversibleGPT2LMHeadModel\""));
    ech_text_free(&json);
    ech_config_destroy(config);
    config = import_config();
    assert_int_equal(ech_config_set(config, "model.reversible=true"), ECH_OK);
    assert_int_equal(import(config, "{" GPT2 "}"), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "model.reversible = true"));
    assert_non_null(strstr(ech_last_error(), "DIR/config.json says false"));
    ech_config_destroy(config);
}

/* So has one with properties that the family's own config.json cannot say: other programs refuse
 * it, and the run file's values come back. */
TEST(variants_have_a_type)
{
    static const char more[] = "model.sliding_window=7 model.window_layers=LG "
                               "model.attn_logit_softcapping=2.5 model.attention_scale=0.25 "
                               "model.attention_sinks=true",
                      window[] = "model.sliding_window=7";
    static const struct {
        const char *json, *words, *type;
    } models[] = {{LLAMA, "", "llama"},
                  {LLAMA, window, "echelon-variant-llama"},
                  {OLMO2, more, "echelon-variant-olmo2"},
                  {QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": 7, "
                         "\"max_window_layers\": 0",
                   window, "qwen3"},
                  {GPT2, more, "echelon-variant-gpt2"},
                  {MISTRAL ", \"sliding_window\": 7", window, "mistral"},
                  {LLAMA, "model.rotary_layers=NR", "echelon-variant-llama"},
                  {SMOLLM3, "", "smollm3"},
                  {GPT_OSS, "", "gpt_oss"},
                  {OLMOE, "model.moe_bias=true", "echelon-variant-olmoe"},
                  {MISTRAL ", \"sliding_window\": 7", "model.attention_sinks=true",
                   "echelon-variant-mistral"},
                  {GEMMA2, "", "gemma2"},
                  {GRANITE, "", "granite"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        ech_text source = {0}, json = {0}, again = {0}, type = {0};
        ech_config *config = import_config();
        ech_text_append(&source, "{%s}", models[i].json);
        ech_text_append(&type, "\"model_type\": \"%s\"", models[i].type);
        if (*models[i].words) import_set(config, models[i].words);
        assert_int_equal(import(config, source.at), ECH_OK);
        assert_int_equal(
            ech_model_export(config, &(ech_model_export_options){.dtype = ECH_F32}, &json), ECH_OK);
        if (!strstr(json.at, type.at))
            fail_msg("%s: no %s in %s", models[i].words, type.at, json.at);
        ech_config *back = import_config();
        assert_int_equal(import(back, json.at), ECH_OK);
        assert_true(back->model.sliding_window == config->model.sliding_window);
        assert_string_equal(back->model.window_layers, config->model.window_layers);
        assert_int_equal(back->model.moe_bias, config->model.moe_bias);
        assert_string_equal(back->model.rotary_layers, config->model.rotary_layers);
        assert_true(back->model.attn_logit_softcapping == config->model.attn_logit_softcapping);
        assert_true(back->model.attention_scale == config->model.attention_scale);
        assert_true(back->model.attention_sinks == config->model.attention_sinks);
        assert_int_equal(
            ech_model_export(back, &(ech_model_export_options){.dtype = ECH_F32}, &again), ECH_OK);
        assert_string_equal(again.at, json.at);
        ech_text_free(&source);
        ech_text_free(&json);
        ech_text_free(&again);
        ech_text_free(&type);
        ech_config_destroy(config);
        ech_config_destroy(back);
    }
}

/* So has one whose experts are chosen by a gate that others do not know, or of which all tokens go
 * to some. */
TEST(gates_have_a_type)
{
    static const struct {
        const char *gate, *words, *type;
    } gates[] = {
        {"topk", "model.num_experts_per_tok=2", "mixtral"},
        {"dense", "model.num_experts_per_tok=4", "mixtral"},
        {"switch", "model.num_experts_per_tok=1", "echelon-switch-mixtral"},
        {"gshard", "model.num_experts_per_tok=2", "echelon-gshard-mixtral"},
        {"noisy_topk", "model.num_experts_per_tok=3", "echelon-noisy_topk-mixtral"},
        {"hierarchical", "model.num_experts_per_tok=2 model.n_group=2",
         "echelon-hierarchical-mixtral"},
        {"bias", "model.num_experts_per_tok=2 model.n_group=2", "echelon-bias-mixtral"},
        {"topk", "model.num_experts_per_tok=2 model.moe_shared_experts=3",
         "echelon-shared-mixtral"},
        {"switch", "model.num_experts_per_tok=1 model.moe_shared_experts=1",
         "echelon-switch-shared-mixtral"}};
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++) {
        ech_text json = {0}, set = {0}, type = {0};
        ech_config *config = import_config();
        ech_text_append(&set, "model.moe_gate=%s %s", gates[i].gate, gates[i].words);
        ech_text_append(&type, "\"model_type\": \"%s\"", gates[i].type);
        import_set(config, "model.architecture=mixtral model.hidden_size=32 "
                           "model.num_hidden_layers=2 model.num_attention_heads=4 "
                           "model.num_local_experts=4 model.max_position_embeddings=16");
        import_set(config, set.at);
        assert_int_equal(ech_model_resolve(config, 300), ECH_OK);
        assert_int_equal(
            ech_model_export(config, &(ech_model_export_options){.dtype = ECH_F32}, &json), ECH_OK);
        assert_non_null(strstr(json.at, type.at));
        ech_config *again = imported(json.at);
        const char *gate = ech_config_name(again, "model.moe_gate");
        assert_string_equal(gate, strstr(gates[i].type, "echelon") ? gates[i].gate : "topk");
        assert_int_equal(again->model.moe_shared_experts, config->model.moe_shared_experts);
        assert_int_equal(strstr(json.at, "n_shared_experts") != NULL,
                         config->model.moe_shared_experts > 0);
        assert_int_equal(again->model.num_experts_per_tok, config->model.num_experts_per_tok);
        assert_int_equal(again->model.n_group, config->model.n_group);
        assert_int_equal(again->model.topk_group, config->model.topk_group);
        ech_config_destroy(again);
        ech_config_destroy(config);
        ech_text_free(&json);
        ech_text_free(&set);
        ech_text_free(&type);
    }
}

/* What other programs do not know of experts is written where it is not as they have it; a folder
 * without it is taken with any value, and what a folder says does not bind a run. */
TEST(balance_is_carried)
{
    static const char told[] = "{" QWEN3_MOE ", \"moe_capacity_factor\": 1.25, "
                               "\"moe_group_samples\": 3, \"moe_gshard_ports\": false}",
                      none[] = "{" QWEN3_MOE "}";
    for (int says = 0; says < 2; says++)
        for (int set = 0; set < 3; set++) {
            const char *original = says ? told : none;
            ech_config *config = import_config();
            ech_text json = {0};
            if (set && ech_config_set(config, set == 1 ? "model.moe_capacity_factor=0"
                                                       : "model.moe_capacity_factor=2"))
                fail();
            assert_int_equal(import(config, original), ECH_OK);
            assert_true(config->model.moe_capacity_factor ==
                        (set ? 2 * set - 2 : says ? 1.25 : 0));
            assert_int_equal(config->model.moe_group_samples, says ? 3 : 1);
            assert_int_equal(ech_model_resolve(config, 300), ECH_OK);
            const ech_model_export_options options = {.dtype = ECH_F32,
                                                      .path = "DIR/config.json",
                                                      .text = original,
                                                      .n = strlen(original)};
            assert_int_equal(ech_model_export(config, &options, &json), ECH_OK);
            bool drops = config->model.moe_capacity_factor > 0;
            assert_true((strstr(json.at, "moe_capacity_factor") != NULL) == drops);
            assert_true((strstr(json.at, "moe_group_samples") != NULL) == (says == 1));
            assert_null(strstr(json.at, "moe_gshard_ports"));
            ech_config *again = imported(json.at);
            assert_true(again->model.moe_capacity_factor == config->model.moe_capacity_factor);
            assert_int_equal(again->model.moe_group_samples, config->model.moe_group_samples);
            ech_config_destroy(again);
            ech_config_destroy(config);
            ech_text_free(&json);
        }
}

TEST(refuses)
{
    const struct {
        const char *json, *part;
    } cases[] = {
        {"[]", "must be a JSON object"},
        {"{\"n_embd\": 3}", "model_type"},
        {"{\"model_type\": \"echelon-reversible-bert\"}", "echelon-reversible-bert"},
        {"{\"model_type\": \"echelon-gpt2\"}", "echelon-gpt2"},
        {"{\"model_type\": \"echelon-switch-gpt2\"}", "echelon-switch-gpt2"},
        {"{\"model_type\": \"echelon-hierarchical-llama\"}", "echelon-hierarchical-llama"},
        {"{\"model_type\": \"echelon-shared-mixtral\"}", "n_shared_experts"},
        {"{\"model_type\": \"switch\"}", "switch"},
        {"{\"model_type\": \"echelon-switch-switch\"}", "echelon-switch-switch"},
        {"{\"model_type\": \"echelon-switch\", \"hidden_size\": 20, \"num_hidden_layers\": 2, "
         "\"num_attention_heads\": 2, \"intermediate_size\": 40, \"vocab_size\": 300, "
         "\"hidden_act\": 3}",
         "hidden_act: must be a name"},
        /* which is another function there */
        {"{\"model_type\": \"echelon-switch\", \"hidden_size\": 20, \"num_hidden_layers\": 2, "
         "\"num_attention_heads\": 2, \"intermediate_size\": 40, \"vocab_size\": 300, "
         "\"hidden_act\": \"gelu_fast\"}",
         "not one of: relu gelu_new swiglu relu2 gelu geglu geglu_exact swiglu_clamped"},
        {"{\"model_type\": \"bart\"}", "bart"},
        {"{\"model_type\": \"qwen3_next\"}",
         "Echelon has no gated DeltaNet layers; the nearest family is qwen3_moe"},
        {"{\"model_type\": \"mamba\"}", "Echelon has no state-space layers"},
        {"{" MISTRAL ", \"sliding_window\": 0}", "sliding_window = 0: must be above 0, or null"},
        {"{" MISTRAL ", \"sliding_window\": -3}", "model.sliding_window = -3: out of bounds"},
        {"{" MISTRAL ", \"layer_types\": [\"full_attention\", \"full_attention\"]}", "layer_types"},
        {"{" GEMMA2 ", \"final_logit_softcapping\": 0}", "final_logit_softcapping = 0: must be"},
        {"{" GEMMA2 ", \"query_pre_attn_scalar\": 0}", "query_pre_attn_scalar: must be a number"},
        {"{" GEMMA2 ", \"use_bidirectional_attention\": true}", "attention to later tokens"},
        {"{" GEMMA2 ", \"layer_types\": [\"full_attention\"]}", "layer_types: names 1 layer"},
        {"{" GEMMA3 ", \"attn_logit_softcapping\": 50.0}", "Echelon has no soft-caps of scores"},
        {"{" GEMMA3 ", \"sliding_window_pattern\": 0}", "sliding_window_pattern: must be an int"},
        {"{" GEMMA3 ", \"rope_local_base_freq\": 0}", "rope_local_base_freq: must be a number"},
        {"{" GEMMA3 ", \"rope_parameters\": {\"sliding_attention\": {\"rope_type\": "
         "\"linear\"}}}",
         "Echelon has no scaled angles in layers with a window"},
        {"{" GEMMA2 ", \"rope_parameters\": {\"full_attention\": {}}}",
         "must be alike in all layers of gemma2"},
        {"{" GRANITE ", \"embedding_multiplier\": 0}", "embedding_multiplier = 0: must be"},
        {"{" GRANITE ", \"attention_multiplier\": 0}", "attention_multiplier: must be a number"},
        {"{" GRANITE ", \"logits_scaling\": 0}", "model.logits_scaling = 0: out of bounds"},
        {"{" GPT_OSS ", \"swiglu_alpha\": 1.5}", "swiglu_alpha: not supported; only 1.702"},
        {"{" GPT_OSS ", \"swiglu_limit\": 8.0}", "swiglu_limit: not supported; only 7"},
        {"{" GPT_OSS ", \"quantization_config\": {\"quant_method\": \"mxfp4\"}}",
         "quantization_config=Mxfp4Config(dequantize=True)"},
        {"{" QWEN2 ", \"use_sliding_window\": 1}", "use_sliding_window: must be true or false"},
        {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 0}",
         "sliding_window = 0: must be above 0, or null"},
        {"{" QWEN2 ", \"use_sliding_window\": true, \"max_window_layers\": -1}",
         "max_window_layers: must be an integer from 0 to 4096"},
        {"{" QWEN2 ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
         "layers have a window, but sliding_window gives none; set use_sliding_window to true"},
        {"{" GEMMA2 ", \"sliding_window\": null}",
         "but sliding_window gives none; set sliding_window to the number of tokens, or"},
        {"{" QWEN3_MOE ", \"use_sliding_window\": true, \"layer_types\": [\"full_attention\"]}",
         "Echelon has no such layers in this family"},
        {"{" QWEN2 ", \"layer_types\": [\"sliding_attention\"]}", "layer_types"},
        {"{\"model_type\": \"phi3\", " SIZES ", \"sliding_window\": 0}",
         "must be above 0, or null"},
        {"{" OLMO3 ", \"rope_theta\": 7}", "rope_theta: not of each type of layers"},
        {"{" OLMO3 ", \"rope_parameters\": {\"rope_theta\": 7}}",
         "rope_parameters: not of each type of layers"},
        {"{" OLMO3 ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8, "
         "\"original_max_position_embeddings\": 8, \"truncate\": false}}",
         "rope_scaling: truncate: transformers does not read it in olmo3"},
        {"{" GEMMA3 ", \"rope_parameters\": {\"full_attention\": {}, \"truncate\": false}}",
         "rope_parameters: truncate: not a type of layers"},
        {"{" SMOLLM3 ", \"no_rope_layers\": [1]}", "must be a list of 2 numbers"},
        {"{" LLAMA ", \"original_max_position_embeddings\": 4096, \"rope_scaling\": {\"type\": "
         "\"llama3\", " SCALING "}}",
         "rope_scaling: original_max_position_embeddings is 8192, but 4096 outside of it"},
        {"{" PHI3 ", \"rope_scaling\": {\"type\": \"longrope\", "
         "\"original_max_position_embeddings\": 8, \"short_factor\": [1], \"long_factor\": [1]}}",
         "is 8, but 4096 outside of it, by default"},
        {"{" SMOLLM3 ", \"no_rope_layers\": [1, 2]}", "must be numbers, 0 or 1"},
        {"{" SMOLLM3 ", \"no_rope_layer_interval\": 0}", "must be an integer from 1 to 4096"},
        {"{" QWEN2_MOE ", \"shared_expert_intermediate_size\": 30}",
         "only multiples of moe_intermediate_size = 20"},
        {"{" QWEN2_MOE ", \"shared_expert_intermediate_size\": 0}", "from 1 to 10000000"},
        {"{\"model_type\": \"echelon-shared-qwen2_moe\"}", "echelon-shared-qwen2_moe"},
        {"{\"model_type\": \"phi\"}", "the nearest family is gpt_neox"},
        {"{" STARCODER2 ", \"hidden_act\": \"tanh\"}", "hidden_act = \"tanh\": not supported"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 3}", "vocab_size"},
        {"{" GPT2 ", \"n_embd\": 3}", "duplicate"},
        {"{" GPT2 ", \"activation_function\": \"tanh\"}", "activation_function = \"tanh\""},
        {"{" GPT2 ", \"scale_attn_by_inverse_layer_idx\": true}", "scale_attn_by_inverse_layer"},
        {"{" GPT2 ", \"scale_attn_weights\": false}", "scale_attn_weights"},
        {"{" GPT2 ", \"add_cross_attention\": true}", "add_cross_attention"},
        {"{" GPT2 ", \"layer_norm_epsilon\": \"1e-5\"}", "layer_norm_epsilon"},
        {"{" GPT2 ", \"resid_pdrop\": 3}", "model.resid_pdrop = 3: out of bounds"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 4097, \"n_head\": 4, "
         "\"n_positions\": 64, \"vocab_size\": 300}",
         "model.num_hidden_layers = 4097: out of bounds"},
        {"{" LLAMA ", \"hidden_act\": \"relu\"}", "hidden_act"},
        {"{" LLAMA ", \"sliding_window\": 4096}", "sliding_window"},
        {"{" LLAMA ", \"head_dim\": 0}", "model.head_dim = 0: out of bounds"},
        {"{" LLAMA ", \"head_dim\": \"8\"}", "head_dim"},
        {"{" LLAMA ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
        {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"ntk\"}}",
         "config.json: rope_scaling: rope_type = \"ntk\""},
        {"{" LLAMA ", \"rope_scaling\": {\"type\": \"straight\", \"factor\": 2}}", "linear"},
        {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\"}}", "factor"},
        {"{" LLAMA ", \"rope_scaling\": 3}", "rope_scaling"},
        {"{" LLAMA ", \"quantization_config\": {\"quant_method\": \"gptq\"}}",
         "quantized weights (gptq) are not read"},
        {"{" LLAMA ", \"num_key_value_heads\": 0}", "num_key_value_heads"},
        {"{" LLAMA ", \"num_key_value_heads\": 1e99}", "num_key_value_heads"},
        {"{" QWEN3 ", \"layer_types\": [\"full_attention\", \"chunked_attention\"]}",
         "layer_types = [\"full_attention\",\"chunked_attention\"]: not supported; only: "
         "sliding_attention full_attention"},
        {"{" QWEN3 ", \"layer_types\": \"full_attention\"}", "layer_types"},
        {"{" QWEN3 ", \"layer_types\": [\"full_attention\"]}",
         "layer_types: names 1 layer, but num_hidden_layers is "},
        {"{" QWEN3 ", \"rope_scaling\": {\"rope_type\": \"ntk\", \"factor\": 4}}", "ntk"},
        {"{" QWEN3_MOE ", \"num_experts\": 0}", "model.num_local_experts = 0: out of bounds"},
        {"{" QWEN3_MOE ", \"norm_topk_prob\": 3}", "norm_topk_prob"},
        {"{" QWEN3_MOE ", \"decoder_sparse_step\": 0}", "model.moe_every = 0: out of bounds"},
        {"{" QWEN3_MOE ", \"mlp_only_layers\": 1}", "mlp_only_layers: must be a list"},
        {"{" QWEN3_MOE ", \"mlp_only_layers\": [0, 5]}", "mlp_only_layers: must be numbers of"},
        {"{" QWEN3_MOE ", \"mlp_only_layers\": [0, \"1\"]}", "mlp_only_layers: must be numbers"},
        {"{" QWEN3_MOE ", \"mlp_only_layers\": [2, 0]}",
         "mlp_only_layers: lists layer 2 as dense, but not all layers before it"},
        {"{" LLAMA ", \"attention_dropout\": NaN}", "JSON has no NaN or Infinity"},
        {"{" LLAMA ", \"rope_theta\": [0.5, Infinity]}", "JSON has no NaN or Infinity"},
        {"{" LLAMA "", "bad JSON"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_config *config = import_config();
        if (import(config, cases[i].json) == ECH_OK) fail_msg("accepted: %s", cases[i].json);
        if (!strstr(ech_last_error(), cases[i].part) ||
            !strstr(ech_last_error(), "DIR/config.json"))
            fail_msg("\"%s\" does not say \"%s\"", ech_last_error(), cases[i].part);
        ech_config_destroy(config);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * SmolLM3. Bakouch et al. 2025: Llama, of whose layers every fourth has no rotary positions (Yang
 * et al. 2025, arXiv:2501.18795).
 */
#include <stdio.h>

#include "model/family.h"

#define LIST     "no_rope_layers"
#define INTERVAL "no_rope_layer_interval"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    {"num_key_value_heads", "model.num_key_value_heads", .initial = "4", .derived = ech_rows_heads},
    ECH_ROW_HEAD_DIM,
    ECH_ROW_POSITIONS("32768"),
    ECH_ROW_GATED_ACT,
    ECH_ROWS_ROPE,
    {INTERVAL, "model.no_rope_layer_interval", .use = ECH_ROW_UNREAD | ECH_ROW_UNWRITTEN},
    ECH_ROW_RMS_EPS("1e-6"),
    ECH_ROWS_ATTENTION_BIAS("false"),
    ECH_ROW_MLP_BIAS("false"),
    {"use_sliding_window", .initial = "false",
     .property = "attention windows in layers without rotary positions"},
    ECH_ROWS_TRAINING("0.02"),
    ECH_ROW_TIED("true"),
    ECH_ROW_WHOLE_ROTARY,
    {"layer_types", .initial = "full_attention", .use = ECH_ROW_UNWRITTEN | ECH_ROW_LIST,
     .property = "attention windows in layers without rotary positions"},
    ECH_ROW_NO_PAD,
    ECH_ROWS_END};

/* The list says of each layer whether it is rotary; more entries than layers are not used. */
static ech_status import_list(const ech_family_import *in, const json_t *list)
{
    int64_t L = in->config->model.num_hidden_layers, interval = 0, rotary;
    char text[32];
    if (!json_is_array(list) || (int64_t)json_array_size(list) < L)
        ECH_FAIL(ECH_EINPUT, "%s: " LIST ": must be a list of %lld numbers, or more", in->path,
                 (long long)L);
    for (int64_t i = 0; i < L; i++) {
        if (!ech_json_to_int(json_array_get(list, (size_t)i), 0, 1, &rotary))
            ECH_FAIL(ECH_EINPUT, "%s: " LIST ": must be numbers, 0 or 1", in->path);
        if (!rotary && interval == 0) interval = i + 1;
        if (rotary != (interval == 0 || (i + 1) % interval != 0))
            ECH_FAIL(ECH_EUNSUPPORTED,
                     "%s: " LIST ": layer %lld: not supported; only every n-th layer can be "
                     "without rotary positions",
                     in->path, (long long)i);
    }
    snprintf(text, sizeof text, "%lld", (long long)interval);
    return ech_family_import_set(in, "model.no_rope_layer_interval", text);
}

static ech_status import_more(const ech_family_import *in)
{
    static const ech_family_row interval = {INTERVAL, "model.no_rope_layer_interval",
                                            .initial = "4"};
    const json_t *list = ech_family_import_get(in, LIST);
    ECH_TRY(list ? import_list(in, list) : ech_family_import_row(in, &interval));
    return ech_rope_import(in, "2000000");
}

static void export_more(const ech_config *config, json_t *json)
{
    int64_t L = config->model.num_hidden_layers, n = config->model.no_rope_layer_interval;
    json_t *list = json_array();
    for (int64_t i = 0; i < L; i++)
        json_array_append_new(list, json_integer(n == 0 || (i + 1) % n != 0));
    json_object_set_new(json, LIST, list);
    ech_rope_export(config, json);
}

const ech_family ech_family_row_smollm3 = {
    .name = "smollm3",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .defaults = "model.no_rope_layer_interval=4 model.tie_word_embeddings=true "
                "model.rope_theta=2000000",
    .architecture = "SmolLM3ForCausalLM",
    .rows = rows,
    .import_more = import_more,
    .export_more = export_more,
    .replaces = "dtype rope_parameters " INTERVAL,
    .prefix = "model.",
    .buffers = ".rotary_emb.inv_freq"};

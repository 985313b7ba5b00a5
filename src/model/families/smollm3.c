/* SPDX-License-Identifier: Apache-2.0
 *
 * SmolLM3. Bakouch et al. 2025: Llama, of whose layers every fourth has no rotary positions (Yang
 * et al. 2025, arXiv:2501.18795).
 */
#include "model/family.h"

#define LIST     "no_rope_layers"
#define INTERVAL "no_rope_layer_interval"

static const ech_family_row rows[] = {ECH_ROWS_SIZES,
                                      ECH_ROW_KV_HEADS_OR_NULL("4"),
                                      ECH_ROWS_LLAMA("32768", "1e-6"),
                                      ECH_ROWS_ATTENTION_BIAS("false"),
                                      ECH_ROW_MLP_BIAS("false"),
                                      ECH_ROWS_LLAMA_REST("true"),
                                      ECH_ROW_NO_PAD,
                                      ECH_ROWS_END};

/* The list says of each layer whether it is rotary; more entries than layers are not used. */
static ech_status import_more(const ech_family_import *in)
{
    int64_t L = in->config->model.num_hidden_layers, interval = 4, rotary = 0;
    const json_t *list = ech_family_import_get(in, LIST),
                 *number = ech_family_import_get(in, INTERVAL);
    ECH_FREED_TEXT letters = {0};
    if (!list && number && !ech_json_to_int(number, 1, 4096, &interval))
        ECH_FAIL(ECH_EINPUT, "%s: " INTERVAL ": must be an integer from 1 to 4096", in->path);
    if (list && (!json_is_array(list) || (int64_t)json_array_size(list) < L))
        ECH_FAIL(ECH_EINPUT, "%s: " LIST ": must be a list of %lld numbers, or more", in->path,
                 (long long)L);
    for (int64_t i = 0; i < L; i++) {
        if (list && !ech_json_to_int(json_array_get(list, (size_t)i), 0, 1, &rotary))
            ECH_FAIL(ECH_EINPUT, "%s: " LIST ": must be numbers, 0 or 1", in->path);
        ech_text_append(&letters, "%c", (list ? rotary : (i + 1) % interval != 0) ? 'R' : 'N');
    }
    return ech_layers_import(in, "model.rotary_layers", &letters);
}

static bool has_window(const ech_config *config, int64_t n, int64_t i)
{
    (void)n;
    return !ech_model_rotates(config, i);
}

static const ech_windows windows = {.has = has_window, .switched = "0"};

static void export_more(const ech_config *config, json_t *json)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < config->model.num_hidden_layers; i++)
        json_array_append_new(list, json_integer(ech_model_rotates(config, i)));
    json_object_set_new(json, LIST, list);
}

const ech_family ech_family_row_smollm3 = {
    .name = "smollm3",
    .help = "SmolLM3: Llama, of whose layers every fourth has no rotary positions",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .defaults = "model.rotary_layers=RRRN model.tie_word_embeddings=true "
                "model.rope_theta=2000000",
    .architecture = "SmolLM3ForCausalLM",
    .also = "model.rotary_layers",
    .windows = &windows,
    .rows = rows,
    .import_more = import_more,
    .export_more = export_more,
    .rope = &(const ech_rope_names){.theta_initial = "2000000"},
    ECH_ROTARY_FILES(" " INTERVAL)};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention windows in config.json: sliding_window is a row of a family; layer_types lists which
 * layers have it.
 */
#include <string.h>

#include "base/text.h"
#include "model/family.h"

#define PATTERN "sliding_window_pattern"
#define WINDOW  "sliding_attention"
#define FULL    "full_attention"

/* One letter a layer, as model.window_layers has them. */
static void letters_of(const ech_config *config, ech_text *out)
{
    const char *layers = config->model.window_layers;
    for (int64_t i = 0; *layers && i < config->model.num_hidden_layers; i++)
        ech_text_append(out, "%c", layers[i % (int64_t)strlen(layers)]);
}

/* Cuts the letters to the shortest ones that repeat. */
static void shorten(ech_text *letters)
{
    size_t n = 1;
    while (n < letters->n && strncmp(letters->at, letters->at + n, letters->n - n) != 0) n++;
    letters->at[n] = '\0';
    letters->n = n;
}

/* A file without a list: all layers but every n-th one have the window. */
static ech_status repeat(const ech_family_import *in, int64_t interval, ech_text *letters)
{
    const json_t *value = ech_family_import_get(in, PATTERN);
    if (value && !ech_json_to_int(value, 1, 4096, &interval))
        ECH_FAIL(ECH_EINPUT, "%s: " PATTERN ": must be an integer from 1 to 4096", in->path);
    for (int64_t i = 0; i < in->config->model.num_hidden_layers; i++)
        ech_text_append(letters, "%c", (i + 1) % interval ? 'L' : 'G');
    return ECH_OK;
}

ech_status ech_windows_import(const ech_family_import *in, int64_t interval)
{
    const ech_family_row types = {"layer_types", .initial = WINDOW " " FULL, .use = ECH_ROW_LIST};
    const json_t *list = ech_family_import_get(in, types.name);
    ECH_FREED_TEXT letters = {0}, ours = {0};
    ECH_TRY(ech_family_import_row(in, &types));
    if (!list) ECH_TRY(repeat(in, interval, &letters));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *type = json_string_value(json_array_get(list, i));
        ech_text_append(&letters, "%c", strcmp(type, WINDOW) == 0 ? 'L' : 'G');
    }
    letters_of(in->config, &ours);
    bool is_set = ech_config_is_set(in->config, "model.window_layers");
    if (is_set && ours.n && strcmp(ours.at, letters.at) == 0) return ECH_OK;
    shorten(&letters);
    return ech_family_import_set(in, "model.window_layers", letters.at);
}

void ech_windows_export(const ech_config *config, json_t *json)
{
    ECH_FREED_TEXT letters = {0};
    json_t *list = json_array();
    letters_of(config, &letters);
    for (size_t i = 0; i < letters.n; i++)
        json_array_append_new(list, json_string(letters.at[i] == 'L' ? WINDOW : FULL));
    json_object_set_new(json, "layer_types", list);
}

ech_status ech_windows_check(const ech_config *config)
{
    if (config->model.sliding_window > 0 || !strchr(config->model.window_layers, 'L'))
        return ECH_OK;
    return ech_config_complain(config, "model.sliding_window",
                               "%s has layers with a window; set it to 1 or more, or "
                               "model.window_layers to G",
                               ech_family_of(config)->name);
}

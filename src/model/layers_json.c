/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of config.json with an entry for each layer, as letters of the run file: attention windows
 * (layer_types, use_sliding_window) and other properties of layers.
 */
#include <string.h>

#include "base/text.h"
#include "model/family.h"

#define WINDOW "sliding_attention"
#define FULL   "full_attention"

/* Cuts the letters to the shortest ones that repeat. */
static void shorten(ech_text *letters)
{
    size_t n = 1;
    while (n < letters->n && strncmp(letters->at, letters->at + n, letters->n - n) != 0) n++;
    letters->at[n] = '\0';
    letters->n = n;
}

ech_status ech_layers_import(const ech_family_import *in, const char *key, ech_text *letters)
{
    ECH_FREED_TEXT ours = {0};
    bool alike = ech_config_is_set(in->config, key);
    if (!letters->n)
        ECH_FAIL(ECH_EINPUT, "%s: the number of layers must be known before %s: map it from a key",
                 in->path, key);
    ech_config_format(in->config, key, &ours);
    for (size_t i = 0; alike && i < letters->n; i++)
        alike = ours.n && letters->at[i] == ours.at[i % ours.n];
    if (alike && ours.n <= letters->n) return ECH_OK;
    shorten(letters);
    return ech_family_import_set(in, key, letters->at);
}

/* ---- attention windows ---- */

const ech_windows ech_windows_of_all = {.alike = true};

bool ech_windows_but_every(const ech_config *config, int64_t n, int64_t i)
{
    (void)config;
    return (i + 1) % n != 0;
}

static bool is_from(const ech_config *config, int64_t n, int64_t i)
{
    (void)config;
    return i >= n;
}

const ech_windows ech_windows_of_last = {
    .has = is_from, .number = "max_window_layers", .otherwise = 28, .switched = "4096"};

bool ech_windows_own(const ech_family *family, const char *key)
{
    if (!family->windows) return false;
    return strcmp(key, "model.window_layers") == 0 ||
           (family->windows->switched && strcmp(key, "model.sliding_window") == 0);
}

/* Sets sliding_window of a family with use_sliding_window. */
static ech_status import_switched(const ech_family_import *in, const ech_windows *windows)
{
    const json_t *use = ech_family_import_get(in, "use_sliding_window");
    const ech_family_row width = {"sliding_window", "model.sliding_window",
                                  .initial = windows->switched, .null = "0"};
    if (use && !json_is_boolean(use))
        ECH_FAIL(ECH_EINPUT, "%s: use_sliding_window: must be true or false", in->path);
    if (json_is_true(use)) return ech_family_import_row(in, &width);
    return ech_family_import_set(in, "model.sliding_window", "0");
}

/* A file without a list. */
static ech_status derive(const ech_family_import *in, const ech_windows *windows, ech_text *letters)
{
    int64_t n = windows->otherwise;
    const json_t *value = windows->number ? ech_family_import_get(in, windows->number) : NULL;
    if (value && !ech_json_to_int(value, windows->least, 4096, &n))
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be an integer from %d to 4096", in->path,
                 windows->number, windows->least);
    bool may = in->config->model.sliding_window > 0 || !(windows->switched || windows->alike);
    for (int64_t i = 0; i < in->config->model.num_hidden_layers; i++)
        ech_text_append(letters, "%c",
                        may && (!windows->has || windows->has(in->config, n, i)) ? 'L' : 'G');
    return ECH_OK;
}

ech_status ech_windows_import(const ech_family_import *in)
{
    const ech_windows *windows = ech_family_of(in->config)->windows;
    ECH_FREED_TEXT letters = {0};
    if (!windows) return ECH_OK;
    if (windows->switched) ECH_TRY(import_switched(in, windows));
    bool has = in->config->model.sliding_window > 0;
    const ech_family_row types = {"layer_types",
                                  .initial = !windows->alike ? WINDOW " " FULL
                                             : has           ? WINDOW
                                                             : FULL,
                                  .use = ECH_ROW_LIST, .property = "such layers in this family"};
    const json_t *list = ech_family_import_get(in, types.name);
    ECH_TRY(ech_family_import_row(in, &types));
    if (!list) ECH_TRY(derive(in, windows, &letters));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *type = json_string_value(json_array_get(list, i));
        ech_text_append(&letters, "%c", strcmp(type, WINDOW) == 0 ? 'L' : 'G');
    }
    if (has) return ech_layers_import(in, "model.window_layers", &letters);
    if (!letters.n || !strchr(letters.at, 'L')) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "%s: layers have a window, but sliding_window gives none%s", in->path,
             windows->switched
                 ? "; set use_sliding_window to true"
                 : "; set sliding_window to the number of tokens, or layer_types to " FULL);
}

static void export_types(const ech_config *config, json_t *json)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < config->model.num_hidden_layers; i++)
        json_array_append_new(list, json_string(ech_model_window(config, i) ? WINDOW : FULL));
    json_object_set_new(json, "layer_types", list);
}

void ech_windows_export(const ech_config *config, json_t *json)
{
    const ech_windows *windows = ech_family_of(config)->windows;
    int64_t window = config->model.sliding_window;
    if (!windows) return;
    if (windows->switched)
        json_object_set_new(json, "use_sliding_window", json_boolean(window > 0));
    if (windows->switched && window > 0)
        json_object_set_new(json, "sliding_window", json_integer(window));
    if (!windows->alike && (window > 0 || !windows->switched)) export_types(config, json);
}

ech_status ech_windows_check(const ech_config *config)
{
    const ech_windows *windows = ech_family_of(config)->windows;
    const char *layers = config->model.window_layers;
    bool has = config->model.sliding_window > 0;
    if (windows && windows->alike && has && strchr(layers, 'G'))
        return ech_config_complain(config, "model.window_layers",
                                   "all layers of %s have the window; use L",
                                   ech_family_of(config)->name);
    if (windows && !windows->alike && !windows->switched && !has && strchr(layers, 'L'))
        return ech_config_complain(config, "model.sliding_window",
                                   "%s has layers with a window; set it to 1 or more, or "
                                   "model.window_layers to G",
                                   ech_family_of(config)->name);
    return ECH_OK;
}

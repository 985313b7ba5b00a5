/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a Hugging Face config.json, which is untrusted: size, depth and count are limited before a tree is built;
 * values must be within the bounds of the run file's keys.
 */
#include "model/import.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

ech_status ech_family_import_parse(const char *path, const char *text, size_t n, json_t **out)
{
    const ech_json_limits limits = {.depth = 16, .containers = 4096, .values = 1 << 17};
    return ech_json_parse(path, text, n, limits, out);
}

const json_t *ech_family_import_get(const ech_family_import *in, const char *name)
{
    const json_t *value = json_object_get(in->json, name);
    return json_is_null(value) ? NULL : value;
}

bool ech_family_import_int(const ech_family_import *in, const char *name, int64_t *out)
{
    return ech_json_to_int(ech_family_import_get(in, name), 1, INT64_MAX, out);
}

ech_status ech_family_import_set(const ech_family_import *in, const char *key, const char *text)
{
    return ech_config_fill(in->config, key, text, in->path, false);
}

/* A number or truth value as a user would write it. */
static bool to_text(const json_t *value, char *text, size_t size)
{
    if (json_is_boolean(value))
        snprintf(text, size, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_integer(value))
        snprintf(text, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value) && isfinite(json_real_value(value)))
        snprintf(text, size, "%.17g", json_real_value(value));
    else
        return false;
    return true;
}

static ech_status import_row(const ech_family_import *in, const ech_family_import_row *row)
{
    char text[64];
    const json_t *value = ech_family_import_get(in, row->name);
    if (!value && !row->initial)
        ECH_FAIL(ECH_EINPUT, "%s: has no %s: not a whole config.json of this family", in->path,
                 row->name);
    if (value && !to_text(value, text, sizeof text))
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be a number, or true or false", in->path, row->name);
    return ech_config_fill(in->config, row->key, value ? text : row->initial, in->path,
                           row->may_differ);
}

ech_status ech_family_import_rows(const ech_family_import *in, const ech_family_import_row *rows,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++) ECH_TRY(import_row(in, &rows[i]));
    return ECH_OK;
}

static ech_status refuse(const ech_family_import *in, const char *name, const char *what)
{
    char *text = json_dumps(ech_family_import_get(in, name), JSON_ENCODE_ANY | JSON_COMPACT);
    ech_status st =
        ech_fail_at(__FILE__, __LINE__, ECH_EUNSUPPORTED, "%s: %s = %.80s%s: %s", in->path, name,
                    text ? text : "?", text && strlen(text) > 80 ? "..." : "", what);
    free(text);
    return st;
}

static bool is_one_of(const json_t *value, const char *words)
{
    return json_is_string(value) && ech_text_has_word(words, json_string_value(value));
}

static ech_status refuse_but(const ech_family_import *in, const char *name, const char *words)
{
    char what[128];
    size_t n = strlen(words);
    while (n > 0 && words[n - 1] == ' ') n--;
    snprintf(what, sizeof what, "not supported; only: %.*s", (int)n, words);
    return refuse(in, name, what);
}

ech_status ech_family_import_only(const ech_family_import *in, const char *name, const char *words)
{
    const json_t *value = ech_family_import_get(in, name);
    return !value || is_one_of(value, words) ? ECH_OK : refuse_but(in, name, words);
}

ech_status ech_family_import_only_all(const ech_family_import *in, const char *name,
                                      const char *words)
{
    const json_t *value = ech_family_import_get(in, name);
    bool all = !value || json_is_array(value);
    for (size_t i = 0; i < json_array_size(value); i++)
        all = all && is_one_of(json_array_get(value, i), words);
    return all ? ECH_OK : refuse_but(in, name, words);
}

ech_status ech_family_import_only_bool(const ech_family_import *in, const char *name, bool value)
{
    const json_t *found = ech_family_import_get(in, name);
    if (!found || (json_is_boolean(found) && json_is_true(found) == value)) return ECH_OK;
    return refuse(in, name, value ? "not supported; only true" : "not supported; only false");
}

ech_status ech_family_import_only_one(const ech_family_import *in, const char *name)
{
    const json_t *value = ech_family_import_get(in, name);
    bool is_one = json_is_number(value) && fabs(json_number_value(value) - 1) <= 0;
    return !value || is_one ? ECH_OK : refuse(in, name, "not supported; only 1");
}

ech_status ech_family_import_never(const ech_family_import *in, const char *name)
{
    return ech_family_import_get(in, name) ? refuse(in, name, "not supported; only null") : ECH_OK;
}

static ech_status import_unquantized(const ech_family_import *in)
{
    const json_t *how = ech_family_import_get(in, "quantization_config");
    const char *method = json_string_value(json_object_get(how, "quant_method"));
    if (!how) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: quantization_config: quantized weights%s%.40s%s are not read; name the folder of "
             "the model in fp32, bf16 or fp16 that they were made from",
             in->path, method ? " (" : "", method ? method : "", method ? ")" : "");
}

static ech_status import_family(const ech_family_import *in)
{
    const char *type = json_string_value(ech_family_import_get(in, "model_type"));
    if (!type)
        ECH_FAIL(ECH_EINPUT, "%s: has no model_type: not a Hugging Face model's config.json",
                 in->path);
    ECH_TRY(ech_family_import_only(in, "model_type", ech_family_names()));
    ECH_TRY(ech_family_import_set(in, "model.architecture", type));
    ECH_TRY(import_unquantized(in));
    return ech_family_find(type)->import_json(in);
}

/* One id, or the first of several; `otherwise` where there is none. */
static int32_t token_id(const ech_family_import *in, const char *name, int64_t vocabulary,
                        int32_t otherwise)
{
    int64_t id;
    const json_t *value = ech_family_import_get(in, name);
    if (json_is_array(value)) value = json_array_get(value, 0);
    return ech_json_to_int(value, 0, vocabulary - 1, &id) ? (int32_t)id : otherwise;
}

static ech_model_text_ends read_ends(const ech_family_import *in)
{
    int64_t V = in->config->model.vocab_size;
    int32_t end = token_id(in, "eos_token_id", V, (int32_t)(V - 1));
    return (ech_model_text_ends){.begin = token_id(in, "bos_token_id", V, end), .end = end};
}

static void add_stop(const json_t *value, int64_t vocabulary, ech_stops *stops)
{
    int64_t id;
    bool known = false;
    if (!ech_json_to_int(value, 0, vocabulary - 1, &id)) return;
    for (size_t i = 0; i < stops->n; i++) known = known || stops->at[i] == id;
    if (!known) ECH_PUSH(*stops, (int32_t)id);
}

ech_status ech_model_read_stops(const char *path, const char *text, size_t n, int64_t vocabulary,
                                ech_stops *stops)
{
    json_t *json;
    ECH_TRY(ech_family_import_parse(path, text, n, &json));
    const json_t *value = json_object_get(json, "eos_token_id");
    size_t ids = json_is_array(value) ? json_array_size(value) : 0;
    for (size_t i = 0; i < ids; i++) add_stop(json_array_get(value, i), vocabulary, stops);
    if (value && !json_is_array(value)) add_stop(value, vocabulary, stops);
    json_decref(json);
    return ECH_OK;
}

ech_status ech_model_import_text(ech_config *config, const char *path, const char *text, size_t n,
                                 ech_model_text_ends *ends)
{
    json_t *json;
    ECH_TRY(ech_family_import_parse(path, text, n, &json));
    const ech_family_import in = {config, path, json};
    ech_status st = import_family(&in);
    if (st == ECH_OK && ends) *ends = read_ends(&in);
    json_decref(json);
    return st;
}

ech_status ech_model_import(ech_config *config, const char *path, ech_model_text_ends *ends)
{
    char *text;
    size_t n;
    ECH_TRY(ech_file_read(path, ECH_IMPORT_LARGEST, &text, &n));
    ech_status st = ech_model_import_text(config, path, text, n, ends);
    free(text);
    return st;
}

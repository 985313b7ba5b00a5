/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of families (ech_family_row): each is a key of a Hugging Face config.json, which is
 * untrusted, and the key of run files that it sets and is written from.
 */
#include "model/mapping.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const json_t *ech_family_import_get(const ech_family_import *in, const char *name)
{
    const json_t *value = json_object_get(in->json, name);
    if (in->seen) json_object_set_new(in->seen, name, json_true());
    return json_is_null(value) ? NULL : value;
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
        ech_text_print(text, size, "%.17g", json_real_value(value));
    else
        return false;
    return true;
}

/* A JSON value of the table of constants, or words. */
static bool is_literal(const char *words)
{
    return ech_text_has_word("true false 0 1 null", words);
}

static bool is_one_of(const json_t *value, const char *words)
{
    char text[64];
    if (is_literal(words)) return to_text(value, text, sizeof text) && strcmp(text, words) == 0;
    return json_is_string(value) && ech_text_has_word(words, json_string_value(value));
}

ech_status ech_family_import_refuse(const ech_family_import *in, const ech_family_row *row,
                                    const char *expected)
{
    char *text = json_dumps(ech_family_import_get(in, row->name), JSON_ENCODE_ANY | JSON_COMPACT);
    size_t n = strlen(expected);
    while (expected[n - 1] == ' ') n--;
    ech_status st = ech_fail_at(
        __FILE__, __LINE__, ECH_EUNSUPPORTED, "%s: %s = %.80s%s: not supported; only%s %.*s%s%s",
        in->path, row->name, text ? text : "(absent)", text && strlen(text) > 80 ? "..." : "",
        is_literal(expected) ? "" : ":", (int)n, expected, row->property ? "; Echelon has no " : "",
        row->property ? row->property : "");
    free(text);
    return st;
}

/* ---- names of values ---- */

/* Of "a=b c=d", the pair whose left side (`right`: whose right side) is `name`; NULL: none. */
static const char *find_pair(const char *pairs, const char *name, bool right)
{
    size_t n = strlen(name);
    for (const char *at = pairs; *at; at += strcspn(at, " "), at += *at == ' ') {
        size_t left = strcspn(at, "="), length = strcspn(at, " ");
        const char *side = right ? at + left + 1 : at;
        size_t is = right ? length - left - 1 : left;
        if (is == n && strncmp(side, name, n) == 0) return at;
    }
    return NULL;
}

bool ech_family_row_writes(const ech_config *config, const ech_family_row *row)
{
    return find_pair(row->values, ech_config_name(config, row->key), true) != NULL;
}

/* The value of a row with names in the file's words: those that are left of "=". */
static void append_names(const ech_family_row *row, ech_text *out)
{
    for (const char *at = row->values; *at; at += strcspn(at, " "), at += *at == ' ')
        ech_text_append(out, "%s%.*s", out->n ? " " : "", (int)strcspn(at, "="), at);
}

/* Sets a key to the value that the file calls `name`. */
static ech_status import_name(const ech_family_import *in, const ech_family_row *row,
                              const char *name)
{
    const char *pair = row->values ? find_pair(row->values, name, false) : NULL;
    char ours[64];
    if (row->values && !pair) {
        ECH_FREED_TEXT names = {0};
        append_names(row, &names);
        return ech_family_import_refuse(in, row, names.at);
    }
    if (pair) {
        pair += strcspn(pair, "=") + 1;
        snprintf(ours, sizeof ours, "%.*s", (int)strcspn(pair, " "), pair);
    }
    return ech_config_fill(in->config, row->key, pair ? ours : name, in->path,
                           row->use & ECH_ROW_MAY_DIFFER);
}

static void append_name(const ech_config *config, const ech_family_row *row, ech_text *out)
{
    const char *name = ech_config_name(config, row->key);
    const char *pair = row->values ? find_pair(row->values, name, true) : NULL;
    if (pair)
        ech_text_append(out, "\"%.*s\"", (int)strcspn(pair, "="), pair);
    else
        ech_text_append(out, "\"%s\"", name);
}

static bool has_names(const ech_family_row *row)
{
    return row->values || row->use & ECH_ROW_NAME;
}

/* ---- rows ---- */

static ech_status check_constant(const ech_family_import *in, const ech_family_row *row)
{
    const json_t *value = ech_family_import_get(in, row->name);
    bool lists = row->use & ECH_ROW_LIST;
    bool is_missing = row->use & ECH_ROW_NEEDED && !json_object_get(in->json, row->name);
    bool fits =
        !value ? !is_missing : (lists ? json_is_array(value) : is_one_of(value, row->initial));
    for (size_t i = 0; lists && i < json_array_size(value); i++)
        fits = fits && is_one_of(json_array_get(value, i), row->initial);
    if (!fits) return ech_family_import_refuse(in, row, row->initial);
    int64_t entries = (int64_t)json_array_size(value), L = in->config->model.num_hidden_layers;
    if (lists && value && entries != L)
        ECH_FAIL(ECH_EINPUT, "%s: %s: names %s, but num_hidden_layers is %lld; make the two agree",
                 in->path, row->name, ECH_COUNT(entries, "layer"), (long long)L);
    return ECH_OK;
}

/* The run file may have a larger vocabulary than the file, whose tables then get rows. */
static bool grows(const ech_family_import *in, const ech_family_row *row, const char *text)
{
    int64_t rows;
    return strcmp(row->key, "model.vocab_size") == 0 && ech_text_to_int(text, &rows) &&
           in->config->model.vocab_size > rows;
}

/* The default of a mapping file, in place of its base's. False: it has none. */
static bool has_default(const ech_mapping *mapping, const ech_family_row *row, char *text, size_t n)
{
    const char *found = mapping ? ech_family_find_value(mapping->defaults, row->key) : NULL;
    if (found) snprintf(text, n, "%.*s", (int)strcspn(found, " "), found);
    return found != NULL;
}

ech_status ech_family_import_row(const ech_family_import *in, const ech_family_row *row)
{
    if (!row->key) return check_constant(in, row);
    char text[64];
    const json_t *value = ech_family_import_get(in, row->name);
    bool is_there = json_object_get(in->json, row->name) != NULL;
    bool is_null = !value && is_there && row->null;
    bool derives = !value && row->derived && (is_there || !row->initial);
    if (!value && row->use & ECH_ROW_OURS) return ECH_OK;
    const ech_mapping *mapping = ech_family_of(in->config)->mapping;
    if (!value && !is_null && has_default(mapping, row, text, sizeof text))
        return ech_config_fill(in->config, row->key, text, in->path, true);
    if (!value && !row->initial && !row->derived && !is_null && mapping)
        return ech_mapping_miss_key(mapping, in, row);
    if (!value && !row->initial && !row->derived && !is_null)
        ECH_FAIL(ECH_EINPUT, "%s: has no %s: not a whole config.json of this family; copy it again",
                 in->path, row->name);
    if (value && row->use & ECH_ROW_TEXT) {
        if (!json_is_string(value))
            ECH_FAIL(ECH_EINPUT, "%s: %s: must be a text", in->path, row->name);
        return ech_config_fill(in->config, row->key, json_string_value(value), in->path, false);
    }
    if (value && has_names(row)) {
        if (!json_is_string(value) || json_string_length(value) >= sizeof text)
            ECH_FAIL(ECH_EINPUT, "%s: %s: must be a name", in->path, row->name);
        snprintf(text, sizeof text, "%s", json_string_value(value));
    } else if (value && !to_text(value, text, sizeof text))
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be a number, or true or false", in->path, row->name);
    else if (value && row->null && json_is_number(value) && json_number_value(value) == 0 &&
             strcmp(row->null, "0") == 0)
        ECH_FAIL(ECH_EINPUT, "%s: %s = 0: must be above 0, or null", in->path, row->name);
    else if (is_null)
        snprintf(text, sizeof text, "%s", row->null);
    else if (derives)
        snprintf(text, sizeof text, "%lld", (long long)row->derived(in->config));
    else if (!value)
        snprintf(text, sizeof text, "%s", row->initial);
    if (has_names(row)) return import_name(in, row, text);
    return ech_config_fill(in->config, row->key, text, in->path,
                           row->use & ECH_ROW_MAY_DIFFER || grows(in, row, text));
}

ech_status ech_family_import_rows(const ech_family_import *in, const ech_family_row *rows)
{
    for (const ech_family_row *row = rows; row->name; row++)
        if (!(row->use & ECH_ROW_UNREAD)) ECH_TRY(ech_family_import_row(in, row));
    return ECH_OK;
}

json_t *ech_family_export_rows(const ech_config *config, const ech_family_row *rows)
{
    json_t *object = json_object();
    for (const ech_family_row *row = rows; row->name; row++) {
        if (row->use & ECH_ROW_UNWRITTEN) continue;
        ECH_FREED_TEXT value = {0};
        if (row->key && has_names(row))
            append_name(config, row, &value);
        else if (row->key)
            ech_config_format(config, row->key, &value);
        else
            ech_text_append(&value, is_literal(row->initial) ? "%.*s" : "\"%.*s\"",
                            (int)strcspn(row->initial, " "), row->initial);
        if (row->use & ECH_ROW_OURS && strcmp(value.at, row->initial) == 0) continue;
        bool is_null = row->null && strcmp(value.at, row->null) == 0;
        json_t *parsed = row->use & ECH_ROW_TEXT
                             ? json_string(value.at)
                             : json_loads(is_null ? "null" : value.at, JSON_DECODE_ANY, NULL);
        ECH_ASSERT(parsed);
        if (row->use & ECH_ROW_REAL && json_is_integer(parsed)) {
            double number = json_number_value(parsed);
            json_decref(parsed);
            parsed = json_real(number);
        }
        json_object_set_new(object, row->name, parsed);
    }
    return object;
}

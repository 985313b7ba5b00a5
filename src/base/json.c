/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON from files nobody vouches for.
 */
#include "base/json.h"

#include <string.h>

/* What a look over the bytes counts, before any tree is built. Commas and brackets inside of
 * strings do not count. */
typedef struct census {
    int depth, deepest;
    size_t containers, commas;
} census;

static census count_values(const char *text, size_t n)
{
    census seen = {0};
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            seen.containers++;
            if (++seen.depth > seen.deepest) seen.deepest = seen.depth;
        } else if (c == '}' || c == ']') {
            seen.depth--;
        } else if (c == ',') {
            seen.commas++;
        }
    }
    return seen;
}

static bool is_within(const census *seen, ech_json_limits limits)
{
    return seen->deepest <= limits.depth && seen->containers <= limits.containers &&
           seen->commas <= limits.values;
}

bool ech_json_is_within(const char *text, size_t n, ech_json_limits limits)
{
    census seen = count_values(text, n);
    return is_within(&seen, limits);
}

ech_status ech_json_parse(const char *path, const char *text, size_t n, ech_json_limits limits,
                          json_t **out)
{
    census seen = count_values(text, n);
    if (!is_within(&seen, limits)) {
        ECH_FAIL(ECH_EINPUT,
                 "%s: the JSON (%zu bytes, %zu objects and arrays %d deep, %zu commas) is beyond "
                 "what such a file can need (%zu, %d deep, %zu); name the right file",
                 path, n, seen.containers, seen.deepest, seen.commas, limits.containers,
                 limits.depth, limits.values);
    }
    json_error_t error;
    json_t *root = json_loadb(
        text, n, JSON_REJECT_DUPLICATES | (limits.reals ? JSON_DECODE_INT_AS_REAL : 0), &error);
    if (!root && (strstr(error.text, "near 'NaN") || strstr(error.text, "Infinity")))
        ECH_FAIL(
            ECH_EINPUT,
            "%s:%d:%d: JSON has no NaN or Infinity, which Python writes; write a number there, "
            "or null",
            path, error.line, error.column);
    if (!root) {
        ECH_FAIL(ECH_EINPUT, "%s:%d:%d: bad JSON: %s; correct it, or copy the file again", path,
                 error.line, error.column, error.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        ECH_FAIL(ECH_EINPUT,
                 "%s: must be a JSON object, {...}; copy the file again, or name another", path);
    }
    *out = root;
    return ECH_OK;
}

bool ech_json_to_int(const json_t *value, int64_t low, int64_t high, int64_t *out)
{
    if (!json_is_integer(value)) return false;
    json_int_t number = json_integer_value(value);
    if (number < low || number > high) return false;
    *out = number;
    return true;
}

bool ech_json_append_string(ech_text *out, const char *text)
{
    json_t *string = json_string(text);
    if (!string) return false;
    ECH_FREED char *quoted = json_dumps(string, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(string);
    if (!quoted) return false;
    ech_text_append(out, "%s", quoted);
    return true;
}

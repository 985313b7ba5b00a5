/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON from untrusted files. Depth and number of values are checked before a tree is built;
 * duplicate keys and invalid UTF-8 are errors.
 */
#ifndef ECH_BASE_JSON_H
#define ECH_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

typedef struct ech_json_limits {
    int depth;         /* most nested objects and arrays */
    size_t containers; /* most objects and arrays in total */
    size_t values;     /* most commas in total; a container of n values has n - 1 */
    bool reals;        /* read integers as reals: some files have integers of 30 digits */
} ech_json_limits;

/* Parses a text of n bytes that is one object. Release *out with json_decref. Errors: ECH_EINPUT,
 * with `path`, line and column. */
ech_status ech_json_parse(const char *path, const char *text, size_t n, ech_json_limits limits,
                          json_t **out);

/* True if the text is within the limits. Does not check that it is valid JSON. */
bool ech_json_is_within(const char *text, size_t n, ech_json_limits limits);

/* Sets *out to `value`, an integer in [low, high]. False: it is NULL, no integer or out of
 * range. */
bool ech_json_to_int(const json_t *value, int64_t low, int64_t high, int64_t *out);

/* Appends the text as a JSON string, quoted and escaped. False: it is not UTF-8. */
bool ech_json_append_string(ech_text *out, const char *text);

#endif

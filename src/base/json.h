/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON from files nobody vouches for: size, depth and number of values are limited before a tree is
 * built, duplicate keys and invalid UTF-8 are refused.
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
    int depth;         /* of objects and arrays inside each other */
    size_t containers; /* objects and arrays in all */
    size_t values;     /* commas in all: one less than the values of each container, summed */
    bool reals;        /* whole numbers become reals: some files have numbers of 30 digits */
} ech_json_limits;

/* The tree of an object, released with json_decref. Errors name `path`, line and column. */
ech_status ech_json_parse(const char *path, const char *text, size_t n, ech_json_limits limits,
                          json_t **out);

/* Whether the text stays within the limits; nothing else is looked at. */
bool ech_json_is_within(const char *text, size_t n, ech_json_limits limits);

/* Whether the value is an integer in [low, high]; *out then holds it. NULL is not. */
bool ech_json_to_int(const json_t *value, int64_t low, int64_t high, int64_t *out);

/* Appends the text in quotes, escaped; false if it is not UTF-8. */
bool ech_json_append_string(ech_text *out, const char *text);

#endif

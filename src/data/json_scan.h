/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: finds strings in objects of untrusted JSON. Only the strings that are read are
 * checked. Other values are scanned only for their end, so they may be NaN, numbers of any size, or
 * strings that are not Unicode.
 */
#ifndef ECH_DATA_JSON_SCAN_H
#define ECH_DATA_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

/* The location of a value in a text; n = 0: there is none. */
typedef struct ech_json_span {
    size_t at, n;
} ech_json_span;

typedef enum ech_json_found {
    ECH_JSON_WHOLE, /* a value */
    ECH_JSON_CUT,   /* the text ends before the value does */
    ECH_JSON_NONE   /* no value */
} ech_json_found;

/* The first byte from `at` on that is not a JSON blank, or n. */
size_t ech_json_skip_blanks(const char *text, size_t n, size_t at);
/* The first byte after a byte order mark (RFC 8259, section 8.1) and blanks. */
size_t ech_json_skip_mark(const char *text, size_t n);
/* The value that begins at `at`: *end is its end, or where scanning stopped. */
ech_json_found ech_json_skip_value(const char *text, size_t n, size_t at, size_t *end);

/* Finds the values of `keys` in the object that begins at `at`: span[i] is the value of keys[i] and
 * has n = 0 if there is none. *end: its end. Returns NULL, or what is wrong, with its location in
 * *end: no object, a key of `keys` twice. */
const char *ech_json_find(const char *text, size_t n, size_t at, const char *const *keys,
                          size_t count, ech_json_span *span, size_t *end);
/* The content of a string, quotes included in the span. *out, *out_n: borrowed from the text, or
 * from `room`. Returns NULL, or what is wrong: invalid escapes and UTF-8, control characters, half
 * of a surrogate pair. */
const char *ech_json_decode(const char *text, ech_json_span span, ech_text *room, const char **out,
                            size_t *out_n);

#endif

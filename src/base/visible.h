/* SPDX-License-Identifier: Apache-2.0
 *
 * Untrusted text on a terminal. Control characters, bidirectional overrides and invisible
 * characters (Boucher and Anderson 2021, "Trojan Source") are escaped as \x1b, \u202e or
 * \U000e0041; so are bytes that are not UTF-8.
 */
#ifndef ECH_BASE_VISIBLE_H
#define ECH_BASE_VISIBLE_H

#include <stdbool.h>

#include "base/text.h"

/* True if the text can be printed without escapes. lines: newlines and tabs are allowed. */
bool ech_visible_is(const char *text, size_t n, bool lines);

/* Appends n bytes, escaped where needed. Returns the bytes consumed: all except an incomplete last
 * character, which the next call may complete; with `last` all. */
size_t ech_visible_append(ech_text *out, const char *text, size_t n, bool lines, bool last);

/* Writes n bytes, as one line, escaped where needed, to out[size] as far as they fit, without a
 * NUL. Returns the bytes written. Does not allocate. */
size_t ech_visible_print(const char *text, size_t n, char *out, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Text of strangers on a terminal. What a terminal obeys instead of showing it (control characters), what
 * turns the direction in which other text reads, and what is there but not seen (Boucher and Anderson
 * 2021, "Trojan Source") becomes \x1b, \u202e or \U000e0041; so do bytes that are no UTF-8.
 */
#ifndef ECH_BASE_VISIBLE_H
#define ECH_BASE_VISIBLE_H

#include <stdbool.h>

#include "base/text.h"

/* Whether a terminal may get it as it is. lines: newlines and tabs may be in it, too. */
bool ech_visible_is(const char *text, size_t n, bool lines);

/* Appends n bytes so that they are seen. Returns how many it took: all but a character that they end
 * within, which further bytes may complete; `last`: there are none. */
size_t ech_visible_append(ech_text *out, const char *text, size_t n, bool lines, bool last);

/* The same for a line, into `out` as far as it fits; returns the bytes put there. Without the heap. */
size_t ech_visible_print(const char *text, size_t n, char *out, size_t size);

#endif

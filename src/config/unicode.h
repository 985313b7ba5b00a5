/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 in NUL-terminated texts, as YAML needs it.
 */
#ifndef ECH_CONFIG_UNICODE_H
#define ECH_CONFIG_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

/* Writes the first code point of `text` into *out. Returns its length in bytes; 0: malformed (overlong, a
 * surrogate, past U+10FFFF). */
int ech_unicode_next(const char *text, uint32_t *out);

bool ech_unicode_is_valid(const char *text);

/* Whether YAML text may hold the code point without an escape. */
bool ech_unicode_is_printable(uint32_t code);

#endif

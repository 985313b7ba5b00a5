/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 (The Unicode Standard, table 3-7: well-formed byte sequences).
 */
#ifndef ECH_BASE_UTF8_H
#define ECH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the first character of n bytes: returns its length, *code: its code point. 0: the bytes
 * are not a well-formed character (incomplete, overlong, a surrogate or above U+10FFFF). */
size_t ech_utf8_next(const void *text, size_t n, uint32_t *code);

/* Decodes the first character of a NUL-terminated text; the NUL is a character, too. */
size_t ech_utf8_first(const char *text, uint32_t *code);

/* The bytes of the longest prefix of well-formed characters. */
size_t ech_utf8_valid(const void *text, size_t n);

/* True if YAML text may hold the code point without an escape (YAML 1.1, section 5.1). */
bool ech_utf8_is_printable(uint32_t code);

#endif

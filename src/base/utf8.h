/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 (The Unicode Standard, table 3-7: well-formed byte sequences).
 */
#ifndef ECH_BASE_UTF8_H
#define ECH_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that the n bytes begin with, its code point into *code; 0: with none (they end
 * within it, or it is overlong, a surrogate or past U+10FFFF). */
size_t ech_utf8_next(const void *text, size_t n, uint32_t *code);

/* How many of the n bytes, from the first on, are whole characters. */
size_t ech_utf8_valid(const void *text, size_t n);

#endif

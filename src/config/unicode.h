/* SPDX-License-Identifier: Apache-2.0
 *
 * For texts that end in a NUL: UTF-8, which is what YAML is written in.
 */
#ifndef ECH_CONFIG_UNICODE_H
#define ECH_CONFIG_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

/* The first code point of `text` into *out; its length in bytes, 0 if it is malformed (overlong, a
 * surrogate, past U+10FFFF). */
int ech_unicode_next(const char *text, uint32_t *out);

bool ech_unicode_is_valid(const char *text);

/* Whether YAML text may hold it as it is; others need an escape. */
bool ech_unicode_is_printable(uint32_t code);

#endif

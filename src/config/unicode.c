/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 that ends in a NUL, and YAML's printable characters (YAML 1.1, section 5.1).
 */
#include "config/unicode.h"

#include <string.h>

#include "base/utf8.h"

int ech_unicode_next(const char *text, uint32_t *out)
{
    enum { LONGEST = 4 };
    return (int)ech_utf8_next(text, strnlen(text, LONGEST - 1) + 1, out); /* NUL is a character */
}

bool ech_unicode_is_valid(const char *text)
{
    size_t n = strlen(text);
    return ech_utf8_valid(text, n) == n;
}

bool ech_unicode_is_printable(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
    bool breaks_lines = code == 0x2028 || code == 0x2029;
    bool is_mark = code == 0xfeff || code == 0xfffe || code == 0xffff;
    return !breaks_lines && !is_mark;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding UTF-8 (RFC 3629) and YAML's printable characters (YAML 1.1, section 5.1).
 */
#include "config/unicode.h"

int ech_unicode_next(const char *text, uint32_t *out)
{
    const unsigned char *at = (const unsigned char *)text;
    int length = at[0] < 0x80       ? 1
                 : at[0] >> 5 == 6  ? 2
                 : at[0] >> 4 == 14 ? 3
                 : at[0] >> 3 == 30 ? 4
                                    : 0;
    if (length == 0) return 0;
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = length == 1 ? at[0] : at[0] & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        if (at[i] >> 6 != 2) return 0; /* also the terminating NUL */
        code = code << 6 | (at[i] & 0x3fu);
    }
    if (code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return 0;
    *out = code;
    return length;
}

bool ech_unicode_is_valid(const char *text)
{
    uint32_t code;
    while (*text) {
        int length = ech_unicode_next(text, &code);
        if (length == 0) return false;
        text += length;
    }
    return true;
}

bool ech_unicode_is_printable(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
    bool breaks_lines = code == 0x2028 || code == 0x2029;
    bool is_mark = code == 0xfeff || code == 0xfffe || code == 0xffff;
    return !breaks_lines && !is_mark;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding UTF-8.
 */
#include "base/utf8.h"

#include <string.h>

static bool continues(const unsigned char *text, size_t n, size_t at, unsigned low, unsigned high)
{
    return at < n && text[at] >= low && text[at] <= high;
}

size_t ech_utf8_next(const void *text, size_t n, uint32_t *code)
{
    const unsigned char *bytes = text;
    if (n == 0) return 0;
    unsigned first = bytes[0], low = 0x80, high = 0xbf;
    size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if ((first >= 0x80 && first < 0xc2) || first > 0xf4) return 0;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    uint32_t is = length == 1 ? first : first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++, low = 0x80, high = 0xbf) {
        if (!continues(bytes, n, i, low, high)) return 0;
        is = is << 6 | (bytes[i] & 0x3fu);
    }
    *code = is;
    return length;
}

size_t ech_utf8_first(const char *text, uint32_t *code)
{
    enum { LONGEST = 4 };
    return ech_utf8_next(text, strnlen(text, LONGEST - 1) + 1, code);
}

size_t ech_utf8_valid(const void *text, size_t n)
{
    const uint64_t high_bits = UINT64_C(0x8080808080808080);
    const unsigned char *bytes = text;
    uint32_t code;
    for (size_t at = 0, length; at < n; at += length) {
        uint64_t eight = high_bits;
        if (n - at >= sizeof eight) memcpy(&eight, bytes + at, sizeof eight);
        length = eight & high_bits ? ech_utf8_next(bytes + at, n - at, &code) : sizeof eight;
        if (length == 0) return at;
    }
    return n;
}

bool ech_utf8_is_printable(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
    bool breaks_lines = code == 0x2028 || code == 0x2029;
    bool is_mark = code == 0xfeff || code == 0xfffe || code == 0xffff;
    return !breaks_lines && !is_mark;
}

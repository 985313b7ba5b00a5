/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes as visible characters and back: how vocabularies are written down.
 */
#include "data/bpe/bpe.h"

enum { FIRST_HIDDEN = 0x100, HIDDEN = 68 };

static bool is_visible(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* How many bytes below this one are hidden. */
static unsigned hidden_below(unsigned byte)
{
    if (byte <= 0x20) return byte;
    if (byte <= 0xa0) return 0x21 + (byte > 0x7f ? byte - 0x7f : 0);
    return 0x21 + 0x22; /* 0xad is the last */
}

static unsigned hidden_byte(unsigned number)
{
    if (number < 0x21) return number;
    return number < 0x21 + 0x22 ? number - 0x21 + 0x7f : 0xad;
}

void ech_bpe_show(const void *bytes, size_t n, ech_text *out)
{
    const unsigned char *from = bytes;
    for (size_t i = 0; i < n; i++) {
        unsigned c = is_visible(from[i]) ? from[i] : FIRST_HIDDEN + hidden_below(from[i]);
        unsigned char utf8[2] = {(unsigned char)(0xc0 | c >> 6),
                                 (unsigned char)(0x80 | (c & 0x3f))};
        if (c < 0x80)
            ech_text_append_bytes(out, &from[i], 1);
        else
            ech_text_append_bytes(out, utf8, 2);
    }
}

bool ech_bpe_unshow(const char *text, size_t n, ech_text *out)
{
    for (size_t i = 0; i < n;) {
        unsigned first = (unsigned char)text[i++], c = first;
        if (first >= 0x80) {
            if ((first & 0xe0) != 0xc0 || i == n) return false;
            c = (first & 0x1f) << 6 | ((unsigned char)text[i++] & 0x3f);
        }
        if (c >= FIRST_HIDDEN + HIDDEN || (c < FIRST_HIDDEN && !is_visible(c))) return false;
        unsigned char byte = (unsigned char)(c < FIRST_HIDDEN ? c : hidden_byte(c - FIRST_HIDDEN));
        ech_text_append_bytes(out, &byte, 1);
    }
    return true;
}

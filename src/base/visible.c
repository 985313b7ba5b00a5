/* SPDX-License-Identifier: Apache-2.0
 *
 * Which characters a terminal does not get.
 */
#include "base/visible.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum { LONGEST = 16, UTF8_BYTES = 4 };

/* Controls (C0, DEL, C1); marks and controls of direction; line and paragraph separators; formats
 * that nothing shows; tags. */
static const struct range {
    uint32_t from, to;
} hidden[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0x061c, 0x061c}, {0x200e, 0x200f},
              {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};

static bool is_hidden(uint32_t code)
{
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (code >= hidden[i].from && code <= hidden[i].to) return true;
    return false;
}

/* How the text begins: bytes of it into *taken, how these are shown into shown[LONGEST]. */
static size_t show_next(const char *text, size_t n, bool lines, char *shown, size_t *taken)
{
    uint32_t code;
    size_t length = ech_utf8_next(text, n, &code);
    *taken = length ? length : 1;
    if (length == 0) return (size_t)snprintf(shown, LONGEST, "\\x%02x", (unsigned char)*text);
    bool stays = !is_hidden(code) || (lines && (code == '\n' || code == '\t'));
    if (stays) {
        memcpy(shown, text, length);
        return length;
    }
    const char *format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
    return (size_t)snprintf(shown, LONGEST, format, (unsigned)code);
}

bool ech_visible_is(const char *text, size_t n, bool lines)
{
    char shown[LONGEST];
    for (size_t at = 0, taken; at < n; at += taken)
        if (show_next(text + at, n - at, lines, shown, &taken) > taken) return false;
    return true;
}

/* Whether n bytes are the beginning of a longer character. */
static bool is_unfinished(const char *text, size_t n)
{
    static const char *const ends[] = {"\x80\x80\x80", "\xa0\x80\x80", "\x90\x80\x80"};
    uint32_t code;
    for (size_t i = 0; n < UTF8_BYTES && i < sizeof ends / sizeof *ends; i++) {
        char whole[2 * UTF8_BYTES];
        memcpy(whole, text, n);
        memcpy(whole + n, ends[i], UTF8_BYTES - 1);
        if (ech_utf8_next(whole, n + UTF8_BYTES - 1, &code) > n) return true;
    }
    return false;
}

size_t ech_visible_append(ech_text *out, const char *text, size_t n, bool lines, bool last)
{
    char shown[LONGEST];
    size_t at = 0, taken;
    while (at < n) {
        if (!last && is_unfinished(text + at, n - at)) break;
        size_t length = show_next(text + at, n - at, lines, shown, &taken);
        ech_text_append_bytes(out, shown, length);
        at += taken;
    }
    return at;
}

size_t ech_visible_print(const char *text, size_t n, char *out, size_t size)
{
    char shown[LONGEST];
    size_t put = 0;
    for (size_t at = 0, taken; at < n; at += taken) {
        size_t length = show_next(text + at, n - at, false, shown, &taken);
        if (put + length > size) break;
        memcpy(out + put, shown, length);
        put += length;
    }
    return put;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON (RFC 8259) without a tree. It takes linear time, and memory only for the strings that are
 * read.
 */
#include "data/json_scan.h"

#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

size_t ech_json_skip_blanks(const char *text, size_t n, size_t at)
{
    while (at < n && is_blank(text[at])) at++;
    return at;
}

size_t ech_json_skip_mark(const char *text, size_t n)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t at = n >= strlen(mark) && memcmp(text, mark, strlen(mark)) == 0 ? strlen(mark) : 0;
    return ech_json_skip_blanks(text, n, at);
}

static ech_json_found skip_string(const char *text, size_t n, size_t at, size_t *end)
{
    for (at++; at < n && text[at] != '"'; at++) at += text[at] == '\\';
    *end = at < n ? at + 1 : n;
    return at < n ? ECH_JSON_WHOLE : ECH_JSON_CUT;
}

/* Brackets are counted, not matched. */
static ech_json_found skip_brackets(const char *text, size_t n, size_t at, size_t *end)
{
    size_t depth = 0;
    for (; at < n; at++) {
        char c = text[at];
        if (c == '"') {
            if (skip_string(text, n, at, end) != ECH_JSON_WHOLE) return ECH_JSON_CUT;
            at = *end - 1;
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (depth == 0) {
            *end = at + 1;
            return ECH_JSON_WHOLE;
        }
    }
    *end = n;
    return ECH_JSON_CUT;
}

ech_json_found ech_json_skip_value(const char *text, size_t n, size_t at, size_t *end)
{
    *end = at;
    if (at == n) return ECH_JSON_CUT;
    if (text[at] == '"') return skip_string(text, n, at, end);
    if (text[at] == '{' || text[at] == '[') return skip_brackets(text, n, at, end);
    size_t begin = at;
    while (at < n && !is_blank(text[at]) && !memchr(",:]}\"{[", text[at], 7)) at++;
    *end = at;
    if (at == begin) return ECH_JSON_NONE;
    return at < n ? ECH_JSON_WHOLE : ECH_JSON_CUT;
}

/* ---- strings ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The number of four digits; -1: there are not four. */
static int32_t unit_at(const char *at, const char *end)
{
    int32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        int digit = at + i < end ? hex_digit(at[i]) : -1;
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static void append_code(ech_text *out, uint32_t c)
{
    unsigned char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6) bytes[i] = (unsigned char)(0x80 | (c & 0x3f));
    bytes[0] = (unsigned char)(first[n] | c);
    ech_text_append_bytes(out, bytes, n);
}

/* The escape after "\u" at *at, two of them for a character beyond U+FFFF. */
static const char *decode_unit(const char **at, const char *end, ech_text *out)
{
    int32_t unit = unit_at(*at, end);
    if (unit < 0) return "\\u without four hexadecimal digits";
    *at += 4;
    if (unit >= 0xdc00 && unit < 0xe000) return "half of a surrogate pair";
    if (unit >= 0xd800 && unit < 0xdc00) {
        bool more = end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u';
        int32_t low = more ? unit_at(*at + 2, end) : -1;
        if (low < 0xdc00 || low >= 0xe000) return "half of a surrogate pair";
        *at += 6;
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    }
    append_code(out, (uint32_t)unit);
    return NULL;
}

static const char *decode_escapes(const char *at, const char *end, ech_text *out)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    while (at < end) {
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        if (!escape) escape = end;
        ech_text_append_bytes(out, at, (size_t)(escape - at));
        at = escape;
        if (at == end) break;
        const char *name = at + 1 < end ? memchr(names, at[1], strlen(names)) : NULL;
        bool unit = at + 1 < end && at[1] == 'u';
        at += 2;
        if (name) {
            ech_text_append_bytes(out, &meant[name - names], 1);
        } else {
            const char *why = unit ? decode_unit(&at, end, out) : "a \\ that begins no escape";
            if (why) return why;
        }
    }
    return NULL;
}

const char *ech_json_decode(const char *text, ech_json_span span, ech_text *room, const char **out,
                            size_t *out_n)
{
    const char *begin = text + span.at + 1;
    size_t n = span.n - 2;
    if (ech_utf8_valid(begin, n) < n) return "a string that is no UTF-8";
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)begin[i] < 0x20) return "a control character in a string";
    *out = begin;
    *out_n = n;
    if (!memchr(begin, '\\', n)) return NULL;
    room->n = 0;
    const char *why = decode_escapes(begin, begin + n, room);
    *out = room->at ? room->at : "";
    *out_n = room->n;
    return why;
}

/* ---- objects ---- */

/* The index of the key in keys; `count`: it is none of them. Keys with escapes are decoded. */
static size_t find_key(const char *text, ech_json_span key, const char *const *keys, size_t count)
{
    ECH_FREED_TEXT room = {0};
    const char *name = text + key.at + 1;
    size_t n = key.n - 2;
    if (memchr(name, '\\', n) && ech_json_decode(text, key, &room, &name, &n)) return count;
    for (size_t i = 0; i < count; i++)
        if (strlen(keys[i]) == n && memcmp(keys[i], name, n) == 0) return i;
    return count;
}

/* A key, its colon and its value; *at: where it begins and then ends. */
static const char *find_member(const char *text, size_t n, size_t *at, const char *const *keys,
                               size_t count, ech_json_span *span)
{
    ech_json_span key = {.at = *at};
    if (*at == n || text[*at] != '"') return "expected a key in quotes";
    if (skip_string(text, n, *at, at) != ECH_JSON_WHOLE) return "a string does not end";
    key.n = *at - key.at;
    *at = ech_json_skip_blanks(text, n, *at);
    if (*at == n || text[*at] != ':') return "a colon is due";
    *at = ech_json_skip_blanks(text, n, *at + 1);
    size_t value = *at, i = find_key(text, key, keys, count);
    ech_json_found found = ech_json_skip_value(text, n, value, at);
    if (found != ECH_JSON_WHOLE)
        return found == ECH_JSON_CUT ? "it ends too early" : "a value is due";
    if (i == count) return NULL;
    if (span[i].n > 0) {
        *at = key.at;
        return "a key comes twice";
    }
    span[i] = (ech_json_span){value, *at - value};
    return NULL;
}

const char *ech_json_find(const char *text, size_t n, size_t at, const char *const *keys,
                          size_t count, ech_json_span *span, size_t *end)
{
    for (size_t i = 0; i < count; i++) span[i] = (ech_json_span){0};
    *end = at;
    if (at == n || text[at] != '{') return "it must be an object";
    *end = ech_json_skip_blanks(text, n, at + 1);
    if (*end < n && text[*end] == '}') {
        (*end)++;
        return NULL;
    }
    for (;;) {
        const char *why = find_member(text, n, end, keys, count, span);
        if (why) return why;
        *end = ech_json_skip_blanks(text, n, *end);
        if (*end == n) return "it ends too early";
        char c = text[(*end)++];
        if (c == '}') return NULL;
        if (c != ',') {
            (*end)--;
            return "expected a comma or the end of the object";
        }
        *end = ech_json_skip_blanks(text, n, *end);
    }
}

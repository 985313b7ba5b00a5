/* SPDX-License-Identifier: Apache-2.0
 *
 * From ids to text. Over characters U+2581 becomes a blank, byte fallback tokens become bytes, and
 * the blank that encoding inserted before a text is removed.
 */
#include <stdlib.h>
#include <string.h>

#include "data/bpe/bpe.h"

static const ech_bpe_added *find_added(const ech_bpe *bpe, int32_t id)
{
    for (size_t i = 0; i < bpe->added.n; i++)
        if (bpe->added.at[i].id == id) return &bpe->added.at[i];
    return NULL;
}

void ech_bpe_decode(const ech_bpe *bpe, int32_t id, bool first, ech_text *out)
{
    const ech_bpe_token *token = &bpe->token.at[id];
    const ech_bpe_added *added = token->altered ? find_added(bpe, id) : NULL;
    const char *bytes = bpe->bytes.at + (added ? added->at : token->at);
    size_t n = added ? added->n : token->n, begin = out->n;
    if (n == 0 || token->silent) return;
    if (token->byte) {
        unsigned char byte =
            (unsigned char)strtoul((const char[]){bytes[3], bytes[4], 0}, NULL, 16);
        ech_text_append_bytes(out, &byte, 1);
    } else if (bpe->characters) {
        ech_bpe_replace(bytes, n, ECH_BPE_BLANK, " ", out);
    } else {
        ech_text_append_bytes(out, bytes, n);
    }
    if (!first || !bpe->strips || out->at[begin] != ' ') return;
    memmove(out->at + begin, out->at + begin + 1, out->n - begin); /* with the end */
    out->n--;
}

/* ---- bytes as visible characters and back: how vocabularies are written down ---- */

enum { FIRST_HIDDEN = 0x100, HIDDEN = 68 };

static bool is_visible(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
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
        unsigned c = from[i];
        for (unsigned h = 0; !is_visible(from[i]) && h < HIDDEN; h++)
            if (hidden_byte(h) == from[i]) c = FIRST_HIDDEN + h;
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

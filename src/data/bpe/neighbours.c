/* SPDX-License-Identifier: Apache-2.0
 *
 * Which symbols are adjacent in tokens. A merge across a boundary in a text makes a token with the
 * two symbols around it; so where no token has these, the text is split, so that words stay short.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/bpe/bpe.h"

enum { BLANK = 0x2581 };

void ech_bpe_replace(const char *text, size_t n, const char *from, const char *to, ech_text *out)
{
    size_t length = strlen(from);
    for (size_t at = 0; at < n;) {
        const char *found = memmem(text + at, n - at, from, length);
        size_t end = found ? (size_t)(found - text) : n;
        if (end > at) ech_text_append_bytes(out, text + at, end - at);
        if (found) ech_text_append_bytes(out, to, strlen(to));
        at = end + length;
    }
}

void ech_bpe_mark_blanks(const char *text, size_t n, ech_text *out)
{
    ech_bpe_replace(text, n, " ", ECH_BPE_BLANK, out);
}

size_t ech_bpe_symbol(const ech_bpe *bpe, const char *text, size_t n, uint32_t *symbol)
{
    *symbol = (unsigned char)text[0];
    if (!bpe->characters) return 1;
    size_t length = *symbol < 0x80 ? 1 : ech_utf8_next(text, n, symbol);
    if (*symbol == ' ') *symbol = BLANK;
    return length > 0 ? length : 1; /* of names alone: text is valid UTF-8 */
}

bool ech_bpe_are_neighbours(const ech_bpe *bpe, uint32_t left, uint32_t right)
{
    uint64_t key = ech_bpe_pair_key(left, right);
    return ech_bpe_table_get(&bpe->neighbours, key) != ECH_BPE_NO_VALUE;
}

static void put_all(ech_bpe *bpe, const char *text, size_t n)
{
    uint32_t left = 0, right;
    for (size_t at = 0, length; at < n; at += length) {
        length = ech_bpe_symbol(bpe, text + at, n - at, &right);
        if (at > 0) *ech_bpe_table_put(&bpe->neighbours, ech_bpe_pair_key(left, right)) = 1;
        left = right;
    }
}

void ech_bpe_find_neighbours(ech_bpe *bpe)
{
    if (bpe->pattern != ECH_BPE_whole) return;
    for (size_t i = 0; i < bpe->merge.n; i++) {
        const ech_bpe_token *made = &bpe->token.at[bpe->merge.at[i].made];
        put_all(bpe, bpe->bytes.at + made->at, made->n);
    }
    for (size_t i = 0; i < bpe->added.n; i++)
        put_all(bpe, bpe->bytes.at + bpe->added.at[i].at, bpe->added.at[i].n);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which symbols are adjacent in tokens. A merge across a boundary in a text makes a token with the two symbols around
 * it; so where no token has these, the text is split, so that words stay short.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/bpe/bpe.h"

enum { BLANK = 0x2581 };

void ech_bpe_mark_blanks(const char *text, size_t n, ech_text *out)
{
    for (size_t at = 0; at < n;) {
        const char *blank = memchr(text + at, ' ', n - at);
        size_t end = blank ? (size_t)(blank - text) : n;
        if (end > at) ech_text_append_bytes(out, text + at, end - at);
        if (blank) ech_text_append_bytes(out, ECH_BPE_BLANK, strlen(ECH_BPE_BLANK));
        at = end + 1;
    }
}

size_t ech_bpe_symbol(const ech_bpe *bpe, const char *text, size_t n, uint32_t *symbol)
{
    *symbol = (unsigned char)text[0];
    if (!bpe->characters) return 1;
    size_t length = *symbol < 0x80 ? 1 : ech_utf8_next(text, n, symbol);
    if (*symbol == ' ') *symbol = BLANK;
    return length > 0 ? length : 1; /* of names alone: text is valid UTF-8 */
}

/* ---- the set ---- */

static uint64_t key_of(uint32_t left, uint32_t right)
{
    return ((uint64_t)left << 32 | right) + 1;
}

/* Where a pair is, or the free slot where it would be. */
static size_t find_slot(const ech_bpe_neighbours *set, uint64_t key)
{
    size_t slot = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & (set->slots - 1);
    while (set->pair[slot] && set->pair[slot] != key) slot = (slot + 1) & (set->slots - 1);
    return slot;
}

static void make_room(ech_bpe_neighbours *set)
{
    if (2 * (set->n + 1) <= set->slots) return;
    ECH_FREED uint64_t *old = set->pair;
    size_t slots = set->slots;
    set->slots = slots ? 2 * slots : 1024;
    set->pair = ech_calloc(set->slots, sizeof *set->pair);
    for (size_t i = 0; i < slots; i++)
        if (old[i]) set->pair[find_slot(set, old[i])] = old[i];
}

static void put(ech_bpe_neighbours *set, uint64_t key)
{
    make_room(set);
    size_t slot = find_slot(set, key);
    set->n += set->pair[slot] == 0;
    set->pair[slot] = key;
}

bool ech_bpe_are_neighbours(const ech_bpe *bpe, uint32_t left, uint32_t right)
{
    const ech_bpe_neighbours *set = &bpe->neighbours;
    return set->slots > 0 && set->pair[find_slot(set, key_of(left, right))] != 0;
}

static void put_all(ech_bpe *bpe, const char *text, size_t n)
{
    uint32_t left = 0, right;
    for (size_t at = 0, length; at < n; at += length) {
        length = ech_bpe_symbol(bpe, text + at, n - at, &right);
        if (at > 0) put(&bpe->neighbours, key_of(left, right));
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

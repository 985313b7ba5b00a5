/* SPDX-License-Identifier: Apache-2.0
 *
 * BPE as it is defined: one merge at a time, of the lowest rank among all neighbours, the
 * leftmost of equals, found by looking through all merges. Quadratic, and plain to see.
 */
#ifndef ECH_TESTS_DATA_BPE_NAIVE_H
#define ECH_TESTS_DATA_BPE_NAIVE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/bpe/bpe.h"

/* Where a pair is in the list of merges; merge.n: nowhere. */
static inline size_t naive_rank(const ech_bpe *bpe, int32_t left, int32_t right)
{
    size_t rank = 0;
    while (rank < bpe->merge.n &&
           (bpe->merge.at[rank].left != left || bpe->merge.at[rank].right != right))
        rank++;
    return rank;
}

/* Over characters: those that are tokens, the bytes of the others. Returns how many ids there
 * are. */
static inline size_t naive_symbols(const ech_bpe *bpe, const unsigned char *word, size_t n,
                                   int32_t *ids)
{
    size_t count = 0;
    for (size_t i = 0, length; i < n; i += length) {
        for (length = 1; i + length < n && (word[i + length] & 0xc0) == 0x80;) length++;
        int32_t id = ech_bpe_find(bpe, word + i, length);
        if (id != ECH_BPE_NONE) ids[count++] = id;
        for (size_t b = 0; id == ECH_BPE_NONE && b < length; b++) {
            char name[8];
            snprintf(name, sizeof name, "<0x%02X>", (unsigned)word[i + b]);
            ids[count++] = ech_bpe_find(bpe, name, 6);
        }
    }
    return count;
}

/* `ids` has room for n. Returns how many there are. */
static inline size_t naive_merge(const ech_bpe *bpe, const unsigned char *word, size_t n,
                                 int32_t *ids)
{
    for (size_t i = 0; i < n && !bpe->characters; i++) ids[i] = ech_bpe_find(bpe, word + i, 1);
    if (bpe->characters) n = naive_symbols(bpe, word, n, ids);
    for (;;) {
        size_t best = bpe->merge.n, at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            size_t rank = naive_rank(bpe, ids[i], ids[i + 1]);
            if (rank >= best) continue;
            best = rank;
            at = i;
        }
        if (best == bpe->merge.n) return n;
        ids[at] = bpe->merge.at[best].made;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

/* A vocabulary of all bytes, id = byte, and <|endoftext|>. */
static inline ech_bpe *naive_bytes(ech_bpe_pattern pattern)
{
    ech_bpe *bpe = ech_bpe_create();
    bpe->file = "test";
    bpe->pattern = pattern;
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        ech_bpe_put(bpe, i, &byte, 1, true);
    }
    ech_bpe_put_end(bpe, 256);
    return bpe;
}

/* Over a few characters, with bytes for the others; <|endoftext|> is 256 here, too. */
static inline ech_bpe *naive_characters(void)
{
    static const char *const known[] = {"a", "b", "c",      "\u2581", "<",         "|",
                                        "1", ".", "\u00e9", "\u6771", "\U0001f642"};
    ech_bpe *bpe = ech_bpe_create();
    bpe->file = "test";
    bpe->characters = bpe->normal_blanks = true;
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        ech_bpe_put(bpe, i, name, 6, true);
    }
    ech_bpe_put_end(bpe, 256);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        ech_bpe_put(bpe, 257 + (int32_t)i, known[i], strlen(known[i]), true);
    return bpe;
}

/* One more merge of any two tokens, and its token if there is none of these bytes. A pair that
 * there is already is left out. */
static inline void naive_add(ech_bpe *bpe, uint32_t left, uint32_t right)
{
    size_t first = bpe->characters ? 257 : 0,
           n = bpe->token.n - first; /* no merge takes a byte's name */
    int32_t a = (int32_t)(first + left % n), b = (int32_t)(first + right % n);
    if (a == 256 || b == 256 || naive_rank(bpe, a, b) < bpe->merge.n) return;
    ech_bpe_put_merge(bpe, a, b, true);
}

#endif

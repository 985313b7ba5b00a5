/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens in text: of those that begin at the first possible byte, the longest.
 */
#include "data/bpe/bpe.h"

static uint64_t key_of(uint64_t node, char byte)
{
    return node << 8 | (unsigned char)byte;
}

bool ech_bpe_trie_put(ech_bpe_trie *trie, const char *bytes, size_t n, int32_t id)
{
    uint64_t node = 0;
    if (trie->id.n == 0) ECH_PUSH(trie->id, ECH_BPE_NONE);
    trie->begins[(unsigned char)bytes[0]] = true;
    for (size_t i = 0; i < n; i++) {
        uint64_t *child = ech_bpe_table_put(&trie->child, key_of(node, bytes[i]));
        if (*child == ECH_BPE_NO_VALUE) {
            *child = trie->id.n;
            ECH_PUSH(trie->id, ECH_BPE_NONE);
        }
        node = *child;
    }
    if (trie->id.at[node] != ECH_BPE_NONE) return false;
    trie->id.at[node] = id;
    return true;
}

/* Follows the text from `at` on: returns where no token goes on. *end: where the longest token
 * ends, 0: there is none. */
static size_t follow(const ech_bpe_trie *trie, const char *text, size_t n, size_t at, size_t *end,
                     int32_t *id)
{
    uint64_t node = 0;
    *end = 0;
    if (trie->id.n == 0 || !trie->begins[(unsigned char)text[at]]) return at;
    while (at < n &&
           (node = ech_bpe_table_get(&trie->child, key_of(node, text[at]))) != ECH_BPE_NO_VALUE) {
        at++;
        if (trie->id.at[node] == ECH_BPE_NONE) continue;
        *end = at;
        *id = trie->id.at[node];
    }
    return at;
}

bool ech_bpe_trie_find(const ech_bpe_trie *trie, const char *text, size_t n, size_t at,
                       size_t *begin, size_t *end, int32_t *id)
{
    for (*begin = at; trie->id.n > 0 && *begin < n; ++*begin) {
        follow(trie, text, n, *begin, end, id);
        if (*end > 0) return true;
    }
    return false;
}

bool ech_bpe_trie_reaches(const ech_bpe_trie *trie, const char *text, size_t at, size_t most)
{
    size_t end;
    int32_t id;
    for (size_t back = 1; back <= most && back <= at; back++)
        if (follow(trie, text, at, at - back, &end, &id) == at) return true;
    return false;
}

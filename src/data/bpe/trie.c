/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens in text: of those that begin at the first possible byte, the longest.
 */
#include "data/bpe/bpe.h"

static uint32_t find_child(const ech_bpe_trie *trie, uint32_t parent, unsigned char byte)
{
    uint32_t child = trie->node.at[parent].child;
    while (child && trie->node.at[child].byte != byte) child = trie->node.at[child].sibling;
    return child;
}

bool ech_bpe_trie_put(ech_bpe_trie *trie, const char *bytes, size_t n, int32_t id)
{
    uint32_t node = 0;
    if (trie->node.n == 0) ECH_PUSH(trie->node, (ech_bpe_trie_node){.id = ECH_BPE_NONE});
    trie->begins[(unsigned char)bytes[0]] = true;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        uint32_t child = find_child(trie, node, byte);
        if (!child) {
            child = (uint32_t)trie->node.n;
            ECH_PUSH(trie->node, (ech_bpe_trie_node){.id = ECH_BPE_NONE,
                                                     .sibling = trie->node.at[node].child,
                                                     .byte = byte});
            trie->node.at[node].child = child;
        }
        node = child;
    }
    if (trie->node.at[node].id != ECH_BPE_NONE) return false;
    trie->node.at[node].id = id;
    return true;
}

/* The longest token that begins here ends before the result; 0: none begins. */
static size_t longest(const ech_bpe_trie *trie, const char *text, size_t n, size_t at, int32_t *id)
{
    size_t end = 0;
    uint32_t node = 0;
    while (at < n && (node = find_child(trie, node, (unsigned char)text[at])) != 0) {
        at++;
        if (trie->node.at[node].id == ECH_BPE_NONE) continue;
        end = at;
        *id = trie->node.at[node].id;
    }
    return end;
}

bool ech_bpe_trie_find(const ech_bpe_trie *trie, const char *text, size_t n, size_t at,
                       size_t *begin, size_t *end, int32_t *id)
{
    if (trie->node.n == 0) return false;
    for (; at < n; at++) {
        if (!trie->begins[(unsigned char)text[at]]) continue;
        size_t stop = longest(trie, text, n, at, id);
        if (stop == 0) continue;
        *begin = at;
        *end = stop;
        return true;
    }
    return false;
}

bool ech_bpe_trie_reaches(const ech_bpe_trie *trie, const char *text, size_t at, size_t most)
{
    if (trie->node.n == 0) return false;
    for (size_t back = 1; back <= most && back <= at; back++) {
        uint32_t node = 0;
        size_t i = at - back;
        if (!trie->begins[(unsigned char)text[i]]) continue;
        while (i < at && (node = find_child(trie, node, (unsigned char)text[i])) != 0) i++;
        if (i == at) return true;
    }
    return false;
}

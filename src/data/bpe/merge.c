/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging a word into ids. Usual words are short: scanning all pairs after each merge is fastest.
 * Longer ones (a megabyte of one letter) use a heap of pairs, in n log n.
 */
#include <stdlib.h>

#include "data/bpe/bpe.h"
#include "data/bpe/heap.h"

enum { SHORT = 48 };
#define NO_RANK UINT32_MAX

/* A token of the word, in a list that merges unlink from. */
typedef struct symbol {
    int32_t id; /* ECH_BPE_NONE: merged into the one before */
    uint32_t previous, next;
} symbol;

struct ech_bpe_merger {
    const ech_bpe *bpe;
    ECH_LIST(int32_t) ids;
    ECH_LIST(symbol) symbol;
    ech_bpe_heap heap; /* pairs of neighbours that were there when they were entered */
};

ech_bpe_merger *ech_bpe_merger_create(const ech_bpe *bpe)
{
    ech_bpe_merger *merger = ech_calloc(1, sizeof *merger);
    merger->bpe = bpe;
    return merger;
}

void ech_bpe_merger_destroy(ech_bpe_merger *merger)
{
    if (!merger) return;
    free(merger->ids.at);
    free(merger->symbol.at);
    free(merger->heap.at);
    free(merger);
}

/* ---- short words ---- */

typedef struct pair {
    uint32_t rank;
    int32_t made;
} pair;

/* Of a pair that has no merge the rank is NO_RANK, the upper half of ECH_BPE_NO_VALUE. */
static pair look_up(const ech_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t found =
        ech_bpe_table_get(&bpe->pair, ech_bpe_pair_key((uint32_t)left, (uint32_t)right));
    return (pair){(uint32_t)(found >> 32), (int32_t)found};
}

/* pairs[i]: of ids[i] and ids[i + 1]. Returns how many ids are left. */
static size_t merge_short(const ech_bpe *bpe, int32_t *ids, size_t n)
{
    pair pairs[SHORT];
    for (size_t i = 0; i + 1 < n; i++) pairs[i] = look_up(bpe, ids[i], ids[i + 1]);
    for (;;) {
        size_t best = 0;
        uint32_t rank = NO_RANK;
        for (size_t i = 0; i + 1 < n; i++) {
            if (pairs[i].rank >= rank) continue;
            rank = pairs[i].rank;
            best = i;
        }
        if (rank == NO_RANK) return n;
        ids[best] = pairs[best].made;
        n--;
        for (size_t i = best + 1; i < n; i++) ids[i] = ids[i + 1];
        for (size_t i = best; i + 1 < n; i++) pairs[i] = pairs[i + 1];
        if (best + 1 < n) pairs[best] = look_up(bpe, ids[best], ids[best + 1]);
        if (best > 0) pairs[best - 1] = look_up(bpe, ids[best - 1], ids[best]);
    }
}

/* ---- long words ---- */

/* Enters the pair of symbol `at` and the next: by rank, then by place. */
static void enter(ech_bpe_merger *m, uint32_t at)
{
    const symbol *left = &m->symbol.at[at];
    if (left->next == UINT32_MAX) return;
    pair found = look_up(m->bpe, left->id, m->symbol.at[left->next].id);
    if (found.rank != NO_RANK) ech_bpe_heap_push(&m->heap, (ech_bpe_queued){found.rank, at});
}

/* What an entry makes. ECH_BPE_NONE: its tokens have been merged since; another pair at its place
 * has another rank. */
static int32_t made_by(const ech_bpe_merger *m, const ech_bpe_queued *entry)
{
    const symbol *left = &m->symbol.at[entry->what];
    if (left->id == ECH_BPE_NONE || left->next == UINT32_MAX) return ECH_BPE_NONE;
    pair found = look_up(m->bpe, left->id, m->symbol.at[left->next].id);
    return found.rank == entry->order ? found.made : ECH_BPE_NONE;
}

static void merge_at(ech_bpe_merger *m, uint32_t at, int32_t made)
{
    symbol *left = &m->symbol.at[at], *right = &m->symbol.at[left->next];
    left->id = made;
    right->id = ECH_BPE_NONE;
    left->next = right->next;
    if (left->next != UINT32_MAX) m->symbol.at[left->next].previous = at;
    if (left->previous != UINT32_MAX) enter(m, left->previous);
    enter(m, at);
}

static void merge_long(ech_bpe_merger *m)
{
    size_t n = m->ids.n;
    m->symbol.at = ech_grow(m->symbol.at, &m->symbol.capacity, n, sizeof *m->symbol.at);
    m->symbol.n = n;
    for (size_t i = 0; i < n; i++)
        m->symbol.at[i] = (symbol){m->ids.at[i], i > 0 ? (uint32_t)i - 1 : UINT32_MAX,
                                   i + 1 < n ? (uint32_t)i + 1 : UINT32_MAX};
    m->heap.n = m->ids.n = 0;
    for (size_t i = 0; i < n; i++) enter(m, (uint32_t)i);
    while (m->heap.n > 0) {
        ech_bpe_queued entry = ech_bpe_heap_pop(&m->heap);
        int32_t made = made_by(m, &entry);
        if (made != ECH_BPE_NONE) merge_at(m, (uint32_t)entry.what, made);
    }
    for (uint32_t i = 0; i != UINT32_MAX; i = m->symbol.at[i].next)
        ECH_PUSH(m->ids, m->symbol.at[i].id);
}

/* ---- words ---- */

/* A character that is no token is its bytes. */
static void put_symbols(ech_bpe_merger *m, const unsigned char *bytes, size_t n)
{
    uint32_t code;
    for (size_t at = 0, length; at < n; at += length) {
        length = ech_bpe_symbol(m->bpe, (const char *)bytes + at, n - at, &code);
        int32_t id = m->bpe->characters ? ech_bpe_find(m->bpe, bytes + at, length) : ECH_BPE_NONE;
        if (id != ECH_BPE_NONE) {
            ECH_PUSH(m->ids, id);
            continue;
        }
        for (size_t i = 0; i < length; i++) ECH_PUSH(m->ids, m->bpe->byte[bytes[at + i]]);
    }
}

ech_status ech_bpe_merger_run(ech_bpe_merger *m, const unsigned char *bytes, size_t n,
                              const int32_t **ids, size_t *count)
{
    if (n >= UINT32_MAX)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "a word of %zu bytes, and at most %u are tokenized in one piece; split the text",
                 n, UINT32_MAX);
    m->ids.n = 0;
    int32_t whole = m->bpe->ignore_merges ? ech_bpe_find(m->bpe, bytes, n) : ECH_BPE_NONE;
    if (whole != ECH_BPE_NONE) {
        ECH_PUSH(m->ids, whole);
    } else {
        put_symbols(m, bytes, n);
        if (m->ids.n <= SHORT)
            m->ids.n = merge_short(m->bpe, m->ids.at, m->ids.n);
        else
            merge_long(m);
    }
    *ids = m->ids.at;
    *count = m->ids.n;
    return ECH_OK;
}

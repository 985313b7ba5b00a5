/* SPDX-License-Identifier: Apache-2.0
 *
 * A word becomes ids. Words of people are short, and looking at all pairs again is fastest; what is
 * longer (a megabyte of one letter) goes through a heap of pairs, in n log n.
 */
#include <stdlib.h>

#include "data/bpe.h"

enum { SHORT = 48 };
#define NO_RANK INT32_MAX

/* A token of the word, in a list that merges unlink from. */
typedef struct symbol {
    int32_t id; /* ECH_BPE_NONE: merged into the one before */
    uint32_t previous, next;
} symbol;

/* A pair of neighbours that was there when it was entered. */
typedef struct candidate {
    int32_t rank, made;
    uint32_t at; /* of the left one */
} candidate;

struct ech_bpe_merger {
    const ech_bpe *bpe;
    ECH_LIST(int32_t) ids;
    ECH_LIST(symbol) symbol;
    ECH_LIST(candidate) heap;
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
    int32_t rank, made;
} pair;

static pair look_up(const ech_bpe *bpe, int32_t left, int32_t right)
{
    const ech_bpe_pair *found = ech_bpe_find_pair(bpe, left, right);
    return found ? (pair){found->rank, found->made} : (pair){NO_RANK, 0};
}

/* pairs[i]: of ids[i] and ids[i + 1]. Returns how many ids are left. */
static size_t merge_short(const ech_bpe *bpe, int32_t *ids, size_t n)
{
    pair pairs[SHORT];
    for (size_t i = 0; i + 1 < n; i++) pairs[i] = look_up(bpe, ids[i], ids[i + 1]);
    for (;;) {
        size_t best = 0;
        int32_t rank = NO_RANK;
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

static bool comes_before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(ech_bpe_merger *m, candidate entry)
{
    ECH_PUSH(m->heap, entry);
    candidate *heap = m->heap.at;
    size_t at = m->heap.n - 1;
    for (; at > 0 && comes_before(&entry, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = entry;
}

static candidate pop(ech_bpe_merger *m)
{
    candidate *heap = m->heap.at, first = heap[0], last = heap[--m->heap.n];
    size_t n = m->heap.n, at = 0;
    for (size_t child = 1; child < n; at = child, child = 2 * at + 1) {
        if (child + 1 < n && comes_before(&heap[child + 1], &heap[child])) child++;
        if (!comes_before(&heap[child], &last)) break;
        heap[at] = heap[child];
    }
    if (n > 0) heap[at] = last;
    return first;
}

/* Enters the pair of symbol `at` and the next. */
static void enter(ech_bpe_merger *m, uint32_t at)
{
    const symbol *left = &m->symbol.at[at];
    if (left->next == UINT32_MAX) return;
    pair found = look_up(m->bpe, left->id, m->symbol.at[left->next].id);
    if (found.rank != NO_RANK) push(m, (candidate){found.rank, found.made, at});
}

/* An entry is stale if its tokens have been merged since; another pair at its place has another rank. */
static bool is_stale(const ech_bpe_merger *m, const candidate *entry)
{
    const symbol *left = &m->symbol.at[entry->at];
    if (left->id == ECH_BPE_NONE || left->next == UINT32_MAX) return true;
    return look_up(m->bpe, left->id, m->symbol.at[left->next].id).rank != entry->rank;
}

static void merge_at(ech_bpe_merger *m, const candidate *entry)
{
    symbol *left = &m->symbol.at[entry->at], *right = &m->symbol.at[left->next];
    left->id = entry->made;
    right->id = ECH_BPE_NONE;
    left->next = right->next;
    if (left->next != UINT32_MAX) m->symbol.at[left->next].previous = entry->at;
    if (left->previous != UINT32_MAX) enter(m, left->previous);
    enter(m, entry->at);
}

static void merge_long(ech_bpe_merger *m, const unsigned char *bytes, size_t n)
{
    m->symbol.at = ech_grow(m->symbol.at, &m->symbol.capacity, n, sizeof *m->symbol.at);
    m->symbol.n = n;
    m->heap.n = m->ids.n = 0;
    for (size_t i = 0; i < n; i++)
        m->symbol.at[i] = (symbol){m->bpe->byte[bytes[i]], i > 0 ? (uint32_t)i - 1 : UINT32_MAX,
                                   i + 1 < n ? (uint32_t)i + 1 : UINT32_MAX};
    for (size_t i = 0; i < n; i++) enter(m, (uint32_t)i);
    while (m->heap.n > 0) {
        candidate entry = pop(m);
        if (!is_stale(m, &entry)) merge_at(m, &entry);
    }
    for (uint32_t i = 0; i != UINT32_MAX; i = m->symbol.at[i].next)
        ECH_PUSH(m->ids, m->symbol.at[i].id);
}

ech_status ech_bpe_merger_run(ech_bpe_merger *m, const unsigned char *bytes, size_t n,
                              const int32_t **ids, size_t *count)
{
    if (n >= UINT32_MAX)
        ECH_FAIL(ECH_EUNSUPPORTED, "a word of %zu bytes; below %u there is room", n, UINT32_MAX);
    m->ids.n = 0;
    if (m->bpe->ignore_merges) {
        int32_t whole = ech_bpe_find(m->bpe, bytes, n);
        if (whole != ECH_BPE_NONE) ECH_PUSH(m->ids, whole);
    }
    if (m->ids.n == 0 && n <= SHORT) {
        for (size_t i = 0; i < n; i++) ECH_PUSH(m->ids, m->bpe->byte[bytes[i]]);
        m->ids.n = merge_short(m->bpe, m->ids.at, n);
    } else if (m->ids.n == 0) {
        merge_long(m, bytes, n);
    }
    *ids = m->ids.at;
    *count = m->ids.n;
    return ECH_OK;
}

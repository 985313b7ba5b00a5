/* SPDX-License-Identifier: Apache-2.0
 *
 * The most frequent pair becomes a token, until there are enough. Each pair has a list of its words, so a merge
 * touches these alone. A heap orders pairs by count; counts that have fallen since they were pushed are corrected
 * when they are popped.
 */
#include <stdlib.h>

#include "data/bpe/heap.h"
#include "data/bpe/train.h"

/* A distinct word as tokens, a part of learner.ids. */
typedef struct word {
    size_t at, n;
    int64_t count;
} word;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    bool rises; /* by the merge under way */
    ECH_LIST(uint32_t) words;
} pair;

typedef struct learner {
    ech_bpe *bpe;
    ECH_LIST(word) word;
    ECH_LIST(int32_t) ids;
    ECH_LIST(pair) pair;
    uint32_t *slot; /* hash table: index + 1 of a pair; 0: free */
    size_t slots;
    ech_bpe_heap heap;
    ECH_LIST(uint32_t) risen; /* pairs */
} learner;

/* ---- pairs by their tokens ---- */

static size_t find_slot(const learner *l, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t mask = l->slots - 1, slot = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & mask;
    for (;; slot = (slot + 1) & mask) {
        if (l->slot[slot] == 0) return slot;
        const pair *have = &l->pair.at[l->slot[slot] - 1];
        if (have->left == left && have->right == right) return slot;
    }
}

static void make_room(learner *l)
{
    if (2 * (l->pair.n + 1) <= l->slots) return;
    free(l->slot);
    l->slots = l->slots ? 2 * l->slots : 1 << 16;
    l->slot = ech_calloc(l->slots, sizeof *l->slot);
    for (size_t i = 0; i < l->pair.n; i++)
        l->slot[find_slot(l, l->pair.at[i].left, l->pair.at[i].right)] = (uint32_t)i + 1;
}

static uint32_t pair_of(learner *l, int32_t left, int32_t right)
{
    make_room(l);
    size_t slot = find_slot(l, left, right);
    if (l->slot[slot] > 0) return l->slot[slot] - 1;
    ECH_PUSH(l->pair, (pair){.left = left, .right = right});
    l->slot[slot] = (uint32_t)l->pair.n;
    return (uint32_t)l->pair.n - 1;
}

static void change(learner *l, int32_t left, int32_t right, int64_t by, uint32_t in)
{
    uint32_t number = pair_of(l, left, right);
    pair *p = &l->pair.at[number];
    p->count += by;
    if (by < 0) return;
    if (p->words.n == 0 || p->words.at[p->words.n - 1] != in) ECH_PUSH(p->words, in);
    if (!p->rises) ECH_PUSH(l->risen, number);
    p->rises = true;
}

/* ---- the heap ---- */

/* The commonest first, of equals the pair with the lesser tokens. */
static void push(learner *l, uint32_t number)
{
    const pair *p = &l->pair.at[number];
    uint64_t tokens = (uint64_t)(uint32_t)p->left << 32 | (uint32_t)p->right;
    ech_bpe_heap_push(&l->heap, (ech_bpe_entry){-p->count, tokens});
}

static void push_risen(learner *l)
{
    for (size_t i = 0; i < l->risen.n; i++) {
        pair *p = &l->pair.at[l->risen.at[i]];
        p->rises = false;
        if (p->count > 0) push(l, l->risen.at[i]);
    }
    l->risen.n = 0;
}

/* The commonest pair that is left; false: none is. */
static bool pop_commonest(learner *l, uint32_t *out)
{
    while (l->heap.n > 0) {
        ech_bpe_entry top = ech_bpe_heap_pop(&l->heap);
        *out = l->slot[find_slot(l, (int32_t)(top.what >> 32), (int32_t)top.what)] - 1;
        int64_t count = l->pair.at[*out].count;
        if (count <= 0) continue;
        if (count == -top.order) return true;
        push(l, *out);
    }
    return false;
}

/* ---- merges ---- */

static void begin(learner *l, const ech_bpe_counter *counter)
{
    for (size_t i = 0; i < counter->word.n; i++) {
        const ech_bpe_counted *counted = &counter->word.at[i];
        const unsigned char *bytes = (const unsigned char *)counter->bytes.at + counted->at;
        if (counted->n < 2) continue;
        ECH_PUSH(l->word, (word){l->ids.n, counted->n, counted->count});
        for (size_t b = 0; b < counted->n; b++) ECH_PUSH(l->ids, l->bpe->byte[bytes[b]]);
        const int32_t *ids = l->ids.at + l->ids.n - counted->n;
        for (size_t b = 0; b + 1 < counted->n; b++)
            change(l, ids[b], ids[b + 1], counted->count, (uint32_t)l->word.n - 1);
    }
    push_risen(l);
}

/* From the left; the remaining ids close up. */
static void merge_word(learner *l, uint32_t number, int32_t left, int32_t right, int32_t made)
{
    word *w = &l->word.at[number];
    int32_t *ids = l->ids.at + w->at;
    size_t remaining = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (ids[i] != left || i + 1 == w->n || ids[i + 1] != right) {
            ids[remaining++] = ids[i];
            continue;
        }
        if (remaining > 0) {
            change(l, ids[remaining - 1], left, -w->count, number);
            change(l, ids[remaining - 1], made, w->count, number);
        }
        if (i + 2 < w->n) {
            change(l, right, ids[i + 2], -w->count, number);
            change(l, made, ids[i + 2], w->count, number);
        }
        ids[remaining++] = made;
        i++;
    }
    w->n = remaining;
}

static int32_t make_token(learner *l, const pair *p)
{
    ech_bpe *bpe = l->bpe;
    const ech_bpe_token *a = &bpe->token.at[p->left], *b = &bpe->token.at[p->right];
    ECH_FREED_TEXT both = {0};
    ech_text_append_bytes(&both, bpe->bytes.at + a->at, a->n);
    ech_text_append_bytes(&both, bpe->bytes.at + b->at, b->n);
    int32_t made = ech_bpe_find(bpe, both.at, both.n);
    if (made == ECH_BPE_NONE) {
        made = (int32_t)bpe->token.n;
        ech_bpe_put(bpe, made, both.at, both.n, true);
    }
    int32_t rank = (int32_t)bpe->merge.n;
    ECH_PUSH(bpe->merge, (ech_bpe_merge){p->left, p->right, made, rank});
    return made;
}

static void merge_pair(learner *l, uint32_t number)
{
    pair p = l->pair.at[number]; /* the list may move */
    int32_t made = make_token(l, &p);
    /* What is made is longer than its parts, so this pair comes in no new slot meanwhile. */
    for (size_t i = 0; i < p.words.n; i++) merge_word(l, p.words.at[i], p.left, p.right, made);
    free(p.words.at);
    l->pair.at[number] = (pair){.left = p.left, .right = p.right};
    push_risen(l);
}

static void end(learner *l)
{
    for (size_t i = 0; i < l->pair.n; i++) free(l->pair.at[i].words.at);
    free(l->pair.at);
    free(l->word.at);
    free(l->ids.at);
    free(l->slot);
    free(l->heap.at);
    free(l->risen.at);
}

void ech_bpe_learn(const ech_bpe_counter *counter, ech_bpe *bpe, int64_t wanted,
                   void (*progress)(int64_t done, int64_t all))
{
    learner l = {.bpe = bpe};
    uint32_t number;
    begin(&l, counter);
    while ((int64_t)bpe->token.n < wanted && pop_commonest(&l, &number)) {
        merge_pair(&l, number);
        if (progress) progress((int64_t)bpe->token.n, wanted);
    }
    end(&l);
}

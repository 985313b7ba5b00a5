/* SPDX-License-Identifier: Apache-2.0
 *
 * The most frequent pair becomes a token, until there are enough. Each pair has a list of its
 * words, so a merge touches these alone. A heap orders pairs by count; counts that have fallen
 * since they were pushed are corrected when they are popped.
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
    ech_bpe_table number; /* of pairs by their tokens: indices of `pair` */
    ech_bpe_heap heap;
    ECH_LIST(uint32_t) risen; /* pairs */
} learner;

static uint64_t key_of(const pair *p)
{
    return ech_bpe_pair_key((uint32_t)p->left, (uint32_t)p->right);
}

static uint32_t number_of(learner *l, pair p)
{
    uint64_t *number = ech_bpe_table_put(&l->number, key_of(&p));
    if (*number == ECH_BPE_NO_VALUE) {
        *number = l->pair.n;
        ECH_PUSH(l->pair, p);
    }
    return (uint32_t)*number;
}

static void change(learner *l, int32_t left, int32_t right, int64_t by, uint32_t in)
{
    uint32_t number = number_of(l, (pair){.left = left, .right = right});
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
    ech_bpe_heap_push(&l->heap, (ech_bpe_queued){-p->count, key_of(p)});
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
        ech_bpe_queued top = ech_bpe_heap_pop(&l->heap);
        *out = (uint32_t)ech_bpe_table_get(&l->number, top.what);
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

static void merge_pair(learner *l, uint32_t number)
{
    pair p = l->pair.at[number]; /* the list may move */
    ech_bpe_put_merge(l->bpe, p.left, p.right, true);
    int32_t made = l->bpe->merge.at[l->bpe->merge.n - 1].made;
    /* The merged token is longer than its parts, so no new slot gets this pair. */
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
    free(l->number.entry);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Words and how often they come: a hash table over one long text.
 */
#include <stdlib.h>
#include <string.h>

#include "data/bpe/train.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static size_t find_slot(const ech_bpe_counter *counter, const char *word, size_t n)
{
    size_t mask = counter->slots - 1, slot = (size_t)XXH3_64bits(word, n) & mask;
    for (;; slot = (slot + 1) & mask) {
        if (counter->slot[slot] == 0) return slot;
        const ech_bpe_counted *have = &counter->word.at[counter->slot[slot] - 1];
        if (have->n == n && memcmp(counter->bytes.at + have->at, word, n) == 0) return slot;
    }
}

static void make_room(ech_bpe_counter *counter)
{
    if (2 * (counter->word.n + 1) <= counter->slots) return;
    free(counter->slot);
    counter->slots = counter->slots ? 2 * counter->slots : 1 << 16;
    counter->slot = ech_calloc(counter->slots, sizeof *counter->slot);
    for (size_t i = 0; i < counter->word.n; i++) {
        const ech_bpe_counted *word = &counter->word.at[i];
        size_t slot = find_slot(counter, counter->bytes.at + word->at, word->n);
        counter->slot[slot] = (uint32_t)i + 1;
    }
}

void ech_bpe_counter_add(ech_bpe_counter *counter, const char *word, size_t n)
{
    make_room(counter);
    size_t slot = find_slot(counter, word, n);
    if (counter->slot[slot] > 0) {
        counter->word.at[counter->slot[slot] - 1].count++;
        return;
    }
    ECH_ASSERT(counter->word.n < UINT32_MAX - 1);
    ECH_PUSH(counter->word, (ech_bpe_counted){counter->bytes.n, n, 1});
    ech_text_append_bytes(&counter->bytes, word, n);
    counter->slot[slot] = (uint32_t)counter->word.n;
}

void ech_bpe_counter_free(ech_bpe_counter *counter)
{
    free(counter->word.at);
    free(counter->slot);
    ech_text_free(&counter->bytes);
    *counter = (ech_bpe_counter){0};
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: learning a byte-level BPE vocabulary. Words of all texts are counted; then, again and
 * again, the commonest pair of neighbours becomes a token; of equally common ones that of the lower
 * ids (as Hugging Face's BpeTrainer has it, whose ids these are).
 */
#ifndef ECH_DATA_BPE_TRAIN_H
#define ECH_DATA_BPE_TRAIN_H

#include "data/bpe/bpe.h"

/* Words and how often they come. */
typedef struct ech_bpe_counted {
    size_t at, n; /* in ech_bpe_counter.bytes */
    int64_t count;
} ech_bpe_counted;

typedef struct ech_bpe_counter {
    ECH_LIST(ech_bpe_counted) word;
    ech_text bytes;
    uint32_t *slot; /* hash table: index + 1 of a word; 0: free */
    size_t slots;
} ech_bpe_counter;

void ech_bpe_counter_add(ech_bpe_counter *counter, const char *word, size_t n);
void ech_bpe_counter_free(ech_bpe_counter *counter);

/* Adds tokens and merges to a vocabulary that has all bytes, until it has `wanted` tokens or no pair is
 * left. `progress` (optional) is called with tokens done. */
void ech_bpe_learn(const ech_bpe_counter *counter, ech_bpe *bpe, int64_t wanted,
                   void (*progress)(int64_t done, int64_t all));

#endif

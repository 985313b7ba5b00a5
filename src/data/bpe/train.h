/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: learning a byte-level BPE vocabulary. The words of all texts are counted; then,
 * repeatedly, the most frequent adjacent pair of tokens becomes a token; of equally frequent pairs
 * the one with the lower left id, then the lower right id. Ids are the same as with Hugging Face's
 * BpeTrainer.
 */
#ifndef ECH_DATA_BPE_TRAIN_H
#define ECH_DATA_BPE_TRAIN_H

#include "data/bpe/bpe.h"

/* A word and its frequency. */
typedef struct ech_bpe_counted {
    size_t at, n; /* in ech_bpe_counter.bytes */
    int64_t count;
} ech_bpe_counted;

typedef struct ech_bpe_counter {
    ECH_LIST(ech_bpe_counted) word; /* each once */
    ech_text bytes;                 /* of all words */
    ech_bpe_table index;            /* hash of a word's bytes: index in `word` */
} ech_bpe_counter;

/* Puts tokens and merges into a vocabulary that has all bytes (ech_bpe.byte too), until it has
 * `wanted` tokens or no pair occurs any more. progress: as in ech_bpe_trainer_finish. */
void ech_bpe_learn(const ech_bpe_counter *counter, ech_bpe *bpe, int64_t wanted,
                   void (*progress)(int64_t done, int64_t all));

#endif

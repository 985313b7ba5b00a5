/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data/bpe: a binary min-heap, the queue of merges. Encoding queues a word's pairs by
 * rank and place, learning queues pairs by the most frequent.
 */
#ifndef ECH_DATA_BPE_HEAP_H
#define ECH_DATA_BPE_HEAP_H

#include <stdint.h>

#include "base/memory.h"

typedef struct ech_bpe_queued {
    int64_t order; /* the entry with the smallest order comes first */
    uint64_t what; /* of equal orders the entry with the smallest what comes first */
} ech_bpe_queued;

typedef ECH_LIST(ech_bpe_queued) ech_bpe_heap; /* {0}: empty; released with free(heap.at) */

void ech_bpe_heap_push(ech_bpe_heap *heap, ech_bpe_queued entry);
/* Removes and returns the first entry of a heap that is not empty. */
ech_bpe_queued ech_bpe_heap_pop(ech_bpe_heap *heap);

#endif

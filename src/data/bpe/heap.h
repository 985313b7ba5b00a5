/* SPDX-License-Identifier: Apache-2.0
 *
 * For BPE alone: what is to be merged, in order. A binary heap; who enters something knows what its
 * numbers mean.
 */
#ifndef ECH_DATA_BPE_HEAP_H
#define ECH_DATA_BPE_HEAP_H

#include <stdint.h>

#include "base/memory.h"

typedef struct ech_bpe_entry {
    int64_t order; /* the least comes first */
    uint64_t what; /* and of those the least */
} ech_bpe_entry;

typedef ECH_LIST(ech_bpe_entry) ech_bpe_heap; /* {0}: empty; released with free(heap.at) */

void ech_bpe_heap_push(ech_bpe_heap *heap, ech_bpe_entry entry);
/* Takes the first out; there is one. */
ech_bpe_entry ech_bpe_heap_pop(ech_bpe_heap *heap);

#endif

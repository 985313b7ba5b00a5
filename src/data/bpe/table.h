/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data/bpe: an open hash table from 64-bit keys to 64-bit values.
 */
#ifndef ECH_DATA_BPE_TABLE_H
#define ECH_DATA_BPE_TABLE_H

#include <stdint.h>

#include "base/memory.h"

/* No value: of a key that was never put, and of one whose value was not set yet. */
#define ECH_BPE_NO_VALUE UINT64_MAX

typedef struct ech_bpe_entry {
    uint64_t key, value;
} ech_bpe_entry;

typedef struct ech_bpe_table {
    ech_bpe_entry *entry; /* {0} is an empty table; released with free(table.entry) */
    size_t n, slots;
} ech_bpe_table;

/* The entry of a key, or the free one where it would be. The table is not empty. */
static inline ech_bpe_entry *ech_bpe_table_find(const ech_bpe_table *table, uint64_t key)
{
    size_t mask = table->slots - 1, slot = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & mask;
    while (table->entry[slot].value != ECH_BPE_NO_VALUE && table->entry[slot].key != key)
        slot = (slot + 1) & mask;
    return &table->entry[slot];
}

static inline uint64_t ech_bpe_table_get(const ech_bpe_table *table, uint64_t key)
{
    return table->slots > 0 ? ech_bpe_table_find(table, key)->value : ECH_BPE_NO_VALUE;
}

/* The value of a key, to be set at once if it is ECH_BPE_NO_VALUE. */
uint64_t *ech_bpe_table_put(ech_bpe_table *table, uint64_t key);

/* The key of a pair of ids or characters. */
static inline uint64_t ech_bpe_pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

#endif

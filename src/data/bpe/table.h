/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data/bpe: a hash table with open addressing from 64-bit keys to 64-bit values; keys
 * are never removed.
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
    size_t n, slots;      /* keys; entries: a power of 2, or 0 if it is empty */
} ech_bpe_table;

/* The entry of a key, or the free one where it would be. slots must be above 0. */
static inline ech_bpe_entry *ech_bpe_table_find(const ech_bpe_table *table, uint64_t key)
{
    size_t mask = table->slots - 1, slot = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & mask;
    while (table->entry[slot].value != ECH_BPE_NO_VALUE && table->entry[slot].key != key)
        slot = (slot + 1) & mask;
    return &table->entry[slot];
}

/* The value of a key, or ECH_BPE_NO_VALUE. */
static inline uint64_t ech_bpe_table_get(const ech_bpe_table *table, uint64_t key)
{
    return table->slots > 0 ? ech_bpe_table_find(table, key)->value : ECH_BPE_NO_VALUE;
}

/* The value of a key, which is put if it is new: then the value is ECH_BPE_NO_VALUE, and must be
 * set immediately. */
uint64_t *ech_bpe_table_put(ech_bpe_table *table, uint64_t key);

/* The key of a pair of ids or characters. */
static inline uint64_t ech_bpe_pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash table with linear probing, at most half full.
 */
#include "data/bpe/table.h"

#include <stdlib.h>
#include <string.h>

static void double_slots(ech_bpe_table *table)
{
    ech_bpe_table old = *table;
    table->slots = old.slots ? 2 * old.slots : 1024;
    table->entry = ech_calloc(table->slots, sizeof *table->entry);
    memset(table->entry, 0xff, table->slots * sizeof *table->entry); /* ECH_BPE_NO_VALUE */
    for (size_t i = 0; i < old.slots; i++)
        if (old.entry[i].value != ECH_BPE_NO_VALUE)
            *ech_bpe_table_find(table, old.entry[i].key) = old.entry[i];
    free(old.entry);
}

uint64_t *ech_bpe_table_put(ech_bpe_table *table, uint64_t key)
{
    if (2 * (table->n + 1) > table->slots) double_slots(table);
    ech_bpe_entry *entry = ech_bpe_table_find(table, key);
    table->n += entry->value == ECH_BPE_NO_VALUE;
    entry->key = key;
    return &entry->value;
}

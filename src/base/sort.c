/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sort.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int *ech_sort_by_key(size_t n, const int *from, const int *key, int keys)
{
    int *sorted = ech_calloc(n + 1, sizeof *sorted);
    size_t *next = ech_calloc((size_t)keys + 1, sizeof *next);
    for (size_t i = 0; i < n; i++) next[key[i] + 1]++;
    for (int k = 0; k < keys; k++) next[k + 1] += next[k];
    for (size_t i = 0; i < n; i++) {
        int index = from ? from[i] : (int)i;
        sorted[next[key[index]]++] = index;
    }
    free(next);
    return sorted;
}

enum { DIGIT = 11, DIGITS = 1 << DIGIT }; /* bits: counts of a digit stay in the L1 cache */

/* Stable, by the digit that begins with that bit. */
static void sort_by_digit(size_t n, const int32_t *from, int32_t *to, int bit)
{
    uint32_t next[DIGITS + 1];
    memset(next, 0, sizeof next);
    for (size_t i = 0; i < n; i++) next[((uint32_t)from[i] >> bit) % DIGITS + 1]++;
    for (int d = 0; d < DIGITS; d++) next[d + 1] += next[d];
    for (size_t i = 0; i < n; i++) to[next[((uint32_t)from[i] >> bit) % DIGITS]++] = from[i];
}

size_t ech_sort_distinct(size_t n, int32_t *x, int32_t *room, int64_t limit)
{
    int32_t *sorted = x, *other = room;
    size_t distinct = 0;
    for (int bit = 0; (limit - 1) >> bit > 0; bit += DIGIT) {
        sort_by_digit(n, sorted, other, bit);
        int32_t *from = sorted;
        sorted = other;
        other = from;
    }
    for (size_t i = 0; i < n; i++) {
        bool is_new = i == 0 || sorted[i] != sorted[i - 1];
        x[distinct] = sorted[i];
        distinct += is_new;
    }
    return distinct;
}

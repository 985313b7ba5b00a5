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

/* A number above its index. */
static uint64_t pair_of(int32_t number, size_t index)
{
    return (uint64_t)(uint32_t)number << 32 | (uint32_t)index;
}

/* Stable, by the number's digit that begins with that bit. */
static void sort_by_digit(size_t n, const uint64_t *from, uint64_t *to, int bit)
{
    uint32_t next[DIGITS + 1];
    memset(next, 0, sizeof next);
    for (size_t i = 0; i < n; i++) next[(from[i] >> (32 + bit)) % DIGITS + 1]++;
    for (int d = 0; d < DIGITS; d++) next[d + 1] += next[d];
    for (size_t i = 0; i < n; i++) to[next[(from[i] >> (32 + bit)) % DIGITS]++] = from[i];
}

/* The pairs of numbers in [0, limit); the others get no place. */
static size_t take_pairs(size_t n, const int32_t *x, int64_t limit, int32_t *place, uint64_t *pair)
{
    size_t pairs = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_in = x[i] >= 0 && x[i] < limit;
        place[i] = -1;
        pair[pairs] = pair_of(x[i], i);
        pairs += is_in;
    }
    return pairs;
}

size_t ech_sort_distinct(size_t n, const int32_t *x, int64_t limit, int32_t *distinct,
                         int32_t *place, uint64_t *room)
{
    uint64_t *sorted = room, *other = room + n;
    size_t pairs = take_pairs(n, x, limit, place, sorted), found = 0;
    for (int bit = 0; (limit - 1) >> bit > 0; bit += DIGIT) {
        sort_by_digit(pairs, sorted, other, bit);
        uint64_t *from = sorted;
        sorted = other;
        other = from;
    }
    for (size_t i = 0; i < pairs; i++) {
        int32_t number = (int32_t)(sorted[i] >> 32);
        if (found == 0 || distinct[found - 1] != number) distinct[found++] = number;
        place[(uint32_t)sorted[i]] = (int32_t)found - 1;
    }
    return found;
}

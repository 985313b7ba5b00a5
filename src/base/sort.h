/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting by small integers, in linear time.
 */
#ifndef ECH_BASE_SORT_H
#define ECH_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

/* The indices 0 .. n - 1, sorted by key[index], where 0 <= key[index] < keys. Indices with equal
 * keys stay in the order of `from`, a permutation of 0 .. n - 1 (NULL: ascending). Release the
 * result with free(). */
int *ech_sort_by_key(size_t n, const int *from, const int *key, int keys);

/* Sorts the numbers in [0, limit) among n < 2^31 into `distinct`, ascending, each once. It needs
 * room for as many as there are, at most n. Returns how many. place[i]: the index of x[i] among
 * them; -1: x[i] is not in the range. `room`: 2 n elements. */
size_t ech_sort_distinct(size_t n, const int32_t *x, int64_t limit, int32_t *distinct,
                         int32_t *place, uint64_t *room);

#endif

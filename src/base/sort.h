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

/* Sorts n numbers, each in [0, limit), and removes duplicates. Returns the number that remain.
 * `room`: n more elements. */
size_t ech_sort_distinct(size_t n, int32_t *x, int32_t *room, int64_t limit);

#endif

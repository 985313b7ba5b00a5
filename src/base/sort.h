/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting by small whole numbers, in linear time.
 */
#ifndef ECH_BASE_SORT_H
#define ECH_BASE_SORT_H

#include <stddef.h>

/* Indices 0 .. n - 1 sorted by key[index], where 0 <= key < keys. Equal ones stay in the order of `from`, which holds
 * these indices, too (NULL: ascending). Released with free(). */
int *ech_sort_by_key(size_t n, const int *from, const int *key, int keys);

#endif

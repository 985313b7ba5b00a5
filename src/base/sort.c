/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sort.h"

#include <stdlib.h>

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

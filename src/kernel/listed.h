/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of a table's rows: row numbers in ascending order, each once, then -1 up to the list's end.
 * Private to src/kernel.
 */
#ifndef ECH_KERNEL_LISTED_H
#define ECH_KERNEL_LISTED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/inline.h"

/* The index of the first listed row >= `row`; the list's end if there is none. */
ECH_EVERYWHERE int64_t ech_listed_from(const int32_t *rows, int64_t places, int64_t row)
{
    int64_t first = 0, left = places;
    while (left > 0) {
        int64_t half = left / 2;
        bool before = (int64_t)(uint32_t)rows[first + half] < row;
        if (before) first += half + 1;
        left = before ? left - half - 1 : half;
    }
    return first;
}

/* Prefetch distance in rows: listed rows are in no cache. */
enum { ECH_LISTED_AHEAD = 32 };

/* The number of rows in the list. */
ECH_EVERYWHERE int64_t ech_listed(const int32_t *rows, int64_t places)
{
    return ech_listed_from(rows, places, (int64_t)1 << 31);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: bin packing by best-fit decreasing, as Ding et al. 2024 pack documents ("Fewer
 * Truncations Improve Language Modeling").
 */
#ifndef ECH_DATA_BEST_FIT_H
#define ECH_DATA_BEST_FIT_H

#include <stdint.h>

/* Packs n items of 1 .. capacity places each into bins of `capacity` places. Items are placed by
 * descending length, items of equal length in their order, each into the bin with the fewest free
 * places that suffice; of several such bins, the one that got its last item first. *bin: the bin of
 * each item; bins are numbered by their first item. Returns the number of bins. The time is O(n
 * log capacity). */
int64_t ech_best_fit(const int32_t *length, int64_t n, int32_t capacity, int64_t *bin);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a test's rows lie: whole samples, or shares of their tokens.
 */
#ifndef ECH_TESTS_KERNEL_PLACES_H
#define ECH_TESTS_KERNEL_PLACES_H

#include "kernel/kernel.h"

/* All T tokens of samples from `first_sample` on. */
static inline ech_rows rows_uncut(int64_t first_sample, int64_t T)
{
    return (ech_rows){.first_sample = first_sample, .whole = T, .tokens = T, .split = T};
}

/* n tokens at positions from `start` on, of T. */
static inline ech_rows rows_piece(int64_t first_sample, int64_t T, int64_t start, int64_t n)
{
    return (ech_rows){
        .first_sample = first_sample, .whole = T, .tokens = n, .split = n, .start = {start}};
}

/* n tokens at positions from `early` on, and m from `late` on. */
static inline ech_rows rows_pair(int64_t first_sample, int64_t T, int64_t early, int64_t n,
                                 int64_t late, int64_t m)
{
    return (ech_rows){.first_sample = first_sample,
                      .whole = T,
                      .tokens = n + m,
                      .split = n,
                      .start = {early, late}};
}

/* All H heads, queries and keys of the same rows. */
static inline ech_attention_place place_uncut(int64_t first_sample, int64_t T, int64_t H)
{
    ech_rows rows = rows_uncut(first_sample, T);
    return (ech_attention_place){.query = rows, .key = rows, .heads = H};
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a test's rows lie: whole samples, or parts of their tokens.
 */
#ifndef ECH_TESTS_KERNEL_PLACES_H
#define ECH_TESTS_KERNEL_PLACES_H

#include "base/memory.h"
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

/* `starts` of B samples of T tokens: documents of these lengths over and over, each sample
 * beginning with the next one. free() its data. */
static inline ech_tensor starts_of(int64_t B, int64_t T, const int64_t *lengths, int n)
{
    const int64_t shape[] = {B, T};
    int32_t *starts = ech_calloc((size_t)(B * T) + 1, sizeof *starts);
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0, begin = 0, document = b; t < T; t++) {
            if (t == begin + lengths[document % n]) {
                begin = t;
                document++;
            }
            starts[b * T + t] = (int32_t)begin;
        }
    return ech_tensor_view(starts, ECH_I32, 2, shape);
}

static const ech_attention_rule place_rule = {.scale = 0.3};

/* All H heads, queries and keys of the same rows. */
static inline ech_attention_shard place_uncut(int64_t first_sample, int64_t T, int64_t H)
{
    ech_rows rows = rows_uncut(first_sample, T);
    return (ech_attention_shard){.query = rows, .key = rows, .heads = H};
}

#endif

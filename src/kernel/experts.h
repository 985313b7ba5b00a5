/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers of rows by expert: P splits of Q rows each. counts (P,X) has the number of rows of expert
 * i in a split; these follow each other by expert from the split's first row. Rows after them are
 * neither read nor written.
 */
#ifndef ECH_KERNEL_EXPERTS_H
#define ECH_KERNEL_EXPERTS_H

#include <stdint.h>

#include "base/inline.h"
#include "base/random.h"

/* The number of rows of a split's first n experts. */
ECH_EVERYWHERE int64_t ech_rows_before(const int32_t *counts, int64_t X, int64_t split, int64_t n)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < n; i++) rows += counts[split * X + i];
    return rows;
}

/* How many of n rows that follow `before` other rows are among rows first .. first + rows. */
ECH_EVERYWHERE int64_t ech_rows_within(int64_t before, int64_t n, int64_t first, int64_t rows)
{
    int64_t begin = before > first ? before : first;
    int64_t end = before + n < first + rows ? before + n : first + rows;
    return end > begin ? end - begin : 0;
}

/* A choice's number in two words (kernel.def: dispatch_index). */
ECH_EVERYWHERE void ech_choice_put(int32_t *index, int64_t row, int64_t choice)
{
    index[2 * row] = (int32_t)(uint32_t)choice;
    index[2 * row + 1] = (int32_t)(choice >> 32);
}

ECH_EVERYWHERE int64_t ech_choice_get(const int32_t *index, int64_t row)
{
    return (int64_t)index[2 * row + 1] << 32 | (int64_t)(uint32_t)index[2 * row];
}

/* The factor by which jitter of strength p multiplies an element: uniform in (1 - p, 1 + p). */
ECH_EVERYWHERE double ech_jitter_factor(double p, uint32_t word)
{
    return 1 + p * (2 * ech_random_unit(word) - 1);
}

#endif

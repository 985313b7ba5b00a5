/* SPDX-License-Identifier: Apache-2.0
 *
 * Medians and quartiles.
 */
#include "app/median.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ech_quartile(ech_numbers *numbers, int quarters)
{
    if (numbers->n == 0) return 0;
    qsort(numbers->at, numbers->n, sizeof *numbers->at, by_value);
    return numbers->at[numbers->n * (size_t)quarters / 4];
}

double ech_median(ech_numbers *numbers)
{
    return ech_quartile(numbers, 2);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What is typical of numbers some of which are far off.
 */
#ifndef ECH_APP_MEDIAN_H
#define ECH_APP_MEDIAN_H

#include "base/memory.h"

typedef ECH_LIST(double) ech_numbers;

/* The number that so many quarters of them are below, the upper of two; 0 of none. Sorts the numbers, which
 * are finite. `quarters`: 0 to 3. */
double ech_quartile(ech_numbers *numbers, int quarters);
/* The middle one. */
double ech_median(ech_numbers *numbers);

#endif

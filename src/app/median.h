/* SPDX-License-Identifier: Apache-2.0
 *
 * What is typical of numbers some of which are far off.
 */
#ifndef ECH_APP_MEDIAN_H
#define ECH_APP_MEDIAN_H

#include "base/memory.h"

typedef ECH_LIST(double) ech_numbers;

/* The middle one, the upper of two; 0 of none. Sorts the numbers, which are finite. */
double ech_median(ech_numbers *numbers);

#endif

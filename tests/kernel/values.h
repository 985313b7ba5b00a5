/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers for kernel tests: the same on every machine and in every run.
 */
#ifndef ECH_TESTS_KERNEL_VALUES_H
#define ECH_TESTS_KERNEL_VALUES_H

#include <math.h>
#include <stdint.h>

#include "base/random.h"

/* Number i of series `series`, uniform in (low, high), with the 20 bits that fp32 holds exactly. */
static inline double value_at(uint32_t series, int64_t i, double low, double high)
{
    ech_random_key key = {.seed = 20240229, .step = 7, .stream = series};
    uint32_t word = ech_random_word(key, (uint64_t)i) >> 12;
    return (double)(float)(low + (high - low) * ((double)word + 0.5) * 0x1p-20);
}

/* The largest |x|, at least `floor`; NaN where one is. */
static inline double largest(int64_t n, const double *x, double floor)
{
    double max = floor;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) return x[i];
        max = fmax(max, fabs(x[i]));
    }
    return max;
}

#endif

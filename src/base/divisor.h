/* SPDX-License-Identifier: Apache-2.0
 *
 * Divisors of integers.
 */
#ifndef ECH_BASE_DIVISOR_H
#define ECH_BASE_DIVISOR_H

#include <stdint.h>

/* Greatest common divisor of a, b >= 0 (Euclid's algorithm). For 0 and n it is n. */
static inline int64_t ech_common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The largest divisor of n that is at most `most`. n, most > 0. */
static inline int64_t ech_largest_divisor(int64_t n, int64_t most)
{
    int64_t largest = 1;
    for (int64_t d = 1; d <= n / d; d++) {
        if (n % d) continue;
        if (d <= most && d > largest) largest = d;
        if (n / d <= most && n / d > largest) largest = n / d;
    }
    return largest;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Euclid's algorithm.
 */
#ifndef ECH_BASE_DIVISOR_H
#define ECH_BASE_DIVISOR_H

#include <stdint.h>

/* The greatest common divisor of two numbers, neither below 0; of 0 and a number, that number. */
static inline int64_t ech_common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif

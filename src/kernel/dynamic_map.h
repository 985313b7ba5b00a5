/* SPDX-License-Identifier: Apache-2.0
 *
 * The dynamic map of 8-bit optimizer states. Dettmers, Lewis, Shleifer and Zettlemoyer 2022,
 * arXiv:2110.02861, section 1.3, as in the authors' code: seven decades below 1, each with twice as
 * many values as the one below.
 */
#ifndef ECH_KERNEL_DYNAMIC_MAP_H
#define ECH_KERNEL_DYNAMIC_MAP_H

#include <stdbool.h>

enum { ECH_MAP_CODES = 256 };

/* A number in the middle of two values becomes the lower one. Kernels with fp32 arithmetic lower
 * each number by this fraction of its magnitude, which is more than their rounding errors. */
#define ECH_MAP_TIE 0x1p-20F

typedef struct ech_dynamic_map {
    /* ascending; signed map: from about -1 to 1; unsigned map: from 0 to 1 */
    float value[ECH_MAP_CODES];
    float middle[ECH_MAP_CODES +
                 1]; /* between value[i - 1] and value[i]; the first -infinity, the last infinity */
} ech_dynamic_map;

/* The map for numbers from -1 to 1, or from 0 to 1. Static. */
const ech_dynamic_map *ech_dynamic_map_of(bool is_signed);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The dynamic map of 8-bit optimizer states. Dettmers, Lewis, Shleifer and Zettlemoyer 2022, arXiv:2110.02861,
 * section 1.3, as in the authors' code: seven decades below 1, each with twice as many values as the one below.
 */
#ifndef ECH_KERNEL_DYNAMIC_MAP_H
#define ECH_KERNEL_DYNAMIC_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    ECH_MAP_CODES = 256,
    /* Buckets of the magnitude |x| <= 1 by its leading bits as fp32: an exponent from 2^-25 on, 7 bits of fraction. */
    ECH_MAP_SHIFT = 16,
    ECH_MAP_FIRST = (127 - 25) << 7,
    ECH_MAP_BUCKETS = (127 << 7) + 1 - ECH_MAP_FIRST
};

typedef struct ech_dynamic_map {
    float value
        [ECH_MAP_CODES]; /* ascending; of the signed map from about -1, of the other from 0, to 1 */
    float middle[ECH_MAP_CODES +
                 1]; /* between value[i - 1] and value[i]; the first -infinity, the last infinity */
    int32_t zero;    /* the code of 0 */
    /* The nearest code of the bucket's least magnitude, and of minus that: no bucket has more than two codes. */
    int32_t positive[ECH_MAP_BUCKETS], negative[ECH_MAP_BUCKETS];
} ech_dynamic_map;

/* The map of numbers from -1 to 1, or of those from 0 to 1. Static. */
const ech_dynamic_map *ech_dynamic_map_of(bool is_signed);

static inline int32_t ech_map_bucket(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t bucket = (int32_t)((bits & 0x7fffffffu) >> ECH_MAP_SHIFT) - ECH_MAP_FIRST;
    return bucket < 0 ? 0 : bucket > ECH_MAP_BUCKETS - 1 ? ECH_MAP_BUCKETS - 1 : bucket;
}

/* The code of the nearest value; -1 <= x <= 1, or 0 <= x <= 1 of the map without signs. NaN: some code. */
static inline int32_t ech_map_code(const ech_dynamic_map *map, float x)
{
    int32_t bucket = ech_map_bucket(x);
    int32_t up = map->positive[bucket], down = map->negative[bucket];
    up += x >= map->middle[up + 1];
    down -= x < map->middle[down];
    return x < 0 ? down : up;
}

#endif

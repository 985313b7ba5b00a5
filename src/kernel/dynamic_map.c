/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of the dynamic maps.
 */
#include "kernel/dynamic_map.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { DECADES = 7 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ech_dynamic_map maps[2];

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Decade i has the middles of equal parts of [0.1, 1], times 10^(i - 6): 2^i of them, and as many
 * negative ones in the signed map, otherwise twice as many. In addition there are 0 and 1. */
static void fill_values(ech_dynamic_map *map, bool is_signed)
{
    int n = 0;
    for (int i = 0; i < DECADES; i++) {
        int parts = 1 << (is_signed ? i : i + 1);
        for (int k = 0; k < parts; k++) {
            float value = (float)(pow(10, i - DECADES + 1) * (0.1 + 0.9 * (k + 0.5) / parts));
            map->value[n++] = value;
            if (is_signed) map->value[n++] = -value;
        }
    }
    map->value[n++] = 0;
    map->value[n++] = 1;
    qsort(map->value, (size_t)n, sizeof *map->value, by_size);
}

/* The middles are the next floats: some middles are fractions like 5/32, which are exactly the
 * ratio of two gradients that are a few units of rounding noise. Then the last bit of the clip
 * factor, which a layout may change, would decide. */
static void fill(ech_dynamic_map *map, bool is_signed)
{
    fill_values(map, is_signed);
    map->middle[0] = -INFINITY;
    map->middle[ECH_MAP_CODES] = INFINITY;
    for (int i = 1; i < ECH_MAP_CODES; i++)
        map->middle[i] = nextafterf(0.5F * (map->value[i - 1] + map->value[i]), INFINITY);
}

static void fill_both(void)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) fill(&maps[is_signed], is_signed == 1);
}

const ech_dynamic_map *ech_dynamic_map_of(bool is_signed)
{
    pthread_once(&once, fill_both);
    return &maps[is_signed];
}

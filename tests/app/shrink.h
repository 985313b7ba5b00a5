/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a failing case of a lattice (cover.h) small: as long as it still fails, one factor after
 * the other is set to a lower level, of which 0 is the simplest.
 */
#ifndef ECH_TESTS_APP_SHRINK_H
#define ECH_TESTS_APP_SHRINK_H

#include "app/cover.h"

typedef struct shrinker {
    int factors;
    bool (*feasible)(const cover_case *);
    bool (*fails)(void *context, const cover_case *);
    void *context;
    int tries; /* out: how often `fails` was asked */
} shrinker;

/* The factor at the lowest level at which the case can be and still fails. Returns whether it
 * moved. */
static inline bool shrink_factor(shrinker *s, cover_case *x, int factor)
{
    for (int level = 0; level < x->level[factor]; level++) {
        cover_case y = *x;
        y.level[factor] = level;
        if (!s->feasible(&y)) continue;
        s->tries++;
        if (!s->fails(s->context, &y)) continue;
        *x = y;
        return true;
    }
    return false;
}

/* Of a case that fails: one that fails, too, and no longer does with any one factor at a lower
 * level. */
static inline cover_case shrink(shrinker *s, cover_case x)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int f = 0; f < s->factors; f++) moved |= shrink_factor(s, &x, f);
    }
    return x;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite runs in several builds, which share out the cases of tests that have many:
 * ECHELON_SHARE=0/4 runs the first of four shares and 1-3/4 the others, so that each case runs in
 * one of two builds. Without it all cases run. The share of a case is a random number that depends
 * only on its index, so it is always the same, and no share has every second level of an axis.
 */
#ifndef ECH_TESTS_SHARE_H
#define ECH_TESTS_SHARE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"

/* This run's shares: first .. last of so many. */
typedef struct share_range {
    unsigned first, last, of;
} share_range;

static inline share_range share_read(void)
{
    const char *text = getenv("ECHELON_SHARE");
    share_range r = {.of = 1};
    if (text && sscanf(text, "%u-%u/%u", &r.first, &r.last, &r.of) != 3) {
        r.of = 0;
        if (sscanf(text, "%u/%u", &r.first, &r.of) == 2) r.last = r.first;
    }
    if (r.first > r.last || r.last >= r.of) {
        fprintf(stderr, "ECHELON_SHARE=%s: wanted I/N or I-J/N with I up to J below N\n", text);
        exit(1);
    }
    return r;
}

/* Whether the next case is one of this run's. */
static inline bool share_takes(void)
{
    static uint64_t next;
    share_range r = share_read();
    unsigned share = ech_random_word((ech_random_key){.seed = 41}, next++) % r.of;
    return share >= r.first && share <= r.last;
}

/* Whether case i of n is, where n is small: the first share takes one at least. */
static inline bool share_takes_of(size_t i, size_t n)
{
    static uint64_t tables, chosen, next;
    share_range r = share_read();
    if (i == 0) chosen = ech_random_word((ech_random_key){.seed = 43}, tables++) % n;
    unsigned share = ech_random_word((ech_random_key){.seed = 44}, next++) % r.of;
    if (i == chosen) share = 0;
    return share >= r.first && share <= r.last;
}

#endif

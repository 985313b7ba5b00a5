/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite runs in several builds. Tests of many cases share them out: ECHELON_SHARE=0/4 takes the first of four
 * shares, 1-3/4 the others, so that each case runs in one of two builds. Without it all cases run.
 * Who falls into which share is drawn by counter: never every second level of some axis, and always the same.
 */
#ifndef ECH_TESTS_SHARE_H
#define ECH_TESTS_SHARE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"

/* Whether the next case is one of this run's. */
static inline bool share_takes(void)
{
    static uint64_t next;
    const char *text = getenv("ECHELON_SHARE");
    unsigned first = 0, last = 0, of = 1;
    if (text && sscanf(text, "%u-%u/%u", &first, &last, &of) != 3) {
        of = 0;
        if (sscanf(text, "%u/%u", &first, &of) == 2) last = first;
    }
    if (first > last || last >= of) {
        fprintf(stderr, "ECHELON_SHARE=%s: wanted I/N or I-J/N with I up to J below N\n", text);
        exit(1);
    }
    unsigned share = ech_random_word((ech_random_key){.seed = 41}, next++) % of;
    return share >= first && share <= last;
}

#endif

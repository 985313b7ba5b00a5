/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite runs in several builds. Tests of many cases share them out: ECHELON_SHARE=1/3 takes the second of three
 * shares, so that each case runs in one of three builds that are given 0/3, 1/3 and 2/3. Without it all cases run.
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
    unsigned own = 0, of = 1;
    if (text && (sscanf(text, "%u/%u", &own, &of) != 2 || own >= of)) {
        fprintf(stderr, "ECHELON_SHARE=%s: wanted I/N with I below N\n", text);
        exit(1);
    }
    return ech_random_word((ech_random_key){.seed = 41}, next++) % of == own;
}

#endif

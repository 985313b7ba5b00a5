/* SPDX-License-Identifier: Apache-2.0
 *
 * A cover of a lattice: cases drawn from a few factors with a few levels each, so that every pair of
 * levels of two factors that can occur together does occur in some case. Drawn by counter, so always
 * the same cases. Mistakes that need three factors at once are mostly met by the chance of many cases.
 */
#ifndef ECH_TESTS_APP_COVER_H
#define ECH_TESTS_APP_COVER_H

#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"

enum { COVER_FACTORS = 15, COVER_LEVELS = 8, COVER_DRAWS = 20000, COVER_CANDIDATES = 100 };

typedef struct cover_case {
    int level[COVER_FACTORS];
} cover_case;

/* A pair of levels of two factors. */
typedef struct cover_pair {
    int a, level_a, b, level_b;
} cover_pair;

typedef struct cover {
    int factors;
    const int *levels;                    /* [factors] how many */
    bool (*feasible)(const cover_case *); /* whether such a run may be asked for */
    uint64_t drawn;
    bool possible[COVER_FACTORS][COVER_LEVELS][COVER_FACTORS][COVER_LEVELS];
    bool met[COVER_FACTORS][COVER_LEVELS][COVER_FACTORS][COVER_LEVELS];
    ECH_LIST(cover_case) cases;
} cover;

static inline void cover_draw(cover *c, cover_case *out)
{
    ech_random_key key = {.seed = 17};
    for (int f = 0; f < c->factors; f++)
        out->level[f] = (int)(ech_random_word(key, c->drawn++) % (uint32_t)c->levels[f]);
}

/* A feasible case; with `pair`, one that has it. */
static inline void cover_draw_feasible(cover *c, const cover_pair *pair, cover_case *out)
{
    do {
        cover_draw(c, out);
        if (!pair) continue;
        out->level[pair->a] = pair->level_a;
        out->level[pair->b] = pair->level_b;
    } while (!c->feasible(out));
}

/* Marks the case's pairs in `table`; returns how many are new. NULL: in c->met, counting only. */
static inline int cover_mark(cover *c, const cover_case *x,
                             bool (*table)[COVER_LEVELS][COVER_FACTORS][COVER_LEVELS])
{
    int fresh = 0;
    for (int a = 0; a < c->factors; a++)
        for (int b = a + 1; b < c->factors; b++) {
            bool *pair = &(table ? table : c->met)[a][x->level[a]][b][x->level[b]];
            fresh += !*pair;
            if (table) *pair = true;
        }
    return fresh;
}

/* A pair that can occur and has not. */
static inline bool cover_find_missing(const cover *c, cover_pair *out)
{
    for (int a = 0; a < c->factors; a++)
        for (int b = a + 1; b < c->factors; b++)
            for (int i = 0; i < c->levels[a]; i++)
                for (int j = 0; j < c->levels[b]; j++)
                    if (c->possible[a][i][b][j] && !c->met[a][i][b][j]) {
                        *out = (cover_pair){a, i, b, j};
                        return true;
                    }
    return false;
}

/* Until every pair that can occur has occurred, and there are `at_least` cases: of many candidates
 * the one with most new pairs. */
static inline void cover_fill(cover *c, size_t at_least)
{
    cover_case x, best = {{0}};
    cover_pair missing;
    for (int i = 0; i < COVER_DRAWS; i++) {
        cover_draw_feasible(c, NULL, &x);
        cover_mark(c, &x, c->possible);
    }
    for (bool some = true; some || c->cases.n < at_least;) {
        int most = -1;
        some = cover_find_missing(c, &missing);
        for (int i = 0; i < COVER_CANDIDATES && (some || i == 0); i++) {
            cover_draw_feasible(c, some ? &missing : NULL, &x);
            int fresh = cover_mark(c, &x, NULL);
            if (fresh <= most) continue;
            most = fresh;
            best = x;
        }
        if (!some && c->cases.n >= at_least) break;
        cover_mark(c, &best, c->met);
        ECH_PUSH(c->cases, best);
    }
}

/* Released with cover_free. */
static inline cover *cover_make(int factors, const int *levels,
                                bool (*feasible)(const cover_case *), size_t at_least)
{
    cover *c = ech_calloc(1, sizeof *c);
    c->factors = factors;
    c->levels = levels;
    c->feasible = feasible;
    cover_fill(c, at_least);
    return c;
}

static inline void cover_free(cover *c)
{
    free(c->cases.at);
    free(c);
}

#endif

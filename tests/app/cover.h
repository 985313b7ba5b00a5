/* SPDX-License-Identifier: Apache-2.0
 *
 * A cover of a lattice: cases drawn from a few factors with a few levels each, so that every two
 * features that can occur together do occur in some case. A feature is a level of a factor or
 * several of them, perhaps with another factor, without which it does nothing, above its first
 * level. Drawn by counter, so always the same cases. Mistakes that need three factors at once are
 * mostly met by the chance of many cases.
 */
#ifndef ECH_TESTS_APP_COVER_H
#define ECH_TESTS_APP_COVER_H

#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"

enum {
    COVER_FACTORS = 32,
    COVER_FEATURES = 160,
    COVER_DRAWS = 500,    /* feasible cases that show what can occur */
    COVER_TRIES = 1000,   /* for two features that none of those has */
    COVER_PLAIN = 200,    /* and more with nothing else */
    COVER_CANDIDATES = 6, /* at least, of which the one with most that is new becomes a case */
};

typedef struct cover_case {
    int level[COVER_FACTORS];
} cover_case;

typedef struct cover_feature {
    int factor, low, high; /* its levels low .. high */
    int needs;             /* a factor that is not at its first level; -1: none */
} cover_feature;

typedef int cover_pairs[COVER_FEATURES][COVER_FEATURES]; /* [a][b], a < b: in how many cases */

typedef struct cover {
    int factors, features;
    const int *dear;   /* factors whose higher levels take long; ends with -1 */
    int strict;        /* the first of the factors: higher levels of these make cases infeasible */
    const int *levels; /* [factors] how many */
    const cover_feature *feature;
    bool (*feasible)(const cover_case *); /* whether such a run may be asked for */
    /* Whether no case has both, known without a draw; NULL: of none is that known. */
    bool (*refused)(const cover_feature *, const cover_feature *);
    uint64_t drawn;
    cover_pairs possible, met;
    ECH_LIST(cover_case)
    seen; /* all feasible cases that were drawn: to draw is what takes the time */
    ECH_LIST(cover_case) cases;
} cover;

static inline bool cover_has(const cover_case *x, const cover_feature *f)
{
    return x->level[f->factor] >= f->low && x->level[f->factor] <= f->high &&
           (f->needs < 0 || x->level[f->needs] > 0);
}

static inline int cover_number(cover *c, int below)
{
    return (int)(ech_random_word((ech_random_key){.seed = 17}, c->drawn++) % (uint32_t)below);
}

static inline void cover_turn_on(cover *c, const cover_feature *f, cover_case *out)
{
    out->level[f->factor] = f->low + cover_number(c, f->high - f->low + 1);
    if (f->needs >= 0 && out->level[f->needs] == 0)
        out->level[f->needs] = 1 + cover_number(c, c->levels[f->needs] - 1);
}

/* Lowers one of the first `factors`, if that is possible; with `a` and `b`, so that both stay
 * on. */
static inline bool cover_lower(cover *c, int factors, const cover_feature *a,
                               const cover_feature *b, cover_case *x)
{
    int first = cover_number(c, factors);
    for (int i = 0; i < factors; i++) {
        int f = (first + i) % factors;
        cover_case y = *x;
        if (x->level[f] == 0) continue;
        y.level[f] = cover_number(c, x->level[f]);
        if (a && !(cover_has(&y, a) && cover_has(&y, b))) continue;
        *x = y;
        return true;
    }
    return false;
}

/* A feasible case, of whose factors those from `drawn` on are at their first level unless a feature
 * says otherwise; with `a`, one that has both features. False: none is found from a random one
 * downwards. Every other way down lowers any factor, for two features that few others go with. */
static inline bool cover_draw_of(cover *c, int drawn, const cover_feature *a,
                                 const cover_feature *b, cover_case *out)
{
    *out = (cover_case){{0}};
    for (int f = 0; f < drawn; f++) out->level[f] = cover_number(c, c->levels[f]);
    if (a) cover_turn_on(c, a, out);
    if (b) cover_turn_on(c, b, out);
    if (a && !(cover_has(out, a) && cover_has(out, b))) return false;
    int lowered = a && c->drawn % 2 ? c->factors : c->strict;
    while (!c->feasible(out))
        if (!cover_lower(c, lowered, a, b, out)) return false;
    ECH_PUSH(c->seen, *out);
    return true;
}

static inline bool cover_draw(cover *c, const cover_feature *a, const cover_feature *b,
                              cover_case *out)
{
    return cover_draw_of(c, c->factors, a, b, out);
}

/* Adds `times` to each of the case's pairs; returns how many of them no other case has. */
static inline int cover_mark(cover *c, const cover_case *x, cover_pairs *table, int times)
{
    int on[COVER_FEATURES], n = 0, alone = 0;
    for (int f = 0; f < c->features; f++)
        if (cover_has(x, &c->feature[f])) on[n++] = f;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            int *pair = &(*table)[on[i]][on[j]];
            alone += *pair == 0;
            *pair += times;
        }
    return alone;
}

/* Draws until a case has both features, or all tries are used; the last of these without all that
 * may be left out. */
static inline bool cover_try(cover *c, const cover_feature *a, const cover_feature *b)
{
    cover_case x;
    int tries = COVER_TRIES + (c->strict < c->factors ? COVER_PLAIN : 0);
    for (int i = 0; i < tries; i++)
        if (cover_draw_of(c, i < COVER_TRIES ? c->factors : c->strict, a, b, &x)) {
            cover_mark(c, &x, &c->possible, 1);
            return true;
        }
    return false;
}

static inline bool cover_has_case_with(const cover *c, const cover_feature *f)
{
    for (size_t i = 0; i < c->cases.n; i++)
        if (cover_has(&c->cases.at[i], f)) return true;
    return false;
}

/* What can occur: what is in the cases that there are, or as many draws show, and some more with
 * two features that these do not show. What never occurs alone is not looked for with others. */
static inline void cover_find_possible(cover *c)
{
    cover_case x;
    bool alone[COVER_FEATURES];
    for (int i = 0; i < COVER_DRAWS && c->cases.n == 0; i++)
        if (cover_draw(c, NULL, NULL, &x)) cover_mark(c, &x, &c->possible, 1);
    for (int a = 0; a < c->features; a++)
        alone[a] =
            cover_has_case_with(c, &c->feature[a]) || cover_try(c, &c->feature[a], &c->feature[a]);
    for (int a = 0; a < c->features; a++)
        for (int b = a + 1; b < c->features; b++) {
            if (c->possible[a][b] || !alone[a] || !alone[b]) continue;
            if (c->refused && c->refused(&c->feature[a], &c->feature[b])) continue;
            cover_try(c, &c->feature[a], &c->feature[b]);
        }
}

/* The next two features that can occur together and have not; a < 0: none. */
static inline void cover_find_missing(const cover *c, int *a, int *b)
{
    for (*a = 0; *a < c->features; ++*a)
        for (*b = *a + 1; *b < c->features; ++*b)
            if (c->possible[*a][*b] && !c->met[*a][*b]) return;
    *a = -1;
}

static inline void cover_add(cover *c, const cover_case *x)
{
    cover_mark(c, x, &c->met, 1);
    cover_mark(c, x, &c->possible, 1);
    ECH_PUSH(c->cases, *x);
}

/* The case with both features that has most that is new, of all that were drawn. */
static inline void cover_add_best(cover *c, const cover_feature *a, const cover_feature *b)
{
    cover_case x, best = {{0}};
    int candidates = 0, most = -1;
    for (size_t i = 0; i < c->seen.n || candidates < COVER_CANDIDATES; i++) {
        while (i == c->seen.n) cover_draw(c, a, b, &x);
        x = c->seen.at[i];
        if (!cover_has(&x, a) || !cover_has(&x, b)) continue;
        int fresh = cover_mark(c, &x, &c->met, 0);
        candidates++;
        if (fresh <= most) continue;
        most = fresh;
        best = x;
    }
    cover_add(c, &best);
}

/* Lowers dear factors where other cases have all that the case alone would not have then. */
static inline void cover_save(cover *c, cover_case *x)
{
    for (const int *dear = c->dear; *dear >= 0; dear++) {
        cover_case cheap = *x;
        cheap.level[*dear] = 0;
        if (x->level[*dear] == 0 || !c->feasible(&cheap)) continue;
        cover_mark(c, x, &c->met, -1);
        cover_mark(c, &cheap, &c->met, 1);
        if (cover_mark(c, x, &c->met, 0) == 0) {
            *x = cheap;
        } else {
            cover_mark(c, &cheap, &c->met, -1);
            cover_mark(c, x, &c->met, 1);
        }
    }
}

/* Without cases: cover_add adds those that there are. Released with cover_free. */
static inline cover *cover_begin(const cover *kind)
{
    cover *c = ech_calloc(1, sizeof *c);
    *c = *kind;
    return c;
}

/* Adds cases until every two features that can occur together have, and there are `at_least`. */
static inline void cover_complete(cover *c, size_t at_least)
{
    size_t first = c->cases.n;
    cover_find_possible(c);
    for (int a = 0, b; a >= 0;) {
        cover_find_missing(c, &a, &b);
        if (a >= 0) cover_add_best(c, &c->feature[a], &c->feature[b]);
    }
    for (cover_case x; c->cases.n < at_least;)
        if (cover_draw(c, NULL, NULL, &x)) cover_add(c, &x);
    for (size_t i = first; i < c->cases.n; i++) cover_save(c, &c->cases.at[i]);
}

/* Both. Released with cover_free. */
static inline cover *cover_make(const cover *kind, size_t at_least)
{
    cover *c = cover_begin(kind);
    cover_complete(c, at_least);
    return c;
}

/* The same where each level of each factor is a feature, and any of the factors may make a case
 * infeasible. */
static inline cover *cover_make_of_levels(int factors, const int *levels,
                                          bool (*feasible)(const cover_case *), size_t at_least)
{
    static const int dear[] = {-1};
    cover_feature feature[COVER_FEATURES];
    cover kind = {.factors = factors,
                  .strict = factors,
                  .dear = dear,
                  .levels = levels,
                  .feature = feature,
                  .feasible = feasible};
    for (int f = 0; f < factors; f++)
        for (int level = 0; level < levels[f]; level++) {
            ECH_ASSERT(kind.features < COVER_FEATURES);
            feature[kind.features++] = (cover_feature){f, level, level, -1};
        }
    cover *c = cover_make(&kind, at_least);
    c->feature = NULL;
    return c;
}

static inline void cover_free(cover *c)
{
    free(c->seen.at);
    free(c->cases.at);
    free(c);
}

#endif

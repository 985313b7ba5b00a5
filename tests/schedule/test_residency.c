/* SPDX-License-Identifier: Apache-2.0
 *
 * Residency: the stays of known sequences, and of random ones against the definition, use by use.
 */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "schedule/residency.h"
#include "unit.h"

enum { MOST_USES = 60, MOST_RESOURCES = 8 };

typedef struct uses {
    ech_use at[MOST_USES];
    int n, resources;
} uses;

/* Resources by their letters; a capital makes it. */
static uses read_uses(const char *text)
{
    uses u = {0};
    for (; *text; text++) {
        bool makes = *text >= 'A' && *text <= 'Z';
        int resource = *text - (makes ? 'A' : 'a');
        u.at[u.n++] = (ech_use){.resource = resource, .makes = makes};
        if (resource >= u.resources) u.resources = resource + 1;
    }
    return u;
}

static ech_stay_list stays_of(const uses *u, int prefetch)
{
    ech_stay_list stays = {0};
    ech_residency(u->at, (size_t)u->n, u->resources, prefetch, &stays);
    return stays;
}

static void expect(const char *text, int prefetch, const ech_stay *wanted, size_t n)
{
    uses u = read_uses(text);
    ech_stay_list stays = stays_of(&u, prefetch);
    assert_int_equal(stays.n, n);
    for (size_t i = 0; i < n; i++) {
        const ech_stay *a = &stays.at[i], *b = &wanted[i];
        assert_int_equal(a->resource, b->resource);
        assert_int_equal(a->first, b->first);
        assert_int_equal(a->last, b->last);
        assert_int_equal(a->brought, b->brought);
        assert_int_equal(a->written, b->written);
        assert_int_equal(a->returns, b->returns);
        assert_int_equal(a->room_after, b->room_after);
        assert_int_equal(a->gone_before, b->gone_before);
        assert_int_equal(a->takes, b->takes);
    }
    free(stays.at);
}

/* Weights: forwards of three blocks, backwards of these. The last one's stay for its backward. */
TEST(weights_of_a_step)
{
    static const ech_stay none_ahead[] = {
        {0, 0, 0, true, false, true, -1, 1, -1}, {1, 1, 1, true, false, true, 0, 2, 0},
        {2, 2, 3, true, false, false, 1, 4, 1},  {1, 4, 4, true, false, false, 3, 5, 2},
        {0, 5, 5, true, false, false, 4, -1, 3},
    };
    static const ech_stay one_ahead[] = {
        {0, 0, 0, true, false, true, -1, 2, -1}, {1, 1, 1, true, false, true, -1, 3, -1},
        {2, 2, 3, true, false, false, 0, 5, 0},  {1, 4, 4, true, false, false, 2, -1, 1},
        {0, 5, 5, true, false, false, 3, -1, 2},
    };
    static const ech_stay two_ahead[] = {
        {0, 0, 0, true, false, true, -1, 3, -1},
        {1, 1, 4, true, false, false, -1, -1, -1},
        {2, 2, 3, true, false, false, -1, -1, -1},
        {0, 5, 5, true, false, false, 2, -1, 0},
    };
    expect("abccba", 0, none_ahead, 5);
    expect("abccba", 1, one_ahead, 5);
    expect("abccba", 2, two_ahead, 4);
}

/* Kept values: a forward makes one, and the second forward after it waits until it is offloaded. */
TEST(kept_values_of_a_step)
{
    static const ech_stay wanted[] = {
        {0, 0, 0, false, true, true, -1, 2, -1}, {1, 1, 1, false, true, true, -1, 3, -1},
        {2, 2, 2, false, true, true, 0, 4, 0},   {3, 3, 4, false, true, false, 1, 6, 1},
        {2, 5, 5, true, false, false, 3, 7, 2},  {1, 6, 6, true, false, false, 4, -1, 3},
        {0, 7, 7, true, false, false, 5, -1, 4},
    };
    expect("ABCDdcba", 1, wanted, 7);
}

/* Whether the resource is there, or may be on its way, while use k is under way. */
static bool is_there(const uses *u, int resource, int k, int prefetch)
{
    for (int i = k; i < u->n && i <= k + prefetch; i++)
        if (u->at[i].resource == resource) return true;
    return false;
}

/* A stay is a longest run of uses during which its resource is there. */
static void compare_with_definition(const uses *u, int prefetch)
{
    ech_stay_list stays = stays_of(u, prefetch);
    size_t found = 0;
    int before = -1, at_first = 0;
    bool taken[MOST_USES] = {false};
    for (int r = 0; r < u->resources; r++)
        for (int k = 0; k < u->n; k++)
            found += is_there(u, r, k, prefetch) && (k == 0 || !is_there(u, r, k - 1, prefetch));
    assert_int_equal(stays.n, found);
    for (size_t s = 0; s < stays.n; s++) {
        const ech_stay *stay = &stays.at[s];
        int r = stay->resource, begin = stay->room_after + 1;
        for (int k = begin; k <= stay->last; k++) assert_true(is_there(u, r, k, prefetch));
        assert_true(begin == 0 || !is_there(u, r, begin - 1, prefetch));
        assert_false(is_there(u, r, stay->last + 1, prefetch));
        assert_true(u->at[stay->first].resource == r && u->at[stay->last].resource == r);
        for (int k = begin; k < stay->first; k++) assert_int_not_equal(u->at[k].resource, r);
        assert_true(stay->first > before); /* so they can be brought one after the other */
        before = stay->first;
        bool again = false, written = false;
        for (int k = stay->last + 1; k < u->n; k++) again |= u->at[k].resource == r;
        for (int k = stay->first; k <= stay->last; k++)
            written |= u->at[k].resource == r && (u->at[k].makes || u->at[k].writes);
        assert_int_equal(stay->written, written);
        assert_int_equal(stay->returns, again);
        assert_int_equal(stay->brought, !u->at[stay->first].makes);
        at_first += stay->takes < 0;
        if (stay->takes < 0) continue;
        assert_true(stays.at[stay->takes].last <= stay->room_after && !taken[stay->takes]);
        taken[stay->takes] = true;
    }
    assert_true(at_first <= 1 + prefetch);
    for (int k = 0; k < u->n; k++) {
        int there = 0;
        for (size_t s = 0; s < stays.n; s++)
            there += stays.at[s].room_after < k && stays.at[s].last >= k;
        assert_in_range(there, 1, 1 + prefetch);
    }
    free(stays.at);
}

TEST(random_uses)
{
    ech_random_key key = {.seed = 18};
    uint64_t word = 0;
    for (int trial = 0; trial < 2000; trial++) {
        uses u = {0};
        u.n = 1 + (int)(ech_random_word(key, word++) % MOST_USES);
        u.resources = 1 + (int)(ech_random_word(key, word++) % MOST_RESOURCES);
        bool seen[MOST_RESOURCES] = {false};
        for (int i = 0; i < u.n; i++) {
            uint32_t drawn = (uint32_t)ech_random_word(key, word++);
            int r = (int)(drawn % (unsigned)u.resources);
            u.at[i] = (ech_use){.resource = r,
                                .makes = !seen[r] && drawn >> 30 == 0,
                                .writes = (drawn >> 28 & 3) == 0};
            seen[r] = true;
        }
        compare_with_definition(&u, trial % 5);
    }
}

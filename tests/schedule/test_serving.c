/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a server serves next: pushes in the order in which they come, but for those that would take their worker too far ahead; whatever
 * that order is, each push of a span is served once, somebody always may be, and clocks stay within the bound.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "schedule/serving.h"

enum { WORKERS = 5, TURNS = 9, TRIALS = 200 };

static ech_serving begin(int64_t staleness, ech_pool *pool)
{
    ech_schedule schedule = {.turns = TURNS, .staleness = staleness};
    ech_layout layout = {.world = WORKERS + 2, .servers = 2};
    return ech_serving_begin(&schedule, &layout, pool);
}

static int spread(const ech_serving *serving)
{
    int least = TURNS, most = 0;
    for (int w = 0; w < WORKERS; w++) {
        if (serving->clock[w] < least) least = serving->clock[w];
        if (serving->clock[w] > most) most = serving->clock[w];
    }
    return most - least;
}

/* Workers push at random times, some seldom. */
static void run_span(ech_serving *serving, ech_random_key key, int *widest)
{
    int served = 0;
    for (uint64_t i = 0; served < WORKERS * TURNS; i++) {
        uint64_t word = ech_random_word(key, i);
        int w = (int)(word % WORKERS);
        bool rests = w == 0 && word / WORKERS % 8; /* the slow one */
        if (!rests && !serving->came[w] && serving->clock[w] < TURNS) ech_serving_come(serving, w);
        int next = ech_serving_next(serving);
        if (next < 0) continue;
        assert_true(serving->came[next] > 0 && ech_serving_may(serving, next));
        ech_serving_take(serving, next);
        served++;
        assert_true(spread(serving) <= serving->staleness);
        if (spread(serving) > *widest) *widest = spread(serving);
    }
    for (int w = 0; w < WORKERS; w++)
        assert_true(serving->clock[w] == TURNS && !serving->came[w] &&
                    !ech_serving_may(serving, w));
}

static void each_push_is_served_once_within_the_bound(void **state)
{
    (void)state;
    for (int staleness = 1; staleness <= 7; staleness += 2) {
        ech_pool *pool = ech_pool_create();
        ech_serving serving = begin(staleness, pool);
        int widest = 0;
        for (int trial = 0; trial < TRIALS; trial++) {
            run_span(&serving, (ech_random_key){.seed = (uint64_t)trial}, &widest);
            ech_serving_reset(&serving);
        }
        assert_int_equal(widest, staleness); /* it is used up to its end */
        ech_pool_destroy(pool);
    }
}

static void the_first_that_came_is_next(void **state)
{
    (void)state;
    ech_pool *pool = ech_pool_create();
    ech_serving serving = begin(1, pool);
    assert_int_equal(ech_serving_next(&serving), -1);
    ech_serving_come(&serving, 3);
    assert_int_equal(ech_serving_next(&serving), 3);
    ech_serving_take(&serving, 3);
    ech_serving_come(&serving, 3); /* a second, before others' first */
    assert_int_equal(ech_serving_next(&serving), -1);
    for (int w = 4; w >= 0; w--) {
        if (w != 3) ech_serving_come(&serving, w);
    }
    static const int order[] = {4, 2, 1, 0,
                                3}; /* 3 has been waiting, until all others have moved */
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(ech_serving_next(&serving), order[i]);
        ech_serving_take(&serving, order[i]);
    }
    ech_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_push_is_served_once_within_the_bound),
        cmocka_unit_test(the_first_that_came_is_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

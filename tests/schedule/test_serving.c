/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a server serves next: pushes in the order in which they come, but for those that would take their worker too far ahead; whatever
 * that order is, all pushes of a span are served, somebody always may be, and nobody gets further ahead than the bound. Without one
 * workers share them out by their speed.
 */
#include <limits.h>
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
    int least = INT_MAX, most = 0;
    for (int w = 0; w < WORKERS; w++) {
        if (serving->done[w] < least) least = serving->done[w];
        if (serving->done[w] > most) most = serving->done[w];
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
        if (!rests && !serving->came[w] && !serving->ended[w]) ech_serving_come(serving, w);
        int next = ech_serving_next(serving);
        if (next < 0) continue;
        assert_true(serving->came[next] > 0 && ech_serving_may(serving, next));
        bool more = ech_serving_take(serving, next);
        assert_true(more == !serving->ended[next]);
        served++;
        assert_true(spread(serving) <= serving->staleness);
        if (spread(serving) > *widest) *widest = spread(serving);
    }
    for (int w = 0; w < WORKERS; w++)
        assert_true(serving->ended[w] && !serving->came[w] && !ech_serving_may(serving, w));
}

static void bounded_workers_have_as_many(void **state)
{
    (void)state;
    for (int staleness = 1; staleness <= 7; staleness += 2) {
        ech_pool *pool = ech_pool_create();
        ech_serving serving = begin(staleness, pool);
        int widest = 0;
        assert_int_equal(serving.most, TURNS);
        for (int trial = 0; trial < TRIALS; trial++) {
            run_span(&serving, (ech_random_key){.seed = (uint64_t)trial}, &widest);
            for (int w = 0; w < WORKERS; w++) assert_int_equal(serving.done[w], TURNS);
            ech_serving_reset(&serving);
        }
        assert_int_equal(widest, staleness); /* it is used up to its end */
        ech_pool_destroy(pool);
    }
}

/* Each has one at least; a worker that is alone takes all but those that others have begun. */
static void others_share_out_a_span(void **state)
{
    (void)state;
    ech_pool *pool = ech_pool_create();
    ech_serving serving = begin(INT64_MAX, pool);
    int widest = 0, all = 0, sum = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        run_span(&serving, (ech_random_key){.seed = (uint64_t)trial}, &widest);
        for (int w = sum = 0; w < WORKERS; w++) {
            assert_true(serving.done[w] >= 1 && serving.done[w] <= serving.most);
            sum += serving.done[w];
        }
        assert_int_equal(sum, WORKERS * TURNS);
        assert_true(serving.done[0] < TURNS); /* the slow one */
        ech_serving_reset(&serving);
    }
    for (bool more = true; more; all++) {
        ech_serving_come(&serving, 2);
        assert_int_equal(ech_serving_next(&serving), 2);
        more = ech_serving_take(&serving, 2);
    }
    assert_int_equal(all, serving.most);
    assert_int_equal(all, WORKERS * TURNS - (WORKERS - 1));
    ech_pool_destroy(pool);
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
    for (int w = 4; w >= 0; w--)
        if (w != 3) ech_serving_come(&serving, w);
    static const int order[] = {4, 2, 1, 0, 3}; /* 3 waits until all others have moved */
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(ech_serving_next(&serving), order[i]);
        ech_serving_take(&serving, order[i]);
    }
    ech_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounded_workers_have_as_many),
        cmocka_unit_test(others_share_out_a_span),
        cmocka_unit_test(the_first_that_came_is_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

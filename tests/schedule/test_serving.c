/* SPDX-License-Identifier: Apache-2.0
 *
 * A server serves pushes in the order in which they come, except those that would take their worker
 * too far ahead. For any order of arrival all pushes of a span are served, some push always may be
 * served, and no worker gets further ahead than the bound. Without a bound, a worker's share of the
 * pushes depends on its speed.
 */
#include <limits.h>

#include "base/random.h"
#include "schedule/protocol/serving.h"
#include "unit.h"

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
        bool more = ech_serving_take(serving, next).more;
        assert_true(more == !serving->ended[next]);
        served++;
        assert_true(spread(serving) <= serving->staleness);
        if (spread(serving) > *widest) *widest = spread(serving);
    }
    for (int w = 0; w < WORKERS; w++)
        assert_true(serving->ended[w] && !serving->came[w] && !ech_serving_may(serving, w));
}

TEST(bounded_workers_have_as_many)
{
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
TEST(others_share_out_a_span)
{
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
        more = ech_serving_take(&serving, 2).more;
    }
    assert_int_equal(all, serving.most);
    assert_int_equal(all, WORKERS * TURNS - (WORKERS - 1));
    ech_pool_destroy(pool);
}

TEST(the_first_that_came_is_next)
{
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

/* ---- workers that die ---- */

/* Worker 2 dies at some time of the first of two spans. What is served of it is written down as
 * dropped from then on, one push a span where workers share them out; the others get on with the
 * span. */
static void run_with_a_loss(ech_serving *serving, ech_random_key key, bool each)
{
    enum { SPANS = 2, LOST = 2 };
    uint64_t i = 0, dies = ech_random_word(key, 0) % (WORKERS * TURNS);
    for (int span = 0; span < SPANS; span++, ech_serving_reset(serving)) {
        int served = 0, dropped = 0;
        for (; served < WORKERS * TURNS; i++) {
            int w = (int)(ech_random_word(key, i) % WORKERS);
            if (i == dies) ech_serving_lose(serving, LOST);
            bool comes = !serving->came[w] && !serving->ended[w] && !serving->lost[w];
            if (comes) ech_serving_come(serving, w);
            int next = ech_serving_next(serving);
            if (next < 0) continue;
            ech_served s = ech_serving_take(serving, next);
            assert_int_equal(s.dropped, serving->lost[next]);
            assert_int_equal(s.updates, !s.dropped);
            dropped += s.dropped;
            served++;
        }
        if (!each) assert_true(span == 0 ? dropped <= 1 : dropped == 1);
        if (each) assert_true(span == 0 ? dropped <= TURNS : dropped == TURNS);
        assert_true(ech_serving_next(serving) < 0);
    }
}

TEST(others_go_on_without_who_has_died)
{
    for (int each = 0; each < 2; each++)
        for (int trial = 0; trial < TRIALS; trial++) {
            ech_pool *pool = ech_pool_create();
            ech_serving serving = begin(each ? 2 : INT64_MAX, pool);
            run_with_a_loss(&serving, (ech_random_key){.seed = (uint64_t)trial}, each);
            ech_pool_destroy(pool);
        }
}

/* ---- backup workers ---- */

enum { BACKUPS = 2, SUMMANDS = WORKERS - BACKUPS };

/* A span so far. */
typedef struct span {
    ech_served served[WORKERS * TURNS];
    int turn, now;                         /* the clock that is summed */
    int pushed[WORKERS], answers[WORKERS]; /* to its pushes */
    int used[TURNS], skipped;
} span;

/* A push is answered once: by its update, or at once where it is dropped. */
static void check_answers(span *s)
{
    const ech_served *served = &s->served[s->turn];
    int workers[WORKERS], n = ech_served_answered(s->served, s->turn, workers);
    assert_int_equal(n, ech_served_answered(s->served, s->turn, NULL));
    assert_int_equal(n, served->dropped ? 1 : served->updates ? SUMMANDS : 0);
    assert_true(!served->dropped || workers[0] == served->worker);
    for (int i = 0; i < n; i++) s->answers[workers[i]]++;
}

static void check_served(span *s)
{
    const ech_served *served = &s->served[s->turn];
    assert_true(served->clock == s->pushed[served->worker] - 1 && served->clock <= s->now);
    assert_int_equal(served->dropped, served->clock < s->now);
    assert_int_equal(served->first, !served->dropped && s->used[s->now] == 0);
    s->used[served->clock] += !served->dropped;
    assert_int_equal(served->updates, !served->dropped && s->used[s->now] == SUMMANDS);
    s->now += served->updates;
    assert_int_equal(served->next, served->dropped ? s->now : served->clock + 1);
    s->skipped += served->next - served->clock - 1;
    if (served->updates)
        assert_int_equal(ech_served_update(s->served, s->turn + 1, s->now - 1), s->turn);
}

/* Workers push when their push before is answered, at random times. */
static void run_sums(ech_serving *serving, ech_random_key key, span *s)
{
    for (uint64_t i = 0; s->turn < WORKERS * TURNS; i++) {
        uint64_t word = ech_random_word(key, i);
        int w = (int)(word % WORKERS);
        bool rests = w == 0 && word / WORKERS % 8; /* the slow one */
        if (!rests && s->pushed[w] == s->answers[w] && s->pushed[w] < TURNS) {
            ech_serving_come(serving, w);
            s->pushed[w]++;
        }
        int next = ech_serving_next(serving);
        if (next < 0) continue;
        s->served[s->turn] = ech_serving_take(serving, next);
        assert_int_equal(s->served[s->turn].worker, next);
        check_served(s);
        check_answers(s);
        s->turn++;
    }
}

TEST(first_ones_update_and_the_others_are_dropped)
{
    ech_pool *pool = ech_pool_create();
    ech_schedule schedule = {.turns = TURNS, .staleness = INT64_MAX, .backups = BACKUPS};
    ech_layout layout = {.world = WORKERS + 2, .servers = 2};
    ech_serving serving = ech_serving_begin(&schedule, &layout, pool);
    int skipped = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        span s = {0};
        run_sums(&serving, (ech_random_key){.seed = (uint64_t)trial}, &s);
        for (int t = 0; t < TURNS; t++) assert_int_equal(s.used[t], SUMMANDS);
        for (int w = 0; w < WORKERS; w++) assert_int_equal(s.answers[w], TURNS);
        assert_int_equal(ech_served_update(s.served, s.turn, TURNS), -1);
        skipped += s.skipped;
        ech_serving_reset(&serving);
    }
    assert_true(skipped > 0);
    ech_pool_destroy(pool);
}

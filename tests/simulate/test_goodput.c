/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulation of failures agrees with closed forms: of checkpoints and restarts (renewal
 * theory), and of waits for repair (Erlang's loss formula).
 */
#include <math.h>

#include "simulate/goodput.h"
#include "unit.h"

static const ech_failures cases[] = {
    /* between, restart, repair, stall, writing, spares */
    {10000, 300, 0, 60, 0, 0},     {10000, 300, 5000, 60, 0, 0},  {3000, 600, 0, 100, 0, 0},
    {3000, 600, 86400, 100, 0, 0}, {10000, 300, 0, 5, 120, 0},    {2000, 1000, 4000, 20, 300, 0},
    {1e6, 100, 3600, 30, 0, 0},    {10000, 0, 86400, 60, 0, 1000}};
enum { CASES = sizeof cases / sizeof *cases };

static void assert_near(double value, double expected, double fraction)
{
    if (!(fabs(value - expected) <= fraction * expected))
        fail_msg("%g differs from %g by more than %g %%", value, expected, 100 * fraction);
}

TEST(agrees_with_closed_forms_within_a_percent)
{
    static const double intervals[] = {0.3, 1, 3};
    for (int c = 0; c < CASES; c++)
        for (int i = 0; i < 3; i++) {
            const ech_failures *f = &cases[c];
            double interval = intervals[i] * ech_goodput_young(f);
            ech_goodput g = ech_goodput_simulate(f, interval, ECH_GOODPUT_FAILURES, 45);
            /* the same by another way: the mean of time per failure, and of periods until one */
            double mean = f->between, period = fmax(interval + f->stall, f->writing), periods = 0;
            for (int k = 1; k * period < 40 * mean; k++)
                periods += exp(-(k * period + f->writing) / mean);
            double down = f->spares ? 0 : f->repair, failing = exp(f->restart / mean) - 1;
            double each = mean + down + failing * (mean + down);
            assert_near(g.useful, periods * interval / each, 0.01);
            assert_near(ech_goodput_expected(f, interval, !f->spares), periods * interval / each,
                        1e-6);
            assert_near(g.useful + g.saving + g.lost + g.restarting + g.waiting, 1, 1e-12);
            assert_near(g.failures, (1 + failing) / each, 0.01);
            if (f->spares || f->repair <= 0)
                assert_true(g.waiting == 0);
            else
                assert_near(g.waiting, (1 + failing) * down / each, 0.01);
        }
}

/* Without losses, a job that waits while more machines than its spares are away is a loss system of
 * spares + 1 servers, whatever the distribution of repairs. */
TEST(spares_wait_as_erlang_says)
{
    for (int spares = 0; spares < 8; spares++) {
        double load = 4, blocked = 1;
        for (int n = 1; n <= spares + 1; n++) blocked = load * blocked / (n + load * blocked);
        ech_failures f = {.between = 1000, .repair = 1000 * load, .spares = spares};
        ech_goodput g = ech_goodput_simulate(&f, 1e-3, ECH_GOODPUT_FAILURES, 7);
        assert_near(g.useful, 1 - blocked, 0.01);
        assert_true(ech_goodput_spares(&f, blocked * 1.001) == spares);
        assert_true(ech_goodput_spares(&f, blocked * 0.999) == spares + 1);
    }
}

/* A restart of e^27 attempts is not drawn. */
TEST(restarts_that_hardly_succeed_have_an_end)
{
    ech_failures f = {.between = 22, .repair = 3600, .restart = 600, .stall = 1, .writing = 10};
    ech_goodput g = ech_goodput_simulate(&f, 60, ECH_GOODPUT_FAILURES, 1);
    assert_true(g.useful > 0 && g.useful < 1e-9);
    assert_near(g.useful + g.restarting, 1, 1e-12);
}

TEST(more_spares_never_hurt)
{
    double last = 0;
    for (int spares = 0; spares < 40; spares += 3) {
        ech_failures f = {5000, 600, 86400, 60, 0, spares};
        double useful = ech_goodput_simulate(&f, 900, ECH_GOODPUT_FAILURES, 3).useful;
        assert_true(useful >= last);
        last = useful;
    }
    ech_failures never = {5000, 600, 0, 60, 0, 0};
    assert_near(last, ech_goodput_expected(&never, 900, false), 0.01);
}

TEST(the_same_seed_gives_the_same_bits)
{
    ech_goodput a, b, c;
    const ech_failures *f = &cases[1];
    int64_t best = ech_goodput_best(f, 7, 20000, 5, &a);
    assert_int_equal(ech_goodput_best(f, 7, 20000, 5, &b), best);
    assert_memory_equal(&a, &b, sizeof a);
    ech_goodput_best(f, 7, 20000, 6, &c);
    assert_true(c.useful != a.useful);
}

/* Of the closed form, by trying each number of steps. */
static int64_t expected_best(const ech_failures *f, double step)
{
    int64_t best = 1;
    for (int64_t n = 1; n < 20000; n++)
        if (ech_goodput_expected(f, (double)n * step, true) >
            ech_goodput_expected(f, (double)best * step, true))
            best = n;
    return best;
}

TEST(finds_the_best_interval)
{
    for (int c = 0; c < CASES; c++) {
        ech_goodput g;
        const ech_failures *f = &cases[c];
        int64_t best = ech_goodput_best(f, 11, ECH_GOODPUT_FAILURES, 45, &g);
        double most = ech_goodput_expected(f, (double)expected_best(f, 11) * 11, true);
        assert_near(ech_goodput_expected(f, (double)best * 11, true), most, 0.002);
    }
    /* Daly's interval is the best where nothing else costs anything; Young's is longer */
    ech_goodput g;
    ech_failures f = {.between = 20000, .stall = 100};
    double best = (double)ech_goodput_best(&f, 1, ECH_GOODPUT_FAILURES, 45, &g);
    double daly = ech_goodput_daly(&f);
    assert_near(daly, (double)expected_best(&f, 1), 0.002);
    assert_true(ech_goodput_young(&f) > daly && best > 0.8 * daly && best < 1.25 * daly);
}

ALL_TESTS(NULL, NULL)

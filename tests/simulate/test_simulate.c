/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator in units of one block's phase, against the papers' formulas and times worked out by
 * hand; what it tells about them; and lists that come to no end.
 */
#include <string.h>

#include "base/log.h"
#include "schedule/lists.h"
#include "schedule/near.h"
#include "unit.h"

static const ech_costs unit = {.seconds = false};

static ech_simulation simulate(const lists *all, const ech_costs *costs)
{
    ech_simulation simulation;
    assert_int_equal(ech_simulate(lists_plans(all), all->ranks, ECH_LIST_TRAIN, costs, &simulation),
                     ECH_OK);
    return simulation;
}

static void expect_end(lists_spec spec, double end, double bubble)
{
    lists all = lists_build(spec);
    ech_simulation simulation = simulate(&all, &unit);
    assert_near(simulation.end, end, 0);
    assert_near(simulation.bubble, bubble, 1e-12);
    ech_simulation_free(&simulation);
    lists_free(&all);
}

/* The bubble of GPipe (Huang et al. 2019, §2.3) and of 1F1B is (p - 1) / (m + p - 1). The backward
 * takes twice as long as the forward. It is one step, or B and then W, after which the gradient is
 * sent. */
TEST(test_bubbles)
{
    static const char *const schedules[] = {"gpipe", "1f1b"};
    for (int i = 0; i < 2; i++)
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= 12; m += m < 4 ? 1 : 4) {
                lists_spec spec = {.schedule = schedules[i], .stages = p, .micro_batches = m};
                double bubble = (p - 1.0) / (m + p - 1.0);
                spec.folded = true;
                expect_end(spec, 3.0 * (m + p - 1), bubble);
                spec.folded = false;
                spec.late = true;
                expect_end(spec, 3.0 * (m + p - 1), bubble);
            }
}

/* A gradient that is sent before W saves the stage in front one unit, p - 1 times. ZB-H1 saves as
 * much again where there are enough micro-batches (Qi et al. 2023, arXiv:2401.10241, §2.3: a bubble
 * of (p - 1) (F + B - W)). */
TEST(test_early_gradients)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zero-bubble"};
    for (int i = 0; i < 3; i++)
        for (int p = 1; p <= 6; p++)
            for (int m = i < 2 ? 1 : p; m <= 10; m += 3) {
                lists_spec spec = {.schedule = schedules[i], .stages = p, .micro_batches = m};
                double end = 3.0 * m + (i < 2 ? 2.0 : 1.0) * (p - 1);
                expect_end(spec, end, 1 - 3.0 * m / end);
            }
}

/* ZB-V (the same paper): from 2p - 1 micro-batches on nobody waits but for the first forward; in
 * units of a chunk's. */
TEST(test_zero_bubble_v)
{
    for (int p = 1; p <= 5; p++)
        for (int m = 2 * p - 1; m <= 2 * p + 3; m += 2) {
            lists_spec spec = {
                .schedule = "zero-bubble-v", .stages = p, .chunks = 2, .micro_batches = m};
            double end = 6.0 * m + p - 1;
            expect_end(spec, end, 1 - 6.0 * m / end);
        }
}

/* Narayanan et al. 2021, §2.2: v chunks divide the bubble by v; in units of a chunk's forward the
 * step takes 3 (v m + p - 1). */
TEST(test_interleaved)
{
    for (int p = 2; p <= 4; p++)
        for (int v = 1; v <= 3; v++)
            for (int m = p; m <= 3 * p; m += p) {
                lists_spec spec = {.schedule = "interleaved",
                                   .stages = p,
                                   .chunks = v,
                                   .micro_batches = m,
                                   .folded = true};
                expect_end(spec, 3.0 * (v * m + p - 1), (p - 1.0) / (v * m + p - 1.0));
            }
}

/* Nobody works while another does. */
TEST(test_naive)
{
    lists_spec spec = {.schedule = "naive", .stages = 4, .micro_batches = 3, .late = true};
    expect_end(spec, 3 * 4 * 3, 0.75);
}

/* Without messages to wait for, time is work: no bubble. */
TEST(test_one_stage)
{
    lists_spec spec = {.schedule = "1f1b", .stages = 1, .blocks = 5, .micro_batches = 4};
    expect_end(spec, 3 * 5 * 4, 0);
}

TEST(test_in_flight)
{
    static const char *const schedules[] = {"gpipe", "1f1b"};
    for (int i = 0; i < 2; i++)
        for (int p = 1; p <= 5; p++)
            for (int m = 1; m <= 7; m++) {
                lists all = lists_build((lists_spec){
                    .schedule = schedules[i], .stages = p, .blocks = 2 * p, .micro_batches = m});
                ech_simulation simulation = simulate(&all, &unit);
                for (int r = 0; r < p; r++)
                    assert_int_equal(simulation.in_flight[r], i == 0 || m < p - r ? m : p - r);
                ech_simulation_free(&simulation);
                lists_free(&all);
            }
}

/* ---- what it tells ---- */

static void expect_link(const ech_simulation *s, int link, int from, int to, int messages,
                        int64_t bytes)
{
    assert_int_equal(s->link.at[link].from, from);
    assert_int_equal(s->link.at[link].to, to);
    assert_int_equal(s->link.at[link].messages, messages);
    assert_int_equal(s->link.at[link].bytes, bytes);
}

/* One rank, then two replicas, then one: micro-batches 0, 2, 4 go by rank 1, 1 and 3 by rank 2. */
TEST(test_links)
{
    static const int replicas[] = {1, 2, 1};
    lists all = lists_build((lists_spec){
        .schedule = "1f1b", .stages = 3, .micro_batches = 5, .replicas = replicas, .bytes = 100});
    ech_simulation s = simulate(&all, &unit);
    assert_int_equal(s.link.n, 8);
    expect_link(&s, 0, 0, 1, 3, 300);
    expect_link(&s, 1, 0, 2, 2, 200);
    expect_link(&s, 2, 1, 0, 3, 303);
    expect_link(&s, 3, 1, 3, 3, 300);
    expect_link(&s, 4, 2, 0, 2, 202);
    expect_link(&s, 5, 2, 3, 2, 200);
    expect_link(&s, 6, 3, 1, 3, 303);
    expect_link(&s, 7, 3, 2, 2, 202);
    ech_simulation_free(&s);
    lists_free(&all);
}

static void expect_bar(const ech_timeline *t, int bar, int rank, ech_bar_kind kind, int micro,
                       double begin, double end)
{
    const ech_timeline_bar *b = &t->bar.at[bar];
    assert_int_equal(b->rank, rank);
    assert_int_equal(b->kind, kind);
    assert_int_equal(b->micro, micro);
    assert_near(b->begin, begin, 0);
    assert_near(b->end, end, 0);
}

/* Two stages of two blocks; a chunk's forward is one bar, and two micro-batches are two. */
TEST(test_timeline)
{
    lists all = lists_build((lists_spec){
        .schedule = "gpipe", .stages = 2, .blocks = 4, .micro_batches = 2, .folded = true});
    ech_simulation s = simulate(&all, &unit);
    ech_timeline t = {0};
    ech_simulation_timeline(&s, lists_plans(&all), ECH_LIST_TRAIN, &t);
    assert_int_equal(t.ranks, 2);
    assert_int_equal(t.chunks, 1);
    assert_near(t.end, 18, 0);
    assert_near(t.bubble, 1.0 / 3, 1e-12);
    assert_int_equal(t.bar.n, 8);
    expect_bar(&t, 0, 0, ECH_BAR_FORWARD, 0, 0, 2);
    expect_bar(&t, 1, 0, ECH_BAR_FORWARD, 1, 2, 4);
    expect_bar(&t, 2, 0, ECH_BAR_BACKWARD, 0, 10, 14);
    expect_bar(&t, 3, 0, ECH_BAR_BACKWARD, 1, 14, 18);
    expect_bar(&t, 4, 1, ECH_BAR_FORWARD, 0, 2, 4);
    expect_bar(&t, 5, 1, ECH_BAR_FORWARD, 1, 4, 6);
    expect_bar(&t, 6, 1, ECH_BAR_BACKWARD, 0, 6, 10);
    expect_bar(&t, 7, 1, ECH_BAR_BACKWARD, 1, 10, 14);
    ech_timeline_free(&t);
    ech_simulation_free(&s);
    lists_free(&all);
}

/* A W right after its own B is part of the same bar; a later W has its own. ZB-H1 defers the weight
 * gradients of stage 1's first micro-batch. */
TEST(test_timeline_weights)
{
    static const char *const schedules[] = {"1f1b", "zero-bubble"};
    for (int i = 0; i < 2; i++) {
        lists all =
            lists_build((lists_spec){.schedule = schedules[i], .stages = 2, .micro_batches = 3});
        ech_simulation s = simulate(&all, &unit);
        ech_timeline t = {0};
        int weights = 0;
        double busy = 0;
        ech_simulation_timeline(&s, lists_plans(&all), ECH_LIST_TRAIN, &t);
        for (size_t b = 0; b < t.bar.n; b++) {
            weights += t.bar.at[b].kind == ECH_BAR_WEIGHT;
            busy += t.bar.at[b].end - t.bar.at[b].begin;
        }
        assert_near(busy, 2 * 3 * 3, 0);
        assert_true(i == 0 ? weights == 0 && t.bar.n == 12 : weights > 0);
        ech_timeline_free(&t);
        ech_simulation_free(&s);
        lists_free(&all);
    }
}

/* ---- lists that do not end ---- */

static void expect_stuck(const lists *all, const char *first, const char *second)
{
    ech_simulation s;
    ech_clear_error();
    assert_int_equal(ech_simulate(lists_plans(all), all->ranks, ECH_LIST_TRAIN, &unit, &s),
                     ECH_EINTERNAL);
    if (!strstr(ech_last_error(), first) || !strstr(ech_last_error(), second))
        fail_msg("expected '%s' and '%s' in: %s", first, second, ech_last_error());
}

/* Whoever sends waits until it is received. In 1F1B stage 0 sends its second activation while stage
 * 1 sends its first gradient. */
TEST(test_deadlock)
{
    lists all = lists_build((lists_spec){
        .schedule = "1f1b", .stages = 2, .micro_batches = 3, .blocking = true, .bare = true});
    expect_stuck(&all,
                 "rank 1: W0.0/1 waits for rank 1's send_grad 0.0/1 to rank 0, which waits for "
                 "rank 0's recv_grad 0.0/0 from rank 1, which waits for rank 0's send_act 0.1/0",
                 "which waits for rank 1's W0.0/1 again: a circle");
    lists_free(&all);
}

TEST(test_nobody_sends)
{
    lists all = lists_build(
        (lists_spec){.schedule = "gpipe", .stages = 2, .micro_batches = 2, .bare = true});
    ech_list *first = lists_of(&all, 0);
    lists_drop(first, lists_find(first, ECH_STEP_SEND_ACT, 1));
    expect_stuck(&all, "waits for rank 0 to send it", "recv_act 0.1/1 from rank 0");
    lists_free(&all);
}

TEST(test_nobody_joins)
{
    static const int replicas[] = {2};
    lists all = lists_build(
        (lists_spec){.schedule = "gpipe", .stages = 1, .micro_batches = 2, .replicas = replicas});
    ech_list *second = lists_of(&all, 1);
    lists_drop(second, lists_find(second, ECH_STEP_REDUCE_GRADS, -1));
    expect_stuck(&all, "waits for rank 1 to join", "norm bucket 0");
    lists_free(&all);
}

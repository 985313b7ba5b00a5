/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders of all generators: complete and in order, with the micro-batches in flight and the idle
 * time that the papers say, and no rank ever waits for another in a circle.
 */

#include "base/log.h"
#include "config/rules.h"
#include "schedule/virtual_time.h"
#include "schedule/orders.h"
#include "unit.h"

enum { P = 6, M = 12, V = 3 };

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int makespan(const char *schedule, int p, int v, int m, bool merged)
{
    virtual_run *run = virtual_begin(schedule, p, NULL, v, m);
    int time = virtual_makespan(run, merged);
    virtual_end(run);
    return time;
}

static bool takes(const char *schedule, int p, int v, int m)
{
    ech_config *config;
    ech_text why = {0};
    ech_pipeline_shape shape = {.stages = p, .micro_batches = m};
    assert_int_equal(ech_config_create(NULL, 0, &config), ECH_OK);
    ech_config_replace_text(&config->parallel.schedule, schedule);
    config->parallel.virtual_stages = v;
    bool takes = !ech_rule_broken(config, ECH_RULES_OF_RUN) &&
                 ech_generator_accepts(ech_generator_find(schedule), &shape, &why);
    ech_text_free(&why);
    ech_config_destroy(config);
    return takes;
}

/* Calls `check` for every schedule with every shape that it accepts. */
static void for_all(void (*check)(const char *schedule, int p, int v, int m))
{
    static const char *const names[] = {"naive",       "gpipe",        "1f1b",
                                        "interleaved", "zero-bubble",  "zero-bubble-v",
                                        "pipedream",   "pipedream-2bw"};
    int runs = 0;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (int p = 1; p <= P; p++)
            for (int v = 1; v <= V; v++)
                for (int m = 1; m <= M; m++) {
                    if (!takes(names[n], p, v, m)) continue;
                    check(names[n], p, v, m);
                    runs++;
                }
    /* naive and gpipe all; three with one chunk and one with two; 2bw of m >= p; interleaved of
     * multiples of p. */
    assert_int_equal(runs, 2 * P * V * M + 4 * P * M + (12 + 11 + 10 + 9 + 8 + 7) +
                               V * (12 + 6 + 4 + 3 + 2 + 2));
}

static void is_complete(const char *schedule, int p, int v, int m)
{
    virtual_run *run = virtual_begin(schedule, p, NULL, v, m);
    for (int r = 0; r < p; r++) {
        const ech_order *order = &run->rank[r][0].order;
        assert_int_equal(order_check(order, v, m, schedule), ECH_OK);
        assert_int_equal(order->n, 3 * v * m);
    }
    virtual_end(run);
}

TEST(test_orders_are_complete)
{
    for_all(is_complete);
}

static void has_in_flight(const char *schedule, int p, int v, int m)
{
    virtual_run *run = virtual_begin(schedule, p, NULL, v, m);
    for (int r = 0; r < p; r++) {
        int found = ech_order_in_flight(&run->rank[r][0].order);
        if (strcmp(schedule, "naive") == 0)
            assert_int_equal(found, v);
        else if (strcmp(schedule, "gpipe") == 0)
            assert_int_equal(found, m * v);
        else if (strcmp(schedule, "interleaved") == 0)
            assert_int_equal(found,
                             m == p ? m * v : smaller(2 * (p - r - 1) + (v - 1) * p + 1, m * v));
        else if (strcmp(schedule, "zero-bubble") == 0)
            assert_int_equal(found, smaller(p, m)); /* no more than 1f1b's first stage */
        else if (strcmp(schedule, "zero-bubble-v") == 0)
            assert_true(m < 2 * p - 1 ? found <= smaller(2 * p, 2 * m) : found == 2 * p);
        else /* 1f1b, pipedream, pipedream-2bw */
            assert_int_equal(found, smaller(p - r, m));
    }
    virtual_end(run);
}

TEST(test_in_flight)
{
    for_all(has_in_flight);
}

static void never_waits_in_a_circle(const char *schedule, int p, int v, int m)
{
    assert_int_not_equal(makespan(schedule, p, v, m, false), DEADLOCK);
}

TEST(test_no_deadlock)
{
    for_all(never_waits_in_a_circle);
}

/* With F = 1 and a backward of 2, as the papers count. The idle share of the total is (p - 1) / (m
 * + p - 1) for GPipe (Huang et al. 2018) and 1F1B: idle x (m + p - 1) = total x (p - 1).
 * Interleaved, idle / working time is (p - 1) / (v m) (Narayanan et al. 2021). */
TEST(test_bubbles)
{
    for (int p = 1; p <= P; p++)
        for (int m = 1; m <= M; m++) {
            int work = 3 * m;
            int gpipe = makespan("gpipe", p, 1, m, true);
            int flush = makespan("1f1b", p, 1, m, true);
            int naive = makespan("naive", p, 1, m, true);
            assert_int_equal((gpipe - work) * (m + p - 1), gpipe * (p - 1));
            assert_int_equal(flush, gpipe);
            assert_int_equal(naive, work * p); /* idle 1 - 1/p */
            assert_int_equal(makespan("pipedream", p, 1, m, true), flush);
            for (int v = 1; v <= V; v++) {
                if (m >= p) /* the bubble of GPipe's chunks is as small */
                    assert_int_equal(makespan("gpipe", p, v, m, true), v * work + 3 * (p - 1));
                if (m % p) continue;
                int interleaved = makespan("interleaved", p, v, m, true);
                assert_int_equal((interleaved - v * work) * v * m, v * work * (p - 1));
            }
        }
}

/* Here a B sets the stage before free at once, and F, B and W take one unit each. */
TEST(test_zero_bubble)
{
    for (int p = 1; p <= P; p++)
        for (int m = 1; m <= M; m++) {
            int work = 3 * m, zero = makespan("zero-bubble", p, 1, m, false);
            int split = makespan("1f1b", p, 1, m, false);
            int merged = makespan("1f1b", p, 1, m, true);
            assert_int_equal(makespan("gpipe", p, 1, m, false), work + 2 * (p - 1));
            assert_int_equal(split, work + 2 * (p - 1));
            assert_int_equal(merged, work + 3 * (p - 1));
            if (m >= p) assert_int_equal(zero, work + (p - 1) * (1 + 1 - 1));
            /* A single micro-batch leaves no other's W to do. */
            if (p >= 2 && m >= 2)
                assert_true(zero < split);
            else
                assert_int_equal(zero, split);
        }
}

/* Qi et al. 2024, arXiv:2401.10241: with F, B, W of one length ZB-V has a bubble rate of 0 and the
 * activations of 1F1B (p micro-batches of two chunks each, has_in_flight). The bubble is what a
 * stage waits between its first F and its last W; so the step is longer than work by the p - 1
 * forwards until the last stage begins. In units of a chunk, which is half of what the others have
 * of a micro-batch, 1F1B idles 6 (p - 1), ZB-H1 2 (p - 1), and interleaved 1F1B with as many chunks
 * 3 (p - 1). */
TEST(test_zero_bubble_v)
{
    for (int p = 1; p <= P; p++)
        for (int m = 1; m <= M; m++) {
            int work = 6 * m;
            virtual_run *run = virtual_begin("zero-bubble-v", p, NULL, 2, m);
            int time = virtual_makespan(run, false);
            bool full = m >= 2 * p - 1;
            for (int r = 0; r < p; r++) {
                const virtual_rank *rank = &run->rank[r][0];
                assert_int_equal(rank->begun, r);
                assert_int_equal(rank->busy, work);
                if (full) assert_int_equal(rank->time - rank->begun, work);
            }
            virtual_end(run);
            if (full) assert_int_equal(time, work + p - 1);
            assert_true(time <= 2 * makespan("zero-bubble", p, 1, m, false));
            assert_true(time <= 2 * makespan("1f1b", p, 1, m, true));
            if (full && m % p == 0)
                assert_int_equal(makespan("interleaved", p, 2, m, true) - time, 2 * (p - 1));
        }
}

/* Every rank works the same time, whatever it waits. */
TEST(test_work)
{
    virtual_run *run = virtual_begin("zero-bubble", 4, NULL, 1, 8);
    assert_int_equal(virtual_makespan(run, false), 3 * 8 + 3);
    for (int r = 0; r < 4; r++) assert_int_equal(run->rank[r][0].busy, 24);
    virtual_end(run);
}

static void expect_order(const char *schedule, ech_pipe pipe, const char *text)
{
    ech_order order = {0};
    ech_text printed = {0};
    ech_generator_find(schedule)->generate(&pipe, &order);
    order_print(&order, &printed);
    assert_string_equal(printed.at, text);
    ech_text_free(&printed);
    free(order.at);
}

TEST(test_known_orders)
{
    ech_pipe first = {.stages = 2, .stage = 0, .chunks = 1, .micro_batches = 3, .depth = 2};
    ech_pipe last = {.stages = 2, .stage = 1, .chunks = 1, .micro_batches = 3, .depth = 1};
    expect_order("naive", first, "F0.0 B0.0 W0.0 F0.1 B0.1 W0.1 F0.2 B0.2 W0.2");
    expect_order("gpipe", first, "F0.0 F0.1 F0.2 B0.0 W0.0 B0.1 W0.1 B0.2 W0.2");
    expect_order("1f1b", first, "F0.0 F0.1 B0.0 W0.0 F0.2 B0.1 W0.1 B0.2 W0.2");
    expect_order("1f1b", last, "F0.0 B0.0 W0.0 F0.1 B0.1 W0.1 F0.2 B0.2 W0.2");
    expect_order("zero-bubble", first, "F0.0 F0.1 B0.0 W0.0 F0.2 B0.1 W0.1 B0.2 W0.2");
    expect_order("zero-bubble", last, "F0.0 B0.0 F0.1 B0.1 W0.0 F0.2 B0.2 W0.1 W0.2");
    ech_pipe down = {.stages = 2, .stage = 0, .chunks = 2, .micro_batches = 3, .depth = 2};
    ech_pipe turn = {.stages = 2, .stage = 1, .chunks = 2, .micro_batches = 3, .depth = 1};
    expect_order("zero-bubble-v", down,
                 "F0.0 F0.1 F0.2 F1.0 B1.0 W1.0 F1.1 B1.1 W1.1 B0.0 W0.0 F1.2 B1.2 W1.2 "
                 "B0.1 W0.1 B0.2 W0.2");
    expect_order("zero-bubble-v", turn,
                 "F0.0 F1.0 F0.1 F1.1 B1.0 W1.0 F0.2 B0.0 W0.0 F1.2 B1.1 W1.1 B0.1 B1.2 "
                 "B0.2 W0.1 W1.2 W0.2");
    expect_order("pipedream", first, "F0.0 F0.1 B0.0 W0.0 F0.2 B0.1 W0.1 B0.2 W0.2");
    ech_pipe chunks = {.stages = 2, .stage = 1, .chunks = 2, .micro_batches = 4, .depth = 1};
    expect_order("interleaved", chunks,
                 "F0.0 F0.1 F1.0 B1.0 W1.0 F1.1 B1.1 W1.1 F0.2 B0.0 W0.0 F0.3 B0.1 W0.1 "
                 "F1.2 B1.2 W1.2 F1.3 B1.3 W1.3 B0.2 W0.2 B0.3 W0.3");
}

/* Micro-batch q is replica q mod r's, so ranks of one stage have other numbers of them. */
TEST(test_unequal_replicas)
{
    static const char *const names[] = {"naive", "gpipe", "1f1b", "pipedream"};
    static const struct {
        int stages, replicas[MOST_STAGES];
    } shapes[] = {{2, {3, 1}},    {2, {1, 3}},    {3, {2, 1, 2}},
                  {3, {1, 4, 1}}, {3, {4, 1, 3}}, {4, {1, 2, 3, 4}}};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int m = 1; m <= 26; m++) {
                virtual_run *run =
                    virtual_begin(names[n], shapes[s].stages, shapes[s].replicas, 1, m);
                assert_int_not_equal(virtual_makespan(run, false), DEADLOCK);
                assert_int_not_equal(virtual_makespan(run, true), DEADLOCK);
                for (int stage = 0; stage < run->stages; stage++)
                    for (int j = 0; j < run->replicas[stage]; j++) {
                        const virtual_rank *rank = &run->rank[stage][j];
                        int most = rank->pipe.micro_batches;
                        assert_int_equal(order_check(&rank->order, 1, most, names[n]), ECH_OK);
                        if (strchr("1p", names[n][0]))
                            assert_int_equal(ech_order_in_flight(&rank->order),
                                             smaller(rank->pipe.depth, most));
                    }
                virtual_end(run);
            }
    /* One stage of three replicas before one of one: NOAM is 4 / 3, rounded up. */
    virtual_run *run = virtual_begin("1f1b", 2, (const int[]){3, 1}, 1, 12);
    assert_int_equal(run->rank[0][2].pipe.depth, 2);
    assert_int_equal(run->rank[1][0].pipe.depth, 1);
    virtual_end(run);
}

/* The first stage waits for the first backward, the last one for the second forward. */
TEST(test_the_simulation_finds_deadlocks)
{
    virtual_run *run = virtual_begin("gpipe", 2, NULL, 1, 2);
    assert_int_not_equal(virtual_makespan(run, false), DEADLOCK);
    free(run->rank[0][0].order.at);
    run->rank[0][0].order = (ech_order){0};
    ech_generator_find("naive")->generate(&run->rank[0][0].pipe, &run->rank[0][0].order);
    assert_int_equal(virtual_makespan(run, false), DEADLOCK);
    virtual_end(run);
}

TEST(test_forwards)
{
    for (int p = 1; p <= P; p++)
        for (int v = 1; v <= V; v++)
            for (int m = 1; m <= M; m++) {
                virtual_run *run = virtual_begin(NULL, p, NULL, v, m);
                assert_int_equal(run->rank[0][0].order.n, v * m);
                int time = virtual_makespan(run, false);
                if (m % p == 0) assert_int_equal(time, v * m + p - 1);
                assert_int_not_equal(time, DEADLOCK);
                virtual_end(run);
            }
    /* Why chunks need as many replicas everywhere. */
    virtual_run *unequal = virtual_begin(NULL, 2, (const int[]){1, 2}, 3, 7);
    assert_int_equal(virtual_makespan(unequal, false), DEADLOCK);
    virtual_end(unequal);
    ech_pipe pipe = {.stages = 2, .stage = 1, .chunks = 2, .micro_batches = 3, .depth = 1};
    ech_order order = {0};
    ech_text text = {0};
    ech_order_forwards(&pipe, &order);
    order_print(&order, &text);
    assert_string_equal(text.at, "F0.0 F0.1 F1.0 F1.1 F0.2 F1.2");
    ech_text_free(&text);
    free(order.at);
}
